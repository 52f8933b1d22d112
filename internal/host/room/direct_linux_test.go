//go:build amd64 || arm64

package room

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// seen is a script that prints what a process inherits.
const seen = `grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ulimit -S -n; ulimit -H -n; pwd; ls -l /proc/self/fd | grep -c -- '->'; echo "$A $#"; cut -d' ' -f5 /proc/$$/stat | grep -c "^$$\$"`

// startBoth runs seen by StartDirect and by ForkExec, and returns what it printed.
func startBoth(t *testing.T) (open, fork string) {
	t.Helper()
	dir := t.TempDir()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	run := func(name string, start func(*Spec) (int, error)) string {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fd := int(f.Fd())
		spec := &Spec{Paths: []string{"/bin/sh"}, Argv: []string{"sh", "-c", seen, "sh", "x", ""}, Env: []string{"A=b"}, Dir: dir, Files: [3]int{null, fd, fd}}
		pid, err := start(spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
			t.Errorf("%s ended with %v, %v", name, status, err)
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	open = run("open", func(s *Spec) (int, error) {
		pid, pidfd, err := StartDirect(s)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the kernel or a filter in front of it has no clone3 that resets signals: run it on Linux 5.5 or later")
		}
		if err == nil {
			unix.Close(pidfd)
		}
		return pid, err
	})
	fork = run("fork", func(s *Spec) (int, error) {
		files := []uintptr{uintptr(s.Files[0]), uintptr(s.Files[1]), uintptr(s.Files[2])}
		return syscall.ForkExec(s.Paths[0], s.Argv, &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}})
	})
	return open, fork
}

func TestACommandInheritsWhatForkExecGivesIt(t *testing.T) {
	open, fork := startBoth(t)
	if open != fork || !strings.Contains(open, "SigCgt") {
		t.Errorf("a command sees\n%s\nand of ForkExec\n%s", open, fork)
	}
}

// TestACommandGetsTheLimitOfOpenFiles runs the test above in a process that may open fewer files.
func TestACommandGetsTheLimitOfOpenFiles(t *testing.T) {
	if os.Getenv("E3_TEST_LIMITED") != "" {
		open, fork := startBoth(t)
		if open != fork || !strings.Contains(open, "\n99\n") {
			t.Errorf("a command sees\n%s\nand of ForkExec\n%s", open, fork)
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -S -n 99 && exec "$0" -test.run TestACommandGetsTheLimitOfOpenFiles`, exe)
	cmd.Env = append(os.Environ(), "E3_TEST_LIMITED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with a limit of 99: %v\n%s", err, out)
	}
}

func TestACommandThatCannotStartLeavesNothing(t *testing.T) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("echo a\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, dir string
		want      error
	}{
		{"/nowhere/at/all", "/", unix.ENOENT},
		{"/bin/sh", "/nowhere", unix.ENOENT},
		{"/proc", "/", unix.EACCES},
		{plain, "/", unix.ENOEXEC},
		{"/bin/sh\x00", "/", unix.EINVAL},
	} {
		before := descriptorsInUse(t)
		_, _, err := StartDirect(&Spec{Paths: []string{c.path}, Argv: []string{"x"}, Dir: c.dir, Files: [3]int{null, null, null}})
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the kernel or a filter in front of it has no clone3 that resets signals: run it on Linux 5.5 or later")
		}
		if !errors.Is(err, c.want) {
			t.Errorf("start of %q in %q: %v, want %v", c.path, c.dir, err, c.want)
		}
		if after := descriptorsInUse(t); after != before {
			t.Errorf("start of %q in %q left %d descriptors", c.path, c.dir, after-before)
		}
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid > 0 {
			t.Errorf("start of %q in %q left a process: %d, %v", c.path, c.dir, pid, err)
		}
	}
}

func descriptorsInUse(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
