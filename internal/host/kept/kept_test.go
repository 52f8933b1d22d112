package kept_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/host/kept"
)

// maker writes a file, and counts.
func maker(n *atomic.Int32) *kept.Maker {
	return &kept.Maker{Make: func(folder, _ string) (string, error) {
		n.Add(1)
		return "made", os.WriteFile(filepath.Join(folder, "file"), []byte("0123456789"), 0o644)
	}}
}

func open(t *testing.T, s kept.Folders, name string, m *kept.Maker) *kept.Folder {
	t.Helper()
	f, err := s.Open(t.Context(), name, m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// names are the folders that exist.
func names(t *testing.T, s kept.Folders) []string {
	t.Helper()
	entries, err := os.ReadDir(string(s))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// Processes that ask for a folder at the same time get it, made once: locks of open files are those of processes.
func TestMadeOnce(t *testing.T) {
	s := kept.Folders(t.TempDir())
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			f, err := s.Open(t.Context(), "a", maker(&made))
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if data, err := os.ReadFile(filepath.Join(f.Path, "file")); err != nil || string(data) != "0123456789" {
				t.Errorf("the folder has %q (%v)", data, err)
			}
		})
	}
	all.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times, want once", n)
	}
}

// A folder that a crash has left without a note is made anew, from nothing.
func TestHalfMade(t *testing.T) {
	s := kept.Folders(t.TempDir())
	left := filepath.Join(string(s), "a", "tree", "left")
	if err := os.MkdirAll(filepath.Dir(left), 0o500); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	f := open(t, s, "a", maker(&made))
	defer f.Close()
	if _, err := os.Lstat(left); made.Load() != 1 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made %d times, want once; what was left: %v", made.Load(), err)
	}
}

// A failure leaves no content, but what the maker has written beside it; the next one who asks tries again.
func TestFailure(t *testing.T) {
	s := kept.Folders(t.TempDir())
	bad := errors.New("no network")
	m := &kept.Maker{Make: func(folder, aside string) (string, error) {
		return "", errors.Join(bad, os.WriteFile(filepath.Join(folder, "part"), nil, 0o644), os.WriteFile(filepath.Join(aside, "log"), nil, 0o644))
	}}
	if _, err := s.Open(t.Context(), "a", m); !errors.Is(err, bad) {
		t.Fatalf("got %v, want %v", err, bad)
	}
	if entries := names(t, s+"/a"); !slices.Equal(entries, []string{"log"}) {
		t.Errorf("left %q, want the log alone", entries)
	}
	var made atomic.Int32
	open(t, s, "a", maker(&made)).Close()
	if made.Load() != 1 {
		t.Errorf("made %d times after a failure, want once", made.Load())
	}
}

// A wait for another process ends with its context.
func TestCancelled(t *testing.T) {
	s := kept.Folders(t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	_, err := s.Open(t.Context(), "a", &kept.Maker{Make: func(string, string) (string, error) {
		cancel(stop)
		_, err := s.Open(ctx, "a", &kept.Maker{})
		return "", err
	}})
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want %v", err, stop)
	}
}

// A folder that no longer fits is made anew once nobody uses it.
func TestChanged(t *testing.T) {
	s := kept.Folders(t.TempDir())
	var made atomic.Int32
	m := maker(&made)
	m.Fits = func(folder, mark string) (bool, error) {
		data, err := os.ReadFile(filepath.Join(folder, "file"))
		return mark == "made" && string(data) == "0123456789", err
	}
	f := open(t, s, "a", m)
	if err := os.WriteFile(filepath.Join(f.Path, "file"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.Close()
	open(t, s, "a", m).Close()
	if err := os.Remove(filepath.Join(f.Path, "file")); err != nil {
		t.Fatal(err)
	}
	open(t, s, "a", m).Close()
	if made.Load() != 3 {
		t.Errorf("made %d times, want 3", made.Load())
	}
}

func TestTrim(t *testing.T) {
	s := kept.Folders(t.TempDir())
	var made atomic.Int32
	now := time.Now()
	used := map[string]time.Duration{"now": 0, "yesterday": 30 * time.Hour, "inuse": 60 * time.Hour, "week": 170 * time.Hour}
	make := func() *kept.Folder {
		var inuse *kept.Folder
		for name, ago := range used {
			f := open(t, s, name, maker(&made))
			at := now.Add(-ago)
			if err := os.Chtimes(filepath.Join(string(s), name, "about"), at, at); err != nil {
				t.Fatal(err)
			}
			if name == "inuse" {
				inuse = f
			} else {
				f.Close()
			}
		}
		if err := os.MkdirAll(filepath.Join(string(s), "half", "tree"), 0o755); err != nil {
			t.Fatal(err)
		}
		return inuse
	}
	day := 24 * time.Hour
	for _, c := range []struct {
		name  string
		bound kept.Bound
		left  string
		bytes int64
	}{
		{"nothing is old", kept.Bound{Age: 200 * time.Hour, Spare: day}, "half inuse now week yesterday", 0},
		{"old ones", kept.Bound{Age: 40 * time.Hour, Spare: day}, "half inuse now yesterday", 10},
		{"room for two", kept.Bound{Bytes: 25, Spare: day}, "half inuse now yesterday", 10},
		{"no room", kept.Bound{Bytes: 1, Spare: day}, "half inuse now", 20},
		{"no room, and nothing is spared", kept.Bound{Bytes: 1, Spare: -time.Hour}, "inuse", 30},
	} {
		inuse := make()
		would, err := s.Trim(now, c.bound, true)
		if err != nil {
			t.Fatal(err)
		}
		did, err := s.Trim(now, c.bound, false)
		if err != nil {
			t.Fatal(err)
		}
		if left := strings.Join(names(t, s), " "); left != c.left || did.RemovedBytes != c.bytes || would != did {
			t.Errorf("%s: %s are left, want %s; %d bytes removed, want %d; a dry run said %+v, then %+v was done", c.name, left, c.left, did.RemovedBytes, c.bytes, would, did)
		}
		inuse.Close()
	}
}
