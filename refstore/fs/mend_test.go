package fs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/refstore/fs"
)

// TestSweepMends has sessions of this and of another boot of the machine. Mend is called only for the latter, and they
// stay until it has succeeded.
func TestSweepMends(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().Add(-time.Minute).Truncate(time.Second)
	leave := func(name, boot string, began time.Time) {
		t.Helper()
		path := filepath.Join(dir, "tmp", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".lock", []byte(boot), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path+".lock", began, began); err != nil {
			t.Fatal(err)
		}
	}
	var since []time.Time
	var fault error
	s, err := fs.Open(dir, fs.Options{
		Boot: func() string { return "now" },
		Mend: func(_ context.Context, t time.Time) error {
			since = append(since, t)
			return fault
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	leave("session-1-00000001", "now", began)
	if n, err := s.Sweep(t.Context()); n != 1 || err != nil || since != nil {
		t.Errorf("a session of this start: swept %d, %v, mended since %v", n, err, since)
	}
	leave("session-1-00000002", "now", began.Add(-time.Hour))
	leave("session-1-00000003", "before", began)
	leave("session-1-00000004", "", began.Add(time.Second)) // its boot was lost too
	fault = errors.New("cannot")
	if n, err := s.Sweep(t.Context()); n != 0 || !errors.Is(err, fault) {
		t.Errorf("a fault in mending: swept %d, %v", n, err)
	}
	fault = nil
	if n, err := s.Sweep(t.Context()); n != 3 || err != nil {
		t.Errorf("sessions of another start: swept %d, %v", n, err)
	}
	if len(since) != 2 || !since[1].Equal(began) {
		t.Errorf("mended since %v, want twice since %v", since, began)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
