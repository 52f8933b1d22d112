package fs_test

import (
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/filelock"
	"e3/refstore"
	"e3/refstore/fs"
)

// TestLocksStayOpen: a lock file that a store keeps open is locked for others only during a call, and one that somebody has
// removed is made anew.
func TestLocksStayOpen(t *testing.T) {
	dir := t.TempDir()
	waits := make(chan struct{}, 1)
	s := open(t, dir, fs.Options{Waiting: filelock.Waiter{Tell: func(string, string) { waits <- struct{}{} }}})
	v := put(t, s, refstore.Record{Key: jobKey, Value: []byte("queued")})
	lock := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "locks", "records", "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("lock files %v, %v, want one", files, err)
		}
		return files[0]
	}
	v = put(t, s, refstore.Record{Key: jobKey, Value: []byte("running"), Version: v})
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
		v, err := s.Put(t.Context(), refstore.Record{Key: jobKey, Value: []byte("running by one"), Version: v})
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
	put(t, s, refstore.Record{Key: jobKey, Value: []byte("running by another"), Version: v})
	lock() // there is one again, which another process would lock
}
