package fs

import (
	"os"

	"e3/refstore"
)

// Flock locks a file as writers of streams do.
func Flock(f *os.File) error { return flock(f, refstore.Exclusive, false) }

// OnNetwork has a store take its file system for one on a network, or not.
func (s *Store) OnNetwork(yes bool) { s.files.looks.network = yes }

// Remember has a store's kernel remember what each file was like when it was first looked at without being opened.
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

// BeforeEnter has f called before a folder is opened for what may have come into it.
func (s *Store) BeforeEnter(f func(dir string)) {
	enter := s.files.looks.enter
	s.files.looks.enter = func(dir string) error {
		f(dir)
		return enter(dir)
	}
}
