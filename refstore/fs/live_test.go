package fs_test

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/refstoretest"
)

func began(t *testing.T, s *fs.Store) time.Time {
	t.Helper()
	at, err := s.SessionBegan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestSessionsOfOthers(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, fs.Options{}), open(t, dir, fs.Options{Boot: func() string { return "boot" }})
	if live, err := one.LiveSessions(t.Context()); err != nil || len(live) != 0 {
		t.Errorf("before anybody wrote: got %v, %v, want no session", live, err)
	}
	first := began(t, one)
	release, err := one.Protect(t.Context(), []string{"node a"})
	if err != nil {
		t.Fatal(err)
	}
	second := began(t, two)
	if second.Before(first) {
		t.Errorf("the second session began at %v, before the first, at %v", second, first)
	}
	put(t, one, refstore.Record{Key: job("a")})
	for _, s := range []*fs.Store{one, two} {
		live, err := s.LiveSessions(t.Context())
		if err != nil || len(live) != 2 {
			t.Fatalf("got %v, %v, want two sessions", live, err)
		}
		slices.SortFunc(live, func(a, b refstore.SessionInfo) int { return len(b.Protected) - len(a.Protected) })
		if !live[0].Began.Equal(first) || !live[1].Began.Equal(second) || !slices.Equal(live[0].Protected, []string{"node a"}) {
			t.Errorf("got %v, want the sessions of %v, which protects node a, and %v", live, first, second)
		}
	}
	release()
	if err := refstoretest.WantProtected(t.Context(), two); err != nil {
		t.Error(err)
	}
	if _, err := one.Protect(t.Context(), []string{"node b"}); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil { // unreleased protection ends with the session
		t.Error(err)
	}
	if live, err := two.LiveSessions(t.Context()); err != nil || len(live) != 1 || !live[0].Began.Equal(second) {
		t.Errorf("after the first has ended: got %v, %v, want the second", live, err)
	}
	if _, err := one.Protect(t.Context(), nil); !errors.Is(err, iofs.ErrClosed) {
		t.Errorf("protect in a closed store: got %v, want ErrClosed", err)
	}
}

// TestSessionTime checks that a session's beginning is by the file system's clock.
func TestSessionTime(t *testing.T) {
	dir := t.TempDir()
	for _, boot := range []string{"", "boot"} {
		before := stamped(t, dir)
		s := open(t, dir, fs.Options{Boot: func() string { return boot }})
		at := began(t, s)
		if after := stamped(t, dir); at.Before(before) || at.After(after) {
			t.Errorf("boot %q: the session began at %v, want a time from %v to %v", boot, at, before, after)
		}
	}
}

// stamped returns the current time of the file system's clock.
func stamped(t *testing.T, dir string) time.Time {
	t.Helper()
	f, err := os.CreateTemp(dir, "stamp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestSessionAfterClockWasSetBack has a live session, and a dead one, that began when the clock was ahead.
func TestSessionAfterClockWasSetBack(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(time.Hour).Truncate(time.Second)
	for i, at := range []time.Time{ahead, ahead.Add(time.Hour)} {
		path := filepath.Join(dir, "tmp", "session-1-0000000"+strconv.Itoa(i)+".lock")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp", "session-1-00000000"), 0o755); err != nil {
		t.Fatal(err)
	}
	if at := began(t, open(t, dir, fs.Options{})); !at.Equal(ahead) {
		t.Errorf("a session began at %v, want the time of the one that lives, %v", at, ahead)
	}
}

func TestKilledSessionIsNotLive(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	line, kill := killable(t, "protect", dir, 1)
	ns, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	live, err := s.LiveSessions(t.Context())
	if err != nil || len(live) != 1 || live[0].Began.UnixNano() != ns || !slices.Equal(live[0].Protected, []string{"node a", "package b"}) {
		t.Errorf("got %v, %v, want the helper's session, which began at %d", live, err, ns)
	}
	kill()
	if live, err := s.LiveSessions(t.Context()); err != nil || len(live) != 0 {
		t.Errorf("after its death: got %v, %v, want no session", live, err)
	}
	if n, err := s.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("sweep: got %d, %v, want 1", n, err)
	}
}

// TestUnreadableSession tests a session of another user.
func TestUnreadableSession(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("file modes do not bind root: run the tests as another user")
	}
	dir := t.TempDir()
	one, two := open(t, dir, fs.Options{}), open(t, dir, fs.Options{})
	session, at, err := one.Session()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(session+".lock", 0); err != nil {
		t.Fatal(err)
	}
	if live, err := two.LiveSessions(t.Context()); err != nil || len(live) != 1 || !live[0].Began.Equal(at) {
		t.Errorf("got %v, %v, want the session of %v", live, err, at)
	}
	if err := os.Chmod(session, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(session, 0o755)
	if live, err := two.LiveSessions(t.Context()); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("what it protects is unknown: got %v, %v, want a permission error", live, err)
	}
}

// TestTornProtection tests reads of protected names during a write.
func TestTornProtection(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	session, err := s.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(session, "protect-9"), []byte("node a\nnode"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := refstoretest.WantProtected(t.Context(), s, "node a"); err != nil {
		t.Error(err)
	}
}

func TestProtectAfterTmpRemovedByHand(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	began(t, s)
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	release, err := s.Protect(t.Context(), []string{"node a"})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := refstoretest.WantProtected(t.Context(), s, "node a"); err != nil {
		t.Error(err)
	}
}

// Live sessions of another machine that shares the folder stay, and Sweep does not wait for them.
func TestSweepBesideAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	boot := func(text string) fs.Options { return fs.Options{Boot: func() string { return text }} }
	if _, _, err := open(t, dir, boot("one 1 a")).Session(); err != nil {
		t.Fatal(err)
	}
	if n, err := open(t, dir, boot("two 2 b")).Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("swept %d sessions, %v, want none: another machine is at work", n, err)
	}
}
