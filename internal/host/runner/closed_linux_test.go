//go:build amd64 || arm64

package runner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/room"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

// inRoom makes a spec run in a closed room of its own.
func inRoom(t testing.TB, spec runner.Spec) runner.Spec {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(base, "room")
	for _, name := range []string{"work", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec.Closed = &room.Room{Base: base, Folder: folder}
	spec.Dir = filepath.Join(folder, "work")
	return spec
}

// TestClosedEnds: a command ends in a closed room as it does in the open.
func TestClosedEnds(t *testing.T) {
	s := newSupervisor(t)
	for _, script := range []string{
		"true", "exit 7", "kill -TERM $$", "kill -KILL $$", "ulimit -c 0; kill -SEGV $$", "kill -KILL 0",
		"exec 0<&- 1>&- 2>&-; true", "(sleep 600 &); exit 3", "setsid sleep 600 & exit 0",
		"(sleep 0.02; kill -CONT $$) & kill -STOP $$; wait; exit 5",
	} {
		open, err := s.Run(t.Context(), shell(t, script, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		closed, err := s.Run(t.Context(), inRoom(t, shell(t, script, "")))
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		if open.ExitCode != closed.ExitCode || open.Signal != closed.Signal || closed.Straggler || closed.Ended.Before(closed.Started) {
			t.Errorf("%s: ended in the open with %+v, in a room with %+v", script, open, closed)
		}
	}
}

func TestClosedStops(t *testing.T) {
	s := newSupervisor(t)
	// stopped runs a script that traps the signal, with longer and longer timeouts as long as it has not got to its trap.
	stopped := func(script string, grace time.Duration) (r runner.Result, err error) {
		for timeout := 300 * time.Millisecond; timeout < suite.Stuck; timeout *= 2 {
			spec := inRoom(t, shell(t, script, ""))
			spec.Timeout, spec.Grace = timeout, grace
			if r, err = s.Run(t.Context(), spec); err != nil || r.Signal != syscall.SIGTERM {
				break
			}
		}
		return r, err
	}
	if r, err := stopped("trap 'exit 9' TERM; sleep 600 & wait", 0); err != nil || r.ExitCode != 9 || !r.TimedOut {
		t.Errorf("a timeout: %+v, %v", r, err)
	}
	if r, err := stopped("trap '' TERM; setsid sleep 600 & sleep 600", 100*time.Millisecond); err != nil || r.Signal != syscall.SIGKILL || !r.TimedOut || r.Straggler {
		t.Errorf("a timeout with a grace: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	spec := inRoom(t, shell(t, "sleep 600", ""))
	spec.Grace = -1
	spec.OnStart = func(process.ID) { cancel() }
	if r, err := s.Run(ctx, spec); err != nil || r.Signal != syscall.SIGKILL || !r.Cancelled {
		t.Errorf("a cancellation: %+v, %v", r, err)
	}
}

func TestClosedOutput(t *testing.T) {
	s := newSupervisor(t)
	spec := inRoom(t, shell(t, "pwd; echo $HOME; echo s3cr3t-value; cat in; echo x >out", ""))
	spec.Mask = []string{"s3cr3t-value"}
	if err := os.WriteFile(filepath.Join(spec.Dir, "in"), []byte("input\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := output(t, s, spec); got != "/e3/work\n\n***\ninput\n" {
		t.Errorf("printed %q", got)
	}
	if _, err := os.Stat(filepath.Join(spec.Dir, "out")); err != nil {
		t.Error(err)
	}
	spec = inRoom(t, runner.Spec{Argv: []string{"cat"}, Path: "/bin/cat", Env: []string{"PATH=/bin"}})
	spec.Redirects = []runner.Redirect{{FD: 0, Path: "in"}, {FD: 1, Path: "out", Mode: runner.Truncate}}
	if err := os.WriteFile(filepath.Join(spec.Dir, "in"), []byte("input\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, s, spec)
	if text, err := os.ReadFile(filepath.Join(spec.Dir, "out")); string(text) != "input\n" || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
}

func TestClosedCannotStart(t *testing.T) {
	s := newSupervisor(t)
	var failed *runner.StartError
	for argv, want := range map[string]string{"no-such-program": "system's folders only", "./text": "not executable"} {
		spec := inRoom(t, runner.Spec{Argv: []string{argv}, Env: []string{"PATH=/usr/bin:/bin"}})
		if err := os.WriteFile(filepath.Join(spec.Dir, "text"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), spec); !errors.As(err, &failed) || failed.Op != runner.OpExec || !strings.Contains(err.Error(), want) || runner.NoRoom(err) {
			t.Errorf("%s: %v", argv, err)
		}
	}
	spec := inRoom(t, runner.Spec{Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}})
	spec.Closed.Folder += "/missing"
	if _, err := s.Run(t.Context(), spec); !errors.As(err, &failed) || failed.Op != runner.OpClosed || runner.NoRoom(err) {
		t.Errorf("a missing folder: %v", err)
	}
}

// TestClosedConcurrent: rooms of one supervisor do not share what their commands write.
func TestClosedConcurrent(t *testing.T) {
	s := newSupervisor(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 12 {
		folder := filepath.Join(base, string(rune('a'+i)))
		for _, name := range []string{"work", "home", "tmp"} {
			if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		group.Go(func() {
			for range 5 {
				spec := shell(t, "echo >>/tmp/x; echo >>/dev/shm/x; [ $(cat /dev/shm/x | wc -l) = 1 ] && rm /tmp/x && [ -z \"$(ls -A /tmp)\" ]", filepath.Join(folder, "work"))
				spec.Closed = &room.Room{Base: base, Folder: folder}
				if r, err := s.Run(t.Context(), spec); err != nil || !r.Success() {
					t.Errorf("%+v, %v", r, err)
				}
			}
		})
	}
	group.Wait()
}

// TestClosedDiesWithSupervisor: a room ends with the supervisor, even if that is killed.
func TestClosedDiesWithSupervisor(t *testing.T) {
	s := newSupervisor(t)
	spec := inRoom(t, shell(t, "setsid setsid env -i sleep 600 & echo >up; sleep 600", ""))
	var first process.ID
	spec.OnStart = func(p process.ID) {
		first = p
		waitFor(t, "the command to start", func() bool { return exists(spec.Dir, "up") })
		stat, err := process.ReadStat(p.PID)
		if err != nil {
			t.Error(err)
			return
		}
		_ = syscall.Kill(stat.Parent, syscall.SIGKILL)
	}
	if _, err := s.Run(t.Context(), spec); !isLost(err) {
		t.Errorf("the error is %v", err)
	}
	waitFor(t, "process 1 to end", func() bool { _, err := process.ReadStat(first.PID); return err != nil })
}

// TestClosedAdopted: a command in a room outlives the client, as others do.
func TestClosedAdopted(t *testing.T) {
	sockets := t.TempDir()
	s := outliving(t, sockets, time.Minute)
	spec := inRoom(t, shell(t, "echo >up; while [ ! -e go ]; do sleep 0.01; done; exit 6", ""))
	spec.Identity, spec.State = "job", []byte("state")
	left := make(chan error)
	go func() {
		_, err := s.Run(context.Background(), spec)
		left <- err
	}()
	waitFor(t, "the command to start", func() bool { return exists(spec.Dir, "up") })
	if err := s.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := <-left; !errors.Is(err, runner.ErrLeft) {
		t.Errorf("the error is %v", err)
	}
	orphan := adopt(t, outliving(t, sockets, time.Minute))["job"]
	if orphan == nil {
		t.Fatal("nothing was adopted")
	}
	touch(t, spec.Dir, "go")
	if r, err := orphan.Wait(t.Context()); err != nil || r.ExitCode != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	orphan.Release()
}
