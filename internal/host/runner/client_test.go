//go:build linux

package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

// clientName is the argv[0] under which the test binary is an e3 process to be killed: it runs a script and waits for
// it.
const clientName = "runner-test-client"

func TestMain(m *testing.M) {
	runner.Main()
	if os.Args[0] == clientName {
		os.Exit(clientMain(os.Args[1:]))
	}
	for name, main := range map[string]func(string) error{workerName: workerMain, strangerName: strangerMain} {
		if os.Args[0] == name {
			if err := main(os.Args[1]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// clientMain runs args[0] with bash in the folder args[1] and prints the result.
func clientMain(args []string) int {
	s, err := runner.New(runner.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	marker := "E3_EXECUTION=" + args[1]
	result, err := s.Run(context.Background(), runner.Spec{
		Argv:   []string{"bash", "-c", args[0]},
		Dir:    args[1],
		Env:    []string{"PATH=" + os.Getenv("PATH"), marker},
		Marker: marker,
	})
	fmt.Printf("%+v %v\n", result, err)
	return 0
}

// startClient starts such a process in its own process group.
func startClient(t *testing.T, script, dir string) *exec.Cmd {
	t.Helper()
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{clientName, script, dir},
		Stdout:      os.Stderr,
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// family starts processes that are hard to find: a child in the background, one in its own session, one that is forked
// twice, and one without the marker. Each writes its pid, and so does the script.
const family = `
	trap '' TERM
	(trap '' TERM HUP; echo $BASHPID > background; exec sleep 1000) &
	setsid bash -c 'trap "" TERM HUP; echo $$ > session; exec sleep 1000' &
	(setsid bash -c '(trap "" TERM HUP; echo $BASHPID > twice; exec sleep 1000) & exec true' &) 
	setsid env -i bash -c '(echo $BASHPID > unmarked; exec /bin/sleep 1000) & exec /bin/true' &
	echo $PPID > supervisor
	echo $$ > main
	wait
	sleep 1000
`

var familyNames = []string{"background", "session", "twice", "unmarked", "supervisor", "main"}

// waitFor polls until the condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(suite.Stuck)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("after %v still not: %s", suite.Stuck, what)
		case <-tick.C:
		}
	}
}

// familyMembers waits until all names are written to dir and returns the processes.
func familyMembers(t *testing.T, dir string, names ...string) map[string]process.ID {
	t.Helper()
	members := make(map[string]process.ID)
	for _, name := range names {
		waitFor(t, name+" runs", func() bool {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.HasSuffix(string(text), "\n") {
				return false
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			members[name], err = process.Lookup(pid)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return true
		})
	}
	return members
}

// wantDead fails if a member lives for more than two seconds.
func wantDead(t *testing.T, members map[string]process.ID) {
	t.Helper()
	for name, member := range members {
		waitFor(t, name+" is dead", func() bool {
			alive, known := process.Alive(member)
			return known && !alive
		})
	}
}

func TestClientKilled(t *testing.T) {
	t.Run("process", func(t *testing.T) {
		dir := t.TempDir()
		client := startClient(t, family, dir)
		members := familyMembers(t, dir, familyNames...)
		if err := client.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wantDead(t, members)
	})
	t.Run("group", func(t *testing.T) {
		dir := t.TempDir()
		client := startClient(t, family, dir)
		members := familyMembers(t, dir, familyNames...)
		if err := syscall.Kill(-client.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantDead(t, members)
	})
	// The terminal sends HUP and Ctrl-C to whole groups or sessions.
	t.Run("supervisor survives signals", func(t *testing.T) {
		dir := t.TempDir()
		client := startClient(t, family, dir)
		members := familyMembers(t, dir, familyNames...)
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			if err := syscall.Kill(members["supervisor"].PID, sig); err != nil {
				t.Fatal(err)
			}
		}
		if alive, known := process.Alive(members["supervisor"]); !alive || !known {
			t.Errorf("supervisor alive = %v, %v; want true, true", alive, known)
		}
		if err := client.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wantDead(t, members)
	})
}

func TestSupervisorKilled(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t)
	type outcome struct {
		result runner.Result
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		spec := shell(t, family, dir)
		result, err := s.Run(t.Context(), spec)
		ended <- outcome{result, err}
	}()
	members := familyMembers(t, dir, familyNames...)
	if err := syscall.Kill(members["supervisor"].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	if !isLost(got.err) {
		t.Errorf("error = %v, want ErrSupervisorLost", got.err)
	} else if !strings.Contains(got.err.Error(), "signal: killed") {
		t.Errorf("error = %q, which does not say how the supervisor ended", got.err)
	}
	// unmarked left its session and dropped its marker: out of reach, as documented.
	if err := syscall.Kill(members["unmarked"].PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	wantDead(t, members)

	result, err := s.Run(t.Context(), shell(t, "exit 3", dir))
	if err != nil || result.ExitCode != 3 {
		t.Errorf("run after the loss: exit code %d, error %v; want 3 from a new supervisor", result.ExitCode, err)
	}
}

// The error after a crash of the supervisor quotes its stderr.
func TestSupervisorCrashed(t *testing.T) {
	s := newSupervisor(t)
	_, err := s.Run(t.Context(), shell(t, `kill -ABRT $PPID; sleep 1000`, t.TempDir()))
	if !isLost(err) || !strings.Contains(err.Error(), "SIGABRT: abort") {
		t.Errorf("error = %v, want ErrSupervisorLost with the reason", err)
	}
}

// A command may kill the group of its parent, which is the supervisor's.
func TestCommandKillsParentGroup(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	_, err := s.Run(t.Context(), shell(t, `kill -9 -- -$PPID; sleep 1000`, dir))
	if !isLost(err) {
		t.Errorf("error = %v, want ErrSupervisorLost", err)
	}
}

func TestCloseKillsAll(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t)
	ended := make(chan runner.Result, 1)
	go func() {
		result, err := s.Run(context.Background(), shell(t, family, dir))
		if err != nil {
			t.Error(err)
		}
		ended <- result
	}()
	members := familyMembers(t, dir, familyNames...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, member := range members {
		if alive, known := process.Alive(member); alive || !known {
			t.Errorf("after Close %s is alive = %v, known = %v; want false, true", name, alive, known)
		}
	}
	if got := <-ended; !got.Cancelled || got.Signal != syscall.SIGKILL {
		t.Errorf("result = %+v, want cancelled by SIGKILL", got)
	}
	if _, err := s.Run(t.Context(), shell(t, "true", dir)); !isClosed(err) {
		t.Errorf("run after Close: %v, want ErrClosed", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// The first command may start while the supervisor itself is still starting.
func TestFirstCommandInheritsNothing(t *testing.T) {
	for range 30 {
		s, err := runner.New(runner.Options{Spawners: 8})
		if err != nil {
			t.Fatal(err)
		}
		spec := shell(t, "echo /proc/$$/fd/*", t.TempDir())
		got := strings.Fields(output(t, s, spec))
		for i := range got {
			got[i] = filepath.Base(got[i])
		}
		if strings.Join(got, " ") != "0 1 2" && strings.Join(got, " ") != "0 1 2 3" {
			t.Errorf("descriptors %v, want 0 1 2, and 3 for reading the folder", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Signals that e3's own parent ignored, and descriptors that it left open, do not reach the commands.
func TestInheritedStateIsDropped(t *testing.T) {
	if os.Getenv("RUNNER_TEST_INNER") == "" {
		signals := []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGPIPE}
		signal.Ignore(signals...)
		defer signal.Reset(signals...)
		leaked := t.TempDir()
		leak, err := os.Open(leaked)
		if err != nil {
			t.Fatal(err)
		}
		defer leak.Close()
		inner := exec.Command("/proc/self/exe", "-test.run=^TestInheritedStateIsDropped$", "-test.v")
		inner.Env = append(os.Environ(), "RUNNER_TEST_INNER="+leaked)
		inner.ExtraFiles = []*os.File{leak, leak, leak, leak, leak, leak, leak, leak, leak, leak}
		if out, err := inner.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("inner test: %v\n%s", err, out)
		}
		return
	}
	syscall.Umask(0o077)
	s := newSupervisor(t)
	spec := shell(t, `
		cat /proc/self/status | grep -E '^Sig(Blk|Ign|Cgt):'
		ls /proc/self/fd
		ls -l /proc/$PPID/fd | grep -c "$LEAK"
		umask
		read -r line; echo "stdin: $?"`, t.TempDir())
	spec.Env = append(spec.Env, "LEAK="+os.Getenv("RUNNER_TEST_INNER"))
	got := output(t, s, spec)
	want := `SigBlk:	0000000000000000
SigIgn:	0000000000000000
SigCgt:	0000000000000000
0
1
2
3
0
0022
stdin: 1
`
	// Descriptor 3 is the folder that ls itself reads.
	if got != want {
		t.Errorf("a command sees\n%s\nwant\n%s", got, want)
	}
}
