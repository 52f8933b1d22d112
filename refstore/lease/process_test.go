package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/lease"
)

// The test binary runs itself as another process if this is set: to a folder, whether the process identifies itself, and
// its lease.
const helperEnv = "E3_TEST_LEASE_HELPER"

// Leases in real time: one that ends while a test waits, and that a busy machine still renews, and one that does not end.
const (
	shortTTL = 5 * time.Second
	longTTL  = 6 * suite.Stuck
)

func TestMain(m *testing.M) {
	words := strings.Split(os.Getenv(helperEnv), "\n")
	if len(words) != 3 {
		os.Exit(m.Run())
	}
	ttl, err := time.ParseDuration(words[2])
	if err == nil {
		err = hold(words[0], words[1] == "stranger", ttl)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "helper: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// foreign is the owner of a process on another host.
func foreign() lease.Owner {
	return lease.Owner{Process: process.ID{PID: os.Getpid(), StartTime: 1, Host: "elsewhere", BootID: "another"}, Words: "a stranger"}
}

// hold takes a lock and a claim, reports that, and reports when it has lost them, or when its input ends.
func hold(dir string, stranger bool, ttl time.Duration) error {
	store, err := fs.Open(dir, fs.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	o := lease.Options{TTL: ttl, Owner: lease.Owner{Words: "the helper"}}
	if stranger {
		o.Owner = foreign()
	}
	l := lease.New(store, o)
	ctx := context.Background()
	if _, err := l.TryLock(ctx, "run", refstore.Exclusive, []byte("the helper")); err != nil {
		return err
	}
	if _, err := l.TryClaim(ctx, [32]byte{1}, []byte("the helper's claim")); err != nil {
		return err
	}
	if err := l.Rely(ctx, name(1)); err != nil {
		return err
	}
	fmt.Println("ready")
	in := make(chan struct{})
	go func() {
		defer close(in)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}()
	select {
	case <-l.Lost():
		fmt.Println("lost")
	case <-in:
		fmt.Println("asked")
	}
	for _, err := range []error{l.Held(), l.Confirm(ctx)} {
		if !errors.Is(err, refstore.ErrLost) {
			fmt.Println("it holds:", err)
		}
	}
	if _, err := l.TryClaim(ctx, [32]byte{2}, nil); !errors.Is(err, refstore.ErrLost) {
		fmt.Println("it claims:", err)
	}
	return l.Close()
}

// helper starts another process and waits until it has its holds.
func helper(t *testing.T, dir, who string, ttl time.Duration) (cmd *exec.Cmd, next func() string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperEnv+"="+dir+"\n"+who+"\n"+ttl.String())
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next = func() string {
		if !lines.Scan() {
			return "the end"
		}
		return lines.Text()
	}
	if line := next(); line != "ready" {
		t.Fatalf("helper: %q", line)
	}
	return cmd, next
}

func (m *machine) takeFrom(t *testing.T) time.Duration {
	t.Helper()
	var l refstore.Lock
	took := m.patiently(t, suite.Stuck, func() (err error) {
		l, err = m.TryLock(t.Context(), "run", refstore.Exclusive, []byte("me"))
		return err
	})
	if got := string(l.Previous()); got != "the helper" {
		t.Errorf("previous holder: got %q", got)
	}
	if got := string(m.claim(t, 1, "me").Previous()); got != "the helper's claim" { // at the first attempt
		t.Errorf("previous claimant: got %q", got)
	}
	return took
}

func neighbour(t *testing.T, dir string, ttl time.Duration) *machine {
	t.Helper()
	m := &machine{wire: &wire{Store: openFS(t, dir)}}
	m.Leases = lease.New(m.wire, lease.Options{TTL: ttl, Owner: lease.Owner{Words: "the test"}})
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestKill: the holds of a killed process on this host are free at once.
func TestKill(t *testing.T) {
	if self, err := process.Self(); err != nil || self.BootID == "" {
		t.Skip("liveness is not known on this system; run on Linux or macOS")
	}
	dir := t.TempDir()
	m := neighbour(t, dir, longTTL)
	cmd, _ := helper(t, dir, "neighbour", longTTL)
	_, err := m.TryLock(t.Context(), "run", refstore.Exclusive, nil)
	var locked *refstore.LockedError
	if !errors.As(err, &locked) || string(locked.Holder) != "the helper" || locked.Pending != 0 {
		t.Errorf("beside a process of this host: got %v, want a LockedError that is sure", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, held, err := m.Holder(t.Context(), "run"); held || err != nil {
		t.Errorf("after its death: held %v, %v", held, err)
	}
	m.takeFrom(t)
}

// TestKillElsewhere: the holds of a killed process on another host are free after a lease.
func TestKillElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := neighbour(t, dir, shortTTL)
	cmd, _ := helper(t, dir, "stranger", shortTTL)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if took := m.takeFrom(t); took < shortTTL {
		t.Errorf("taken over after %v, want a lease of %v", took, shortTTL)
	}
}

// TestStop: a process that is stopped for longer than its lease notices that when it resumes, before it does anything.
func TestStop(t *testing.T) {
	for _, who := range []string{"neighbour", "stranger"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			m := neighbour(t, dir, shortTTL)
			cmd, next := helper(t, dir, who, shortTTL)
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if took := m.takeFrom(t); took < shortTTL {
				t.Errorf("taken over after %v, want a lease of %v", took, shortTTL)
			}
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if line := next(); line != "lost" {
				t.Errorf("a process that was stopped says %q, want that it is lost", line)
			}
			if line := next(); line != "the end" {
				t.Errorf("it goes on: %q", line)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("helper: %v", err)
			}
			if holder, held, err := m.Holder(t.Context(), "run"); string(holder) != "me" || !held || err != nil {
				t.Errorf("after it woke: holder %q, %v, %v, want me", holder, held, err)
			}
			if err := m.Confirm(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
