package fs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/internal/host/filelock"
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

// TestSweepPassesTheLiving has a session that is held under another mount, as by a process in a container, beside one of
// a lost mount that another sweeper is mending. The sweep waits for the sweeper, not for the living.
func TestSweepPassesTheLiving(t *testing.T) {
	dir := t.TempDir()
	leave := func(name string) string {
		t.Helper()
		path := filepath.Join(dir, "tmp", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".lock", []byte("host start other"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path + ".lock"
	}
	mends, mended := make(chan struct{}), make(chan struct{})
	waits := make(chan string, 1)
	open := func() *fs.Store {
		s, err := fs.Open(dir, fs.Options{
			NoNotify: true,
			Boot:     func() string { return "host start mount" },
			Mend: func(context.Context, time.Time) error {
				mends <- struct{}{}
				<-mended
				return nil
			},
			Waiting: filelock.Waiter{Tell: func(path, _ string) { waits <- path }},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	living, err := os.OpenFile(leave("session-1-00000001"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	if err := filelock.Try(living, true); err != nil {
		t.Fatal(err)
	}
	if n, err := open().Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("beside a living session: swept %d, %v", n, err)
	}
	leave("session-1-00000002")
	swept := make(chan int)
	sweep := func() {
		n, err := open().Sweep(t.Context())
		if err != nil {
			t.Error(err)
		}
		swept <- n
	}
	go sweep()
	<-mends
	go sweep()
	select {
	case path := <-waits:
		if want := filepath.Join(dir, "locks", "named", "mend.lock"); path != want {
			t.Errorf("the second sweeper waits for %s, want %s", path, want)
		}
	case <-mends:
		t.Error("two mend at a time")
	case <-swept:
		t.Error("a sweep ended before the other had mended")
	}
	close(mended)
	if a, b := <-swept, <-swept; a+b != 1 {
		t.Errorf("swept %d and %d sessions, want 1 in all", a, b)
	}
}
