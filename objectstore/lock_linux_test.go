package objectstore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

// lockShard takes the lock of an object's shard.
func lockShard(t *testing.T, d *objectstore.Dir, h objectstore.Hash, how int) (unlock func()) {
	t.Helper()
	path, err := d.LockFile(h)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// waitForWaiter returns when a waiter has queued for the lock of an object's shard.
func waitForWaiter(t *testing.T, d *objectstore.Dir, h objectstore.Hash) {
	t.Helper()
	var st unix.Stat_t
	path, err := d.LockFile(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprintf(":%d ", st.Ino)
	for deadline := time.Now().Add(suite.Stuck); time.Now().Before(deadline); {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Skipf("needs /proc/locks: %v", err)
		}
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "->") && strings.Contains(line, inode) {
				return
			}
		}
	}
	t.Fatal("nobody waits for the shard's lock")
}

// TestRefreshDuringRemoval removes an object while a refresher waits: the refresher must not report that the object
// exists.
func TestRefreshDuringRemoval(t *testing.T) {
	base := t.TempDir()
	for name, refresh := range map[string]func(d *objectstore.Dir, h objectstore.Hash) (there bool){
		"refresh": func(d *objectstore.Dir, h objectstore.Hash) bool {
			ok, err := d.Refresh(t.Context(), h)
			if err != nil {
				t.Error(err)
			}
			return ok
		},
		"put": func(d *objectstore.Dir, h objectstore.Hash) bool {
			put(t, d, []byte("put"))
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sessionDir(t, base, time.Now())
			h := put(t, d, []byte(name))
			setTime(t, d.File(h), time.Now().Add(-time.Hour))
			unlock := lockShard(t, d, h, unix.LOCK_EX)
			got := make(chan bool)
			go func() { got <- refresh(d, h) }()
			waitForWaiter(t, d, h)
			if err := os.Remove(d.File(h)); err != nil {
				t.Error(err)
			}
			unlock()
			there := <-got
			if _, err := d.Stat(t.Context(), h); (err == nil) != there {
				t.Errorf("it is said to be there: %v; got %v", there, err)
			}
		})
	}
}

// TestRemovalDuringRefresh refreshes an object while removers wait: it must stay.
func TestRemovalDuringRefresh(t *testing.T) {
	cutoff := time.Now()
	for name, remove := range map[string]func(d *objectstore.Dir, h objectstore.Hash) error{
		"DeleteBefore": func(d *objectstore.Dir, h objectstore.Hash) error {
			_, err := d.DeleteBefore(t.Context(), h, cutoff)
			return err
		},
		"SweepShard": func(d *objectstore.Dir, h objectstore.Hash) error {
			return d.SweepShard(t.Context(), h[0], cutoff, func(objectstore.Hash) bool { return false }, func(objectstore.Entry) {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sessionDir(t, t.TempDir(), cutoff)
			h := put(t, d, []byte("x"))
			setTime(t, d.File(h), cutoff.Add(-time.Hour))
			unlock := lockShard(t, d, h, unix.LOCK_SH)
			done := make(chan error)
			go func() { done <- remove(d, h) }()
			waitForWaiter(t, d, h)
			if ok, err := d.Refresh(t.Context(), h); err != nil || !ok { // refreshers share the lock
				t.Errorf("refresh: got %v, %v", ok, err)
			}
			unlock()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if _, err := d.Stat(t.Context(), h); err != nil {
				t.Errorf("a refreshed object: %v", err)
			}
		})
	}
}
