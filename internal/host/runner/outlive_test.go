//go:build linux

package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

// workerName is the argv[0] under which the test binary is a worker to be killed.
const workerName = "runner-test-worker"

// workerConfig tells such a process what to do: adopt (optionally), run the commands, write their ends to files, and
// stay.
type workerConfig struct {
	Sockets  string
	For      time.Duration
	Retain   time.Duration
	Extend   time.Duration // how often; 0: never
	Keep     string        // a file to lock, for Outlive.Keep
	Spawners int
	Adopt    bool // adopt, and wait for the ends
	Dying    bool // end the main thread once the file die is there: the process is a zombie with its files open
	Repeat   int  // how often to run the commands, in sequence, under numbered identities
	Commands []workerCommand
}

type workerCommand struct {
	Identity, State string
	Script, Dir     string
	Mask            []string
	Timeout         time.Duration
	Lasting         bool
	Release         bool
}

// ending is a worker's note of the end of a Run.
type ending struct {
	Result  runner.Result
	Err     string
	Expired bool
}

// workerMain reads its configuration from the folder dir, and writes its files there.
func workerMain(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return err
	}
	var config workerConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	outlive := &runner.Outlive{Dir: config.Sockets, For: config.For, Retain: config.Retain}
	if config.Keep != "" {
		file, err := os.Create(config.Keep)
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return err
		}
		outlive.Keep = []*os.File{file}
	}
	s, err := runner.New(runner.Options{Outlive: outlive, Spawners: config.Spawners})
	if err != nil {
		return err
	}
	failed := make(chan error)
	if config.Extend > 0 {
		go func() {
			for range time.Tick(config.Extend) {
				if err := s.Extend(); err != nil {
					failed <- err
				}
			}
		}()
	}
	if config.Adopt {
		orphans, err := s.Adopt(context.Background())
		if err != nil {
			return err
		}
		for _, o := range orphans {
			go o.Wait(context.Background())
		}
		if err := note(dir, "adopted", len(orphans)); err != nil {
			return err
		}
	}
	for _, command := range config.Commands {
		go func() {
			for i := range config.Repeat - 1 {
				_, err := s.Run(context.Background(), runner.Spec{Argv: []string{"/bin/true"}, Dir: command.Dir, Identity: fmt.Sprint(command.Identity, i)})
				if err != nil {
					failed <- err
				}
			}
			if config.Repeat > 0 {
				command.Identity = fmt.Sprint(command.Identity, config.Repeat-1)
			}
			failed <- runWorkerCommand(s, command)
		}()
	}
	var die chan struct{}
	if config.Dying {
		die = make(chan struct{})
		go func() {
			for _, err := os.Stat(filepath.Join(dir, "die")); err != nil; _, err = os.Stat(filepath.Join(dir, "die")) {
				time.Sleep(time.Millisecond)
			}
			close(die)
		}()
	}
	for {
		select {
		case err := <-failed:
			if err != nil {
				return err
			}
		case <-die:
			// The kernel shows such a process as a zombie, although its files close only with its last thread. This is how a
			// killed process with many threads looks for a moment.
			syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
		}
	}
}

// A worker's main function stays on the main thread, which it may have to end.
func init() {
	if os.Args[0] == workerName {
		runtime.LockOSThread()
	}
}

func runWorkerCommand(s *runner.Supervisor, c workerCommand) error {
	out, err := os.Create(filepath.Join(c.Dir, "out"))
	if err != nil {
		return err
	}
	marker := "E3_EXECUTION=" + c.Dir
	result, runErr := s.Run(context.Background(), runner.Spec{
		Argv: []string{"bash", "-c", c.Script}, Dir: c.Dir, Stdout: out, Stderr: out,
		Env: []string{"PATH=" + os.Getenv("PATH"), marker}, Marker: marker,
		Mask: c.Mask, Timeout: c.Timeout, Identity: c.Identity, State: []byte(c.State), Lasting: c.Lasting,
	})
	if c.Release {
		s.Release(c.Identity)
		// With one lane, the release has arrived when this ends.
		if _, err := s.Run(context.Background(), runner.Spec{Argv: []string{"/bin/true"}, Dir: c.Dir}); err != nil {
			return err
		}
	}
	return note(c.Dir, "ending", ending{result, fmt.Sprint(runErr), errors.Is(runErr, runner.ErrExpired)})
}

// note writes a file atomically.
func note(dir, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, "."+name)
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, name))
}

// noted waits for a note.
func noted(t *testing.T, dir, name string, value any) {
	t.Helper()
	waitFor(t, name+" is written", func() bool { return exists(dir, name) })
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// startWorker starts a worker in its own process group, and also returns its folder.
func startWorker(t *testing.T, config workerConfig) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	if err := note(dir, "config", config); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{workerName, dir},
		Stdout:      os.Stderr,
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, cmd) })
	return cmd, dir
}

// kill kills a worker and its group, and waits for its end.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState == nil {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		cmd.Wait()
	}
}

// outliving returns a Supervisor over the folder of sockets.
func outliving(t *testing.T, sockets string, life time.Duration) *runner.Supervisor {
	t.Helper()
	s, err := runner.New(runner.Options{Outlive: &runner.Outlive{Dir: sockets, For: life}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// adopt waits until commands can be adopted, and extends them.
func adopt(t *testing.T, s *runner.Supervisor) map[string]*runner.Orphan {
	t.Helper()
	byIdentity := make(map[string]*runner.Orphan)
	waitFor(t, "something can be adopted", func() bool {
		orphans, err := s.Adopt(t.Context())
		if err != nil && !errors.Is(err, runner.ErrAdopted) { // the end of the previous adopter may not be noticed yet
			t.Fatal(err)
		}
		for _, o := range orphans {
			byIdentity[o.Identity] = o
		}
		return len(orphans) > 0
	})
	if err := s.Extend(); err != nil {
		t.Fatal(err)
	}
	return byIdentity
}

// socketsIn lists the sockets.
func socketsIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// started begins each script: it writes the pids of the script and of its supervisor.
const started = "echo $PPID > supervisor; echo $$ > main; "

// untilGo waits for the file go.
const untilGo = "until [[ -e go ]]; do sleep 0.01; done; "

// touch makes a file.
func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func isLocked(t *testing.T, path string) bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return false
	case syscall.EWOULDBLOCK:
		return true
	default:
		t.Fatal(err)
		return false
	}
}

// A killed worker leaves three commands to adopt: one that runs, one that ended without a release, and one that ends
// before it is adopted. Released commands, and those without an identity, cannot be adopted.
func TestAdopt(t *testing.T) {
	base := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 12)) // longer than a socket's address
	lock := filepath.Join(t.TempDir(), "lock")
	dirs := make(map[string]string)
	command := func(name, script string) workerCommand {
		dirs[name] = t.TempDir()
		return workerCommand{Identity: name, State: "state of " + name, Script: started + script, Dir: dirs[name]}
	}
	released := command("released", "true")
	released.Release = true
	plain := command("plain", family)
	plain.Identity = ""
	worker, _ := startWorker(t, workerConfig{Sockets: base, For: time.Hour, Keep: lock, Spawners: 1, Commands: []workerCommand{
		command("running", `echo begin; x=$(head -c 64000000 /dev/zero | tr '\0' x); echo held > held; `+untilGo+`echo end >&2; exit 7`),
		command("before", "echo before; exit 3"),
		command("between", untilGo+"echo between; kill -KILL $$"),
		released, plain,
	}})
	var first ending
	noted(t, dirs["before"], "ending", &first)
	noted(t, dirs["released"], "ending", new(ending))
	running := familyMembers(t, dirs["running"], "main", "supervisor")
	between := familyMembers(t, dirs["between"], "main")
	plainMembers := familyMembers(t, dirs["plain"], familyNames...)
	waitFor(t, "the command holds memory", func() bool { return exists(dirs["running"], "held") })

	s := outliving(t, base, time.Hour)
	if orphans, err := s.Adopt(t.Context()); len(orphans) != 0 || err != nil {
		t.Errorf("while the worker runs %d orphans, %v; want none", len(orphans), err)
	}
	kill(t, worker)
	delete(plainMembers, "supervisor")
	unmarked := plainMembers["unmarked"] // it may belong to a command that continues
	delete(plainMembers, "unmarked")
	wantDead(t, plainMembers)
	touch(t, dirs["between"], "go")
	wantDead(t, between)
	if !isLocked(t, lock) {
		t.Error("the supervisor has not kept the lock")
	}

	orphans := adopt(t, s)
	if len(orphans) != 3 {
		t.Errorf("orphans %v, want 3", orphans)
	}
	for name, o := range orphans {
		if want := "state of " + name; string(o.State) != want {
			t.Errorf("%s: state %q, want %q", name, o.State, want)
		}
		if alive, _ := process.Alive(o.Process); alive != (name == "running") {
			t.Errorf("%s: process %+v alive %v", name, o.Process, alive)
		}
	}
	if got := orphans["running"].Process; got != running["main"] {
		t.Errorf("process %+v, want %+v", got, running["main"])
	}
	touch(t, dirs["running"], "go")
	for name, want := range map[string]struct {
		exit   int
		signal syscall.Signal
		out    string
	}{
		"running": {7, 0, "begin\nend\n"},
		"before":  {3, 0, "before\n"},
		"between": {-1, syscall.SIGKILL, "between\n"},
	} {
		got, err := orphans[name].Wait(t.Context())
		if err != nil || got.ExitCode != want.exit || got.Signal != want.signal || got.Cancelled || got.TimedOut {
			t.Errorf("%s: %+v, %v; want exit code %d, signal %d", name, got, err, want.exit, want.signal)
		}
		out, err := os.ReadFile(filepath.Join(dirs[name], "out"))
		if err != nil || string(out) != want.out {
			t.Errorf("%s: output %q, %v; want %q", name, out, err, want.out)
		}
		if got.Ended.Before(got.Started) || time.Since(got.Started) > time.Minute {
			t.Errorf("%s: from %v to %v", name, got.Started, got.Ended)
		}
		switch {
		case name == "running" && (got.PeakRSS < 64_000_000 || got.UserCPU <= 0 || got.PID != running["main"].PID):
			t.Errorf("%s: %+v, want the process that held 64 MB", name, got)
		case name == "before" && (got.PID != first.Result.PID || !got.Ended.Equal(first.Result.Ended) || got.UserCPU != first.Result.UserCPU):
			t.Errorf("%s: %+v, want %+v", name, got, first.Result)
		}
	}

	orphans["before"].Release()
	orphans["between"].Release()
	if alive, _ := process.Alive(running["supervisor"]); !alive {
		t.Error("the supervisor has ended before all was released")
	}
	orphans["running"].Release()
	wantDead(t, map[string]process.ID{"supervisor": running["supervisor"], "unmarked": unmarked})
	waitFor(t, "the lock is free", func() bool { return !isLocked(t, lock) })
	if names := socketsIn(t, base); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestDeadline(t *testing.T) {
	// Without an adopter all processes are killed and the supervisor ends.
	t.Run("killed", func(t *testing.T) {
		const life = 1500 * time.Millisecond
		suite.Soon(t, life+2*time.Second, func() time.Duration {
			sockets, dir := filepath.Join(t.TempDir(), "s"), t.TempDir()
			worker, _ := startWorker(t, workerConfig{Sockets: sockets, For: life, Extend: 50 * time.Millisecond,
				Commands: []workerCommand{{Identity: "a/1", Script: family, Dir: dir}}})
			members := familyMembers(t, dir, familyNames...)
			killed := time.Now()
			kill(t, worker)
			for name, member := range members {
				if alive, _ := process.Alive(member); !alive && time.Since(killed) < life/2 {
					t.Errorf("%s died with the worker", name)
				}
			}
			wantDead(t, members)
			took := time.Since(killed)
			if names := socketsIn(t, sockets); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
			return took
		})
	})

	// A stopped worker gets ErrExpired when it continues.
	t.Run("stopped", func(t *testing.T) {
		sockets, dir := filepath.Join(t.TempDir(), "s"), t.TempDir()
		worker, _ := startWorker(t, workerConfig{Sockets: sockets, For: time.Second, Extend: 50 * time.Millisecond,
			Commands: []workerCommand{{Identity: "a/1", Script: family, Dir: dir}}})
		members := familyMembers(t, dir, familyNames...)
		if err := syscall.Kill(worker.Process.Pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		supervisor := members["supervisor"]
		delete(members, "supervisor")
		waitFor(t, "the main command is dead", func() bool {
			alive, known := process.Alive(members["main"])
			return known && !alive
		})
		wantDead(t, members)
		if alive, _ := process.Alive(supervisor); !alive {
			t.Error("the supervisor has ended")
		}
		if exists(dir, "ending") {
			t.Error("the worker was not stopped")
		}
		if err := syscall.Kill(worker.Process.Pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		var got ending
		noted(t, dir, "ending", &got)
		if !got.Expired || !got.Result.Cancelled || got.Result.Signal != syscall.SIGKILL {
			t.Errorf("%+v, want expired", got)
		}
	})

	t.Run("not extended", func(t *testing.T) {
		s := outliving(t, filepath.Join(t.TempDir(), "s"), 200*time.Millisecond)
		spec := shell(t, "trap '' TERM; sleep 1000; sleep 1000", t.TempDir())
		spec.Identity = "a/1"
		if got, err := s.Run(t.Context(), spec); !errors.Is(err, runner.ErrExpired) || !got.Cancelled {
			t.Errorf("%+v, %v; want ErrExpired and cancelled", got, err)
		}
		// No command with an identity starts until it is extended; others do.
		spec.Identity = "a/2"
		spec.Argv = []string{"/bin/true"}
		if got, err := s.Run(t.Context(), spec); !errors.Is(err, runner.ErrExpired) || got.PID != 0 {
			t.Errorf("%+v, %v; want ErrExpired and no process", got, err)
		}
		spec.Identity = ""
		if got, err := s.Run(t.Context(), spec); err != nil || !got.Success() {
			t.Errorf("without an identity: %+v, %v", got, err)
		}
		// An extension from too long ago has no effect.
		if err := s.ExtendFrom(runner.Elapsed() - time.Second); err != nil {
			t.Error(err)
		}
		spec.Identity = "a/3"
		if _, err := s.Run(t.Context(), spec); !errors.Is(err, runner.ErrExpired) {
			t.Errorf("after an old extension: %v, want ErrExpired", err)
		}
		if err := s.Extend(); err != nil {
			t.Error(err)
		}
		spec.Identity = "a/4"
		if got, err := s.Run(t.Context(), spec); err != nil || !got.Success() {
			t.Errorf("after Extend: %+v, %v", got, err)
		}
	})

	t.Run("adopted and not extended", func(t *testing.T) {
		sockets, dir := filepath.Join(t.TempDir(), "s"), t.TempDir()
		worker, _ := startWorker(t, workerConfig{Sockets: sockets, For: 2 * time.Second,
			Commands: []workerCommand{{Identity: "a/1", Script: family, Dir: dir}}})
		members := familyMembers(t, dir, familyNames...)
		kill(t, worker)
		s := outliving(t, sockets, time.Hour)
		orphans, err := s.Adopt(t.Context())
		if err != nil || len(orphans) != 1 {
			t.Fatalf("%d orphans, %v; want 1", len(orphans), err)
		}
		if got, err := orphans[0].Wait(t.Context()); !errors.Is(err, runner.ErrExpired) || !got.Cancelled {
			t.Errorf("%+v, %v; want ErrExpired and cancelled", got, err)
		}
		wantDead(t, members)
	})
}
