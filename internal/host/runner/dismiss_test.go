//go:build linux

package runner_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
)

// demanded adopts once the owner of a lost command is found to be without word.
func demanded(t *testing.T, s *runner.Supervisor, lost string) map[string]*runner.Orphan {
	t.Helper()
	found := make(map[string]*runner.Orphan)
	waitFor(t, "the commands are adopted", func() bool {
		orphans, err := s.Adopt(t.Context(), lost)
		if err != nil && !errors.Is(err, runner.ErrAdopted) {
			t.Fatal(err)
		}
		for _, o := range orphans {
			found[o.Identity] = o
		}
		return len(found) > 0
	})
	return found
}

// The commands of an owner that stands still, which another process knows to have lost them, are adopted with their
// ends. Once the owner goes on, its runs and waits fail with ErrLeft, and it ends no command.
func TestDismissed(t *testing.T) {
	const life = 2 * time.Second
	for _, name := range []string{"client", "adopter"} {
		t.Run(name, func(t *testing.T) {
			sockets, running, ended := filepath.Join(t.TempDir(), "s"), t.TempDir(), t.TempDir()
			owner, _ := startWorker(t, workerConfig{Sockets: sockets, For: life, Extend: life / 10, Retain: time.Hour, Commands: []workerCommand{
				{Identity: "running", Script: started + untilGo + "exit 7", Dir: running, Lasting: true},
				{Identity: "ended", Script: started + untilGo + "exit 3", Dir: ended, Lasting: true},
			}})
			members := familyMembers(t, running, "main", "supervisor")
			last := familyMembers(t, ended, "main")["main"]
			if name == "adopter" {
				kill(t, owner)
				var dir string
				owner, dir = startWorker(t, workerConfig{Sockets: sockets, For: life, Extend: life / 10, Retain: time.Hour, Adopt: true})
				var count int
				noted(t, dir, "adopted", &count)
			}
			signal := func(s syscall.Signal) {
				if err := syscall.Kill(owner.Process.Pid, s); err != nil {
					t.Fatal(err)
				}
			}
			s := outliving(t, sockets, time.Hour)
			if orphans, err := s.Adopt(t.Context(), "running"); len(orphans) > 0 {
				t.Fatalf("of an owner that extends them, %d are adopted, %v", len(orphans), err)
			}
			signal(syscall.SIGSTOP)
			touch(t, ended, "go")
			gone(t, last)
			if orphans, err := s.Adopt(t.Context(), "another"); len(orphans) > 0 {
				t.Fatalf("%d are adopted without need, %v", len(orphans), err)
			}
			found := demanded(t, s, "running")
			if len(found) != 2 {
				t.Fatalf("adopted: %v", found)
			}
			if late, err := outliving(t, sockets, time.Hour).Adopt(t.Context(), "running"); len(late) > 0 || !errors.Is(err, runner.ErrAdopted) {
				t.Errorf("another one adopts %d, %v; want ErrAdopted", len(late), err)
			}
			signal(syscall.SIGCONT)
			if name == "client" {
				var got ending
				if noted(t, running, "ending", &got); got.Err != runner.ErrLeft.Error() {
					t.Errorf("the owner has learnt %+v, want ErrLeft", got)
				}
			}
			if got, err := found["ended"].Wait(t.Context()); err != nil || got.ExitCode != 3 {
				t.Errorf("ended: %+v, %v; want exit code 3", got, err)
			}
			if alive, _ := process.Alive(members["main"]); !alive {
				t.Error("the owner has ended the command")
			}
			touch(t, running, "go")
			if got, err := found["running"].Wait(t.Context()); err != nil || got.ExitCode != 7 {
				t.Errorf("running: %+v, %v; want exit code 7", got, err)
			}
			for _, o := range found {
				o.Release()
			}
			gone(t, members["supervisor"])
		})
	}
}
