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

// TestLocksStayOpen: a lock file that a store keeps open is locked for others only during a call, and one that somebody has
// removed is made anew.
func TestLocksStayOpen(t *testing.T) {
	dir := t.TempDir()
	waits := make(chan struct{}, 1)
	s := open(t, dir, refs.Options{Waiting: filelock.Waiter{Tell: func(string, string) { waits <- struct{}{} }}})
	v := put(t, s, refstore.Record{Key: job("kept"), Value: []byte("queued")})
	lock := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "locks", "records", "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("lock files %v, %v, want one", files, err)
		}
		return files[0]
	}
	v = put(t, s, refstore.Record{Key: job("kept"), Value: []byte("running"), Version: v})
	f, err := os.OpenFile(lock(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := filelock.Try(f, true); err != nil {
		t.Fatalf("between two calls: %v", err)
	}
	done := make(chan refstore.Version, 1)
	go func() {
		v, err := s.Put(t.Context(), refstore.Record{Key: job("kept"), Value: []byte("running by one"), Version: v})
		if err != nil {
			t.Error(err)
		}
		done <- v
	}()
	select {
	case <-done:
		t.Error("a put did not wait for the lock")
	case <-waits:
	}
	if err := filelock.Unlock(f); err != nil {
		t.Fatal(err)
	}
	v = <-done
	if err := os.Remove(lock()); err != nil {
		t.Fatal(err)
	}
	put(t, s, refstore.Record{Key: job("kept"), Value: []byte("running by another"), Version: v})
	lock() // there is one again, which another process would lock
}
