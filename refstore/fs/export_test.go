package fs

import (
	"os"

	"e3/refstore"
)

// Flock locks a file as writers of streams do.
func Flock(f *os.File) error { return flock(f, refstore.Exclusive, false) }

// OnNetwork makes a store treat its file system as a network file system, or as a local one.
func (s *Store) OnNetwork(yes bool) { s.files.looks.network = yes }

// Remember simulates a kernel that caches the attributes of each file from its first stat without an open.
func (s *Store) Remember() {
	look, seen := s.files.looks.stat, make(map[string]stamp)
	s.files.looks.stat = func(path string) (stamp, error) {
		if st, ok := seen[path]; ok {
			return st, nil
		}
		st, err := look(path)
		if err == nil {
			seen[path] = st
		}
		return st, err
	}
}

// BeforeEnter sets a function that is called before a folder is opened to refresh the cache.
func (s *Store) BeforeEnter(f func(dir string)) {
	enter := s.files.looks.enter
	s.files.looks.enter = func(dir string) error {
		f(dir)
		return enter(dir)
	}
}
