package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// oomInside is set if the test binary runs in the cgroup that TestOOM made.
const oomInside = "E3_TEST_RUNNER_IN_CGROUP"

// eat needs 2 GiB of memory. It succeeds where no limit is lower.
const eat = "head -c 2G /dev/zero | tail"

// TestOOM runs itself again in a memory cgroup, where the kernel kills its commands.
func TestOOM(t *testing.T) {
	if os.Getenv(oomInside) != "" {
		testOOM(t)
		return
	}
	cgroup := memoryCgroup(t, 128<<20) // which each case fills
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, cgroup,
		program, "-test.run=^TestOOM$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), oomInside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOOM") {
		t.Errorf("in the cgroup: %v\n%s", err, out)
	}
}

// memoryCgroup makes a cgroup with a memory limit, or skips the test.
func memoryCgroup(t *testing.T, limit int64) string {
	t.Helper()
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	reason := errors.New("there is no memory cgroup")
	for _, file := range oomFiles(cgroups, mounts) {
		dir := filepath.Join(filepath.Dir(file), fmt.Sprintf("e3-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			reason = err
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("remove the cgroup: %v", err)
			}
		})
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if reason = os.WriteFile(filepath.Join(dir, name), fmt.Append(nil, limit), 0o644); reason == nil {
				break
			}
		}
		if reason != nil {
			continue
		}
		for _, name := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} {
			_ = os.WriteFile(filepath.Join(dir, name), fmt.Append(nil, limit), 0o644) // absent where there is no swap
		}
		return dir
	}
	t.Skipf("needs root, and a cgroup with the memory controller below which one can be made: %v", reason)
	return ""
}

func testOOM(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	system := openOOMCounter([]string{"/proc/vmstat"})
	if _, ok := system.read(); !ok {
		t.Error("/proc/vmstat does not count")
	}
	// run cancels the command once it has made the file "ready", if ever.
	run := func(t *testing.T, script string) Result {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		dir := t.TempDir()
		var watcher sync.WaitGroup
		defer watcher.Wait()
		defer cancel()
		watcher.Go(func() {
			for tick := time.Tick(10 * time.Millisecond); ctx.Err() == nil; <-tick {
				if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
					cancel()
				}
			}
		})
		result, err := s.Run(ctx, Spec{Argv: []string{"bash", "-c", script}, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}, Grace: -1})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal
		code         int
		want         bool
	}{
		{"kill -9", "kill -9 $$", syscall.SIGKILL, -1, false},
		{"the command", "exec tail < <(head -c 2G /dev/zero)", syscall.SIGKILL, -1, true},
		{"kill -9, right after", "kill -9 $$", syscall.SIGKILL, -1, false},
		{"a child of a shell", "set -o pipefail; " + eat, 0, 137, true},
		{"an exit code that looks like it, right after", "exit 137", 0, 137, false},
		{"a child whose end the shell ignores", eat + "; true", 0, 0, false},
		{"kill -9, right after that", "kill -9 $$", syscall.SIGKILL, -1, false},
		{"a child, and another exit code", "set -o pipefail; " + eat + " || exit 3", 0, 3, false},
		{"a command that e3 killed meanwhile", eat + "; : > ready; sleep 1000", syscall.SIGKILL, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			system.refresh()
			started := time.Now()
			r := run(t, c.script)
			if r.Signal != c.signal || r.ExitCode != c.code || r.Cancelled != strings.Contains(c.script, "ready") {
				t.Fatalf("ended as %+v, want signal %v and exit code %d", r, c.signal, c.code)
			}
			if r.OOM != c.want {
				t.Errorf("OOM is %v, want %v: %+v", r.OOM, c.want, r)
			}
			if strings.Contains(c.script, "tail") && !system.killed(killed, started) {
				t.Error("the system does not count the kill")
			}
		})
	}
}
