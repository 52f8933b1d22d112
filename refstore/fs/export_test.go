package fs

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"e3/refstore"
)

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
		f(s.files.Path(dir))
		return enter(dir)
	}
}

// MaxNarrow is the number of files up to which a sync is narrow.
const MaxNarrow = maxNarrow

// Syncs tells what stores sync.
type Syncs struct {
	mu     sync.Mutex
	wide   int
	paths  []string
	fail   error
	before func()
}

// WatchSyncs watches the syncs of all stores until the end of the test, on a machine that has much to write.
func WatchSyncs(t *testing.T) *Syncs {
	s := &Syncs{}
	one, wide, bytes := syncOne, wideSync, unwritten
	t.Cleanup(func() { syncOne, wideSync, unwritten = one, wide, bytes })
	s.Machine(1 << 40)
	watched := func(sync func(tree, string) error) func(tree, string) error {
		return func(in tree, path string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			before, fail := s.before, s.fail
			s.paths = append(s.paths, in.Path(path))
			if before != nil {
				before()
			}
			return errors.Join(sync(in, path), fail)
		}
	}
	syncOne = watched(one)
	wideSync = func(in tree) error {
		s.mu.Lock()
		s.wide++
		s.mu.Unlock()
		return wide(in)
	}
	return s
}

// Machine has the machine wait with so many bytes to write.
func (s *Syncs) Machine(bytes int64) { unwritten = func() int64 { return bytes } }

// Wide is how many syncs of the file system there were.
func (s *Syncs) Wide() int { s.mu.Lock(); defer s.mu.Unlock(); return s.wide }

// Paths are the files and folders that were synced by themselves.
func (s *Syncs) Paths() []string { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.paths) }

// Fail makes syncs of files fail with err, unless it is nil.
func (s *Syncs) Fail(err error) { s.mu.Lock(); defer s.mu.Unlock(); s.fail = err }

// Before has f called before each sync of a file, unless it is nil.
func (s *Syncs) Before(f func()) { s.mu.Lock(); defer s.mu.Unlock(); s.before = f }

// LockStream takes the lock of a stream as writers do.
func LockStream(t *testing.T, s *Store, key refstore.Key) (unlock func()) {
	t.Helper()
	sh, err := s.lockShard(t.Context(), lockOf(key))
	if err != nil {
		t.Fatal(err)
	}
	return func() { sh.Close() }
}
