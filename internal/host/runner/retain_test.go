//go:build linux

package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

// threeCommands starts a worker with three commands: one that has ended, a plain one that expires, and a lasting one.
func threeCommands(t *testing.T, life, retain time.Duration) (worker *os.Process, sockets string, dirs map[string]string, members map[string]process.ID) {
	t.Helper()
	sockets, dirs, members = filepath.Join(t.TempDir(), "s"), map[string]string{}, map[string]process.ID{}
	var commands []workerCommand
	for name, script := range map[string]string{"ended": "exit 3", "plain": "sleep 1000", "lasting": untilGo + "exit 7"} {
		dirs[name] = t.TempDir()
		commands = append(commands, workerCommand{Identity: name, Script: started + script, Dir: dirs[name], Lasting: name == "lasting"})
	}
	cmd, _ := startWorker(t, workerConfig{Sockets: sockets, For: life, Retain: retain, Extend: 50 * time.Millisecond, Commands: commands})
	noted(t, dirs["ended"], "ending", new(ending))
	for _, name := range []string{"plain", "lasting"} {
		all := familyMembers(t, dirs[name], "main", "supervisor")
		members[name], members["supervisor"] = all["main"], all["supervisor"]
	}
	t.Cleanup(func() {
		if alive, _ := process.Alive(members["supervisor"]); alive {
			syscall.Kill(members["supervisor"].PID, syscall.SIGKILL)
		}
	})
	return cmd.Process, sockets, dirs, members
}

func gone(t *testing.T, is process.ID) {
	t.Helper()
	waitFor(t, "a process is gone", func() bool {
		alive, known := process.Alive(is)
		return known && !alive
	})
}

// After the time of their worker the ends of commands are kept, and lasting commands continue.
func TestRetained(t *testing.T) {
	worker, sockets, dirs, members := threeCommands(t, 500*time.Millisecond, time.Hour)
	if err := syscall.Kill(-worker.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, members["plain"])
	if alive, _ := process.Alive(members["lasting"]); !alive {
		t.Fatal("the lasting command was killed")
	}
	orphans := adopt(t, outliving(t, sockets, time.Hour))
	if len(orphans) != 3 {
		t.Fatalf("%d orphans, want 3", len(orphans))
	}
	touch(t, dirs["lasting"], "go")
	for name, exit := range map[string]int{"ended": 3, "lasting": 7} {
		if got, err := orphans[name].Wait(t.Context()); err != nil || got.ExitCode != exit || got.Cancelled {
			t.Errorf("%s: %+v, %v; want exit code %d", name, got, err, exit)
		}
	}
	if got, err := orphans["plain"].Wait(t.Context()); !errors.Is(err, runner.ErrExpired) || !got.Cancelled {
		t.Errorf("plain: %+v, %v; want ErrExpired", got, err)
	}
	for name, o := range orphans {
		if got := o.Expired(); got != (name == "plain") {
			t.Errorf("%s: it is %v that it was killed before it was adopted", name, got)
		}
		o.Release()
	}
	gone(t, members["supervisor"])
	if names := socketsIn(t, sockets); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// A lasting command continues while its worker is stopped, and its end reaches the worker.
func TestLastingBesideStopped(t *testing.T) {
	worker, _, dirs, members := threeCommands(t, 500*time.Millisecond, time.Hour)
	if err := syscall.Kill(worker.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	gone(t, members["plain"])
	touch(t, dirs["lasting"], "go")
	gone(t, members["lasting"])
	if err := syscall.Kill(worker.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var got ending
	noted(t, dirs["lasting"], "ending", &got)
	if got.Expired || got.Result.ExitCode != 7 {
		t.Errorf("lasting: %+v, want exit code 7", got)
	}
	if noted(t, dirs["plain"], "ending", &got); !got.Expired {
		t.Errorf("plain: %+v, want expired", got)
	}
}

// A command without an adopter is killed after the retention, or once its socket was removed.
func TestRetentionEnds(t *testing.T) {
	t.Run("over", func(t *testing.T) {
		worker, sockets, _, members := threeCommands(t, 300*time.Millisecond, 700*time.Millisecond)
		if err := syscall.Kill(-worker.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantDead(t, members)
		if names := socketsIn(t, sockets); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
	})
	t.Run("removed", func(t *testing.T) {
		suite.Thorough(t)
		worker, sockets, _, members := threeCommands(t, time.Hour, time.Hour)
		if err := syscall.Kill(-worker.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(sockets); err != nil {
			t.Fatal(err)
		}
		gone(t, members["supervisor"])
		wantDead(t, members)
	})
}

// After Leave another Supervisor of the same process can adopt the commands, and leave them too.
func TestLeave(t *testing.T) {
	sockets, dir := filepath.Join(t.TempDir(), "s"), t.TempDir()
	s := outliving(t, sockets, time.Hour)
	spec := shell(t, started+untilGo+"exit 7", dir)
	spec.Identity = "a/1"
	plain := shell(t, started+"sleep 1000", t.TempDir())
	ends := make(chan error, 2)
	for _, spec := range []runner.Spec{spec, plain} {
		go func() {
			_, err := s.Run(t.Context(), spec)
			ends <- err
		}()
	}
	members := familyMembers(t, dir, "main", "supervisor")
	killed := familyMembers(t, plain.Dir, "main")
	for range 2 {
		if err := s.Leave(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), spec); !errors.Is(err, runner.ErrClosed) {
			t.Errorf("a later run: %v, want ErrClosed", err)
		}
		for range cap(ends) {
			if err := <-ends; !errors.Is(err, runner.ErrLeft) {
				t.Errorf("the current run: %v, want ErrLeft", err)
			}
		}
		wantDead(t, killed)
		if alive, _ := process.Alive(members["main"]); !alive {
			t.Fatal("the command was killed")
		}
		s = outliving(t, sockets, time.Hour)
		o := adopt(t, s)["a/1"]
		ends = make(chan error, 1)
		go func() {
			_, err := o.Wait(t.Context())
			ends <- err
		}()
	}
	touch(t, dir, "go")
	if err := <-ends; err != nil {
		t.Errorf("the end: %v", err)
	}
}
