package fs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/filelock"
	"e3/refstore"
	refs "e3/refstore/fs"
)

// TestLocksMoved has the folder of the lock files replaced by a copy whose locks another process holds. A store that has
// used the old ones waits for it.
func TestLocksMoved(t *testing.T) {
	dir := t.TempDir()
	waits := make(chan string, 1)
	s, err := refs.Open(dir, refs.Options{Waiting: filelock.Waiter{Tell: func(path, _ string) { waits <- path }}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "a"}, Value: []byte("1")}
	for range 2 {
		if r.Version, err = s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	locks, aside := filepath.Join(dir, "locks"), filepath.Join(dir, "aside")
	if err := os.Rename(locks, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(locks, os.DirFS(aside)); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	err = filepath.WalkDir(filepath.Join(locks, "records"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		held = append(held, f)
		return filelock.Try(f, true)
	})
	if err != nil || len(held) == 0 {
		t.Fatalf("the copy has %d lock files, %v", len(held), err)
	}
	put := make(chan error, 1)
	go func() {
		_, err := s.Put(t.Context(), r)
		put <- err
	}()
	select {
	case <-waits:
	case err := <-put:
		t.Errorf("a record was written without its lock: %v", err)
		put <- err
	}
	for _, f := range held {
		f.Close()
	}
	if err := <-put; err != nil {
		t.Errorf("after the lock was free: %v", err)
	}
}
