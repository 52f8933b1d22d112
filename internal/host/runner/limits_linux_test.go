//go:build amd64 || arm64

package runner_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/cgroup"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// limited skips the test where commands cannot have all limits.
func limited(t *testing.T) {
	t.Helper()
	if err := cgroup.Check(); err != nil {
		t.Skipf("%v; TestLimitsInAVirtualMachine plays it", err)
	}
}

// groups lists the control groups that processes of e3 have made.
func groups(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "e3-") && d.Name() != "e3-host" {
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// rooms calls test for a command in the open and for one in a closed room.
func rooms(t *testing.T, test func(t *testing.T, spec func(script string, l cgroup.Limits) runner.Spec)) {
	t.Run("open", func(t *testing.T) {
		test(t, func(script string, l cgroup.Limits) runner.Spec {
			spec := shell(t, script, t.TempDir())
			spec.Limits = &l
			return spec
		})
	})
	t.Run("closed", func(t *testing.T) {
		test(t, func(script string, l cgroup.Limits) runner.Spec {
			spec := inRoom(t, shell(t, script, ""))
			spec.Limits = &l
			return spec
		})
	})
}

// hog needs more than 57 MiB, in a child of the shell.
const hog = "dd if=/dev/zero of=/dev/null bs=60000000 count=1; exit 0"

func TestLimitsOfMemory(t *testing.T) {
	limited(t)
	s := newSupervisor(t)
	rooms(t, func(t *testing.T, spec func(string, cgroup.Limits) runner.Spec) {
		r, err := s.Run(t.Context(), spec(hog, cgroup.Limits{Memory: 32 << 20}))
		if err != nil || !r.OOM || !r.Limit || r.Signal != syscall.SIGKILL || r.Straggler {
			t.Errorf("with 32 MiB it ended with %+v, %v", r, err)
		}
		if r.PeakRSS < 25<<20 || r.PeakRSS > 32<<20 {
			t.Errorf("its peak was %d bytes", r.PeakRSS)
		}
		// Beside one that runs out of memory, another that kills itself has not run out of it.
		if r, err := s.Run(t.Context(), spec("kill -KILL $$", cgroup.Limits{Memory: 48 << 20})); err != nil || r.OOM || r.Limit {
			t.Errorf("a command that killed itself ended with %+v, %v", r, err)
		}
		r, err = s.Run(t.Context(), spec(hog, cgroup.Limits{Memory: 128 << 20}))
		if err != nil || !r.Success() || r.OOM || r.PeakRSS < 57<<20 {
			t.Errorf("with 128 MiB it ended with %+v, %v", r, err)
		}
	})
}

func TestLimitsOfProcessors(t *testing.T) {
	limited(t)
	s := newSupervisor(t)
	rooms(t, func(t *testing.T, spec func(string, cgroup.Limits) runner.Spec) {
		c := spec("while :; do :; done & while :; do :; done", cgroup.Limits{CPU: 0.3})
		c.Timeout, c.Grace = 2*time.Second, -1
		r, err := s.Run(t.Context(), c)
		used, wall := (r.UserCPU + r.SystemCPU).Seconds(), r.Ended.Sub(r.Started).Seconds()
		if err != nil || !r.TimedOut || used/wall < 0.15 || used/wall > 0.45 {
			t.Errorf("with 0.3 cores it used %.2f s in %.2f s: %+v, %v", used, wall, r, err)
		}
	})
}

// TestLimitsCountAll: processes that are not waited for count as well, also those that leave the group and the session.
func TestLimitsCountAll(t *testing.T) {
	limited(t)
	s := newSupervisor(t)
	rooms(t, func(t *testing.T, spec func(string, cgroup.Limits) runner.Spec) {
		r, err := s.Run(t.Context(), spec(`
			(setsid bash -c 'dd if=/dev/zero of=/dev/null bs=42000000 count=1; n=0; while [ $n -lt 2000 ]; do n=$((n+1)); done; echo > done; sleep 600' &)
			until [ -e done ]; do sleep 0.01; done`, cgroup.Limits{}))
		if err != nil || !r.Success() || r.Straggler || r.PeakRSS < 40<<20 || r.UserCPU < 4*time.Millisecond {
			t.Errorf("it ended with %+v, %v", r, err)
		}
	})
	if left := processesNamed(t, "sleep"); left != "" {
		t.Errorf("processes are left: %s", left)
	}
}

// processesNamed lists the processes with this name.
func processesNamed(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
			list = append(list, filepath.Dir(file))
		}
	}
	return strings.Join(list, " ")
}

func TestLimitsOfProcesses(t *testing.T) {
	limited(t)
	s := newSupervisor(t)
	rooms(t, func(t *testing.T, spec func(string, cgroup.Limits) runner.Spec) {
		c := spec("bomb() { bomb | bomb & }; bomb; sleep 600", cgroup.Limits{Memory: 128 << 20})
		c.Timeout, c.Grace = 2*time.Second, -1
		r, err := s.Run(t.Context(), c)
		if err != nil || r.Success() || r.Straggler {
			t.Errorf("a fork bomb ended with %+v, %v", r, err)
		}
	})
	if left := processesNamed(t, "bash"); strings.Count(left, " ") > 16 {
		t.Errorf("processes are left: %s", left)
	}
}

// TestLimitsLeaveNothing: the control groups of ended commands are gone, and that of the supervisor with it.
func TestLimitsLeaveNothing(t *testing.T) {
	limited(t)
	s, err := runner.New(runner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rooms(t, func(t *testing.T, spec func(string, cgroup.Limits) runner.Spec) {
		for _, script := range []string{"true", "exit 3", "(setsid sleep 600 &)", "kill -KILL 0"} {
			if _, err := s.Run(t.Context(), spec(script, cgroup.Limits{Memory: 64 << 20, CPU: 1})); err != nil {
				t.Errorf("%s: %v", script, err)
			}
		}
		missing := spec("", cgroup.Limits{})
		missing.Argv = []string{"/no/such/program"}
		if _, err := s.Run(t.Context(), missing); err == nil {
			t.Error("a program that does not exist was started")
		}
	})
	await(t, func() bool {
		for _, dir := range groups(t) {
			if leaves, _ := filepath.Glob(dir + "/[0-9]*"); len(leaves) > 0 {
				return false
			}
		}
		return true
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := groups(t); len(left) > 0 {
		t.Errorf("after the end of the supervisor there are %q", left)
	}
}

// await waits for a condition that comes soon.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(suite.Stuck); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition does not come")
		}
	}
}

// TestLimitsAfterKill: what a killed supervisor leaves, its client removes; what both leave, the next start.
func TestLimitsAfterKill(t *testing.T) {
	limited(t)
	if os.Getenv(leavesGroup) != "" {
		s := newSupervisor(t)
		script := fmt.Sprintf(`(setsid sleep 600 &); kill -STOP %[1]d $PPID; kill -KILL %[1]d $PPID; sleep 600`, os.Getpid())
		spec := shell(t, script, t.TempDir())
		spec.Limits = &cgroup.Limits{}
		s.Run(t.Context(), spec)
		return
	}
	s := newSupervisor(t)
	spec := shell(t, "kill -KILL $PPID; sleep 600", t.TempDir())
	spec.Limits = &cgroup.Limits{}
	if _, err := s.Run(t.Context(), spec); !errors.Is(err, runner.ErrSupervisorLost) {
		t.Errorf("a command that killed its supervisor ended with %v", err)
	}
	if left := groups(t); len(left) > 0 {
		t.Errorf("after the death of the supervisor there are %q", left)
	}

	cmd := exec.Command("/proc/self/exe", "-test.run=^TestLimitsAfterKill$")
	cmd.Env = append(os.Environ(), leavesGroup+"=1")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("the process that was to be killed ended with %v", err)
	}
	await(t, func() bool { return len(groups(t)) == 1 })
	spec = shell(t, "true", t.TempDir())
	spec.Limits = &cgroup.Limits{}
	if r, err := s.Run(t.Context(), spec); err != nil || !r.Success() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, dir := range groups(t) {
		if leaves, _ := filepath.Glob(dir + "/[0-9]*"); len(leaves) > 0 {
			t.Errorf("after the next start there are %q", leaves)
		}
	}
	if list := groups(t); len(list) != 1 {
		t.Errorf("after the next start there are %q", list)
	}
	if left := processesNamed(t, "sleep"); left != "" {
		t.Errorf("processes are left: %s", left)
	}
}

// leavesGroup makes the test binary a process that is killed together with its supervisor.
const leavesGroup = "E3_TEST_RUNNER_LEAVES_GROUP"

// TestLimitsRefused: what is missing is said. The kernel of the virtual machine has control groups of version 2, of which
// an ordinary user has none.
func TestLimitsRefused(t *testing.T) {
	if os.Getenv(refusesLimits) == "" {
		t.Skip("TestLimitsInAVirtualMachine plays it, as a user without control groups")
	}
	err := cgroup.Check()
	if !errors.Is(err, cgroup.ErrUnavailable) || !strings.Contains(err.Error(), "write /sys/fs/cgroup: permission denied (delegate") {
		t.Errorf("an ordinary user is told: %v", err)
	}
}

const refusesLimits = "E3_TEST_RUNNER_REFUSES_LIMITS"

// virtualLimits runs these tests as root, as a user to whom a group is delegated that has none of e3's processes, as one
// whose processes are alone in the group, as in a service, and as one without.
const virtualLimits = `
set -e
mkdir -p /sys/fs/cgroup
mount -t cgroup2 -o nsdelegate none /sys/fs/cgroup
cd /tmp
play() { echo "== $1"; shift; "$@" && echo "played"; }
play root /runner.test -test.run '^TestLimits' -test.v
cd /sys/fs/cgroup
echo "+cpu +memory +pids" > cgroup.subtree_control
delegate() { mkdir -p $1 && chown user $1 $1/cgroup.procs $1/cgroup.subtree_control $1/cgroup.threads; }
delegate user
mkdir user/session
chown user user/session user/session/cgroup.procs
cd /tmp
export TMPDIR=/home/tmp HOME=/home
mkdir -p -m 700 /home/tmp; chown -R user /home
play delegated bash -c 'echo $$ > /sys/fs/cgroup/user/session/cgroup.procs && exec su -s /bin/bash user -c "exec /runner.test -test.run ^TestLimits -test.v"' -
delegate /sys/fs/cgroup/service
play service bash -c 'echo $$ > /sys/fs/cgroup/service/cgroup.procs && exec su -s /bin/bash user -c "exec /runner.test -test.run ^TestLimits -test.v"' -
export E3_TEST_RUNNER_REFUSES_LIMITS=1
play stranger su -s /bin/bash user -c 'exec /runner.test -test.run ^TestLimitsRefused -test.v'
`

// TestLimitsInAVirtualMachine plays the tests of limits with a kernel that has all controllers in control groups of
// version 2.
func TestLimitsInAVirtualMachine(t *testing.T) {
	suite.Thorough(t)
	if os.Getpid() == 1 || os.Getenv("E3_TEST_RUNNER_VIRTUAL") != "" {
		t.Skip("this is the virtual machine")
	}
	program := filepath.Join(t.TempDir(), "runner.test")
	cmd := exec.Command("go", "test", "-c", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test: %v\n%s", err, out)
	}
	m := testserver.VirtualMachine{
		Files:  map[string]string{"runner.test": program},
		Script: "export E3_TEST_RUNNER_VIRTUAL=1\n" + virtualLimits,
		Limit:  8 * time.Minute,
	}
	out, code := m.Run(t)
	if code != "0" || strings.Count(out, "\nplayed\n") != 4 {
		t.Errorf("it ended with %s", code)
	}
	for _, test := range []string{"OfMemory", "OfProcessors", "CountAll", "OfProcesses", "LeaveNothing", "AfterKill"} {
		if n := len(regexp.MustCompile(`(?m)^--- PASS: TestLimits`+test+` `).FindAllString(out, -1)); n != 3 {
			t.Errorf("TestLimits%s passed %d times, of 3", test, n)
		}
	}
	if n := strings.Count(out, "--- PASS: TestLimitsRefused "); n != 1 {
		t.Errorf("TestLimitsRefused passed %d times, of 1", n)
	}
	if t.Failed() {
		t.Log(out)
	}
}
