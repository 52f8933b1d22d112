package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Cluster is a real scheduler and what executes its jobs, all on this machine. It ends with the test, and what its jobs have
// started with it.
type Cluster interface {
	// Env is what a program needs to find it.
	Env() []string
	// On is the cluster for a part of the test, which fails by itself.
	On(tb TB) Cluster
	// Jobs lists the jobs that are not over.
	Jobs() []Job
	// Cancel cancels a job as its owner does by hand.
	Cancel(id string)
	// StopController ends what answers the scheduler's commands, while jobs go on; StartController starts it again, with what it had kept.
	StopController()
	StartController()
	// Logs is what the servers have logged, for a test that fails.
	Logs() string
}

// A NodeCluster has nodes that can die.
type NodeCluster interface {
	Cluster
	// Crash ends a node with all that runs there, as a loss of power does.
	Crash(node string)
}

// A Job is one that a cluster has. Its name may be e3's, or one that only the profile knows.
type Job struct {
	ID, Name, Node string
	Running        bool
}

// clusterLimit is how long a cluster may take until it is ready.
const clusterLimit = 30 * time.Second

// A site is the folder of a cluster, with its configuration, state and logs, and the processes that make it.
type site struct {
	tb        TB
	dir       string
	env       []string // of clients
	processes map[string]*process
}

// needRoot skips the test where namespaces cannot be made. which is the cluster's name.
func needRoot(tb TB, which string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skipf("no %s: its nodes are namespaces, which only root may make (run as root)", which)
	}
	probe := namespaced("probe", "--net", "true")
	if out, err := exec.Command(probe[0], probe[1:]...).CombinedOutput(); err != nil {
		tb.Skipf("no %s: its nodes are namespaces, which cannot be made here: %v %s", which, err, bytes.TrimSpace(out))
	}
}

// newSite makes a cluster in a new folder by begin, three times if need be: ports were free a moment ago.
func newSite(tb TB, which string, begin func(*site) error) *site {
	tb.Helper()
	var faults error
	for range 3 {
		dir, err := os.MkdirTemp("", "e3-cluster-*") // its path is short, as that of a socket must be
		if err == nil {
			err = os.Chmod(dir, 0o755) // jobs of all users look into it
		}
		if err != nil {
			tb.Fatalf("start %s: %v", which, err)
		}
		s := &site{tb: tb, dir: dir, processes: make(map[string]*process)}
		if err := begin(s); err != nil {
			s.end()
			faults = errors.Join(faults, err)
			continue
		}
		tb.Cleanup(s.end)
		return s
	}
	tb.Fatalf("start %s: %v", which, faults)
	return nil
}

// namespaced is a command that runs in namespaces of its own, of processes, mounts and the host's name, and in further ones, which
// options of unshare before the command name. All of its processes end with the first.
func namespaced(host string, args ...string) []string {
	words := []string{"unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc"}
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		words, args = append(words, args[0]), args[1:]
	}
	return append(append(words, "--", "sh", "-c", `hostname "$0" && exec "$@"`, host), args...)
}

func (s *site) path(elem ...string) string { return filepath.Join(append([]string{s.dir}, elem...)...) }

// Env is what a program needs to find the cluster.
func (s *site) Env() []string { return s.env }

// command makes a command that finds the cluster.
func (s *site) command(name string, args ...string) *exec.Cmd {
	words := append([]string{`exec "$0" "$@"`, name}, args...) // sh looks for it on the PATH of the variables
	cmd := exec.Command("/bin/sh", append([]string{"-c"}, words...)...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// Run runs a command of the scheduler's that must succeed, and returns what it prints.
func (s *site) Run(name string, args ...string) string {
	s.tb.Helper()
	out, err := s.output(name, args...)
	if err != nil {
		s.tb.Fatalf("%v", err)
	}
	return out
}

func (s *site) output(name string, args ...string) (string, error) {
	cmd := s.command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, stderr.String(), out)
	}
	return string(out), nil
}

// start starts one of the processes that make the cluster.
func (s *site) start(name string, env []string, args ...string) error {
	p, err := start(env, args[0], args[1:]...)
	if err == nil {
		s.processes[name] = p
	}
	return err
}

// stop kills one of them, with what it has started in its namespaces.
func (s *site) stop(name string) {
	if p := s.processes[name]; p != nil {
		p.stop()
	}
}

// child is the process so many generations below one of them, the first child of each.
func (s *site) child(name string, below int) (int, error) {
	pid := s.processes[name].cmd.Process.Pid
	for range below {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err == nil {
			_, err = fmt.Sscan(string(children), &pid)
		}
		if err != nil {
			return 0, fmt.Errorf("find a process below %s: %w", name, err)
		}
	}
	return pid, nil
}

// signal sends a signal to a process so many generations below one of them. What it has started is not below it for long.
func (s *site) signal(name string, below int, sig syscall.Signal) {
	s.tb.Helper()
	pid, err := s.child(name, below)
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		s.tb.Fatalf("signal %s: %v", name, err)
	}
}

// until waits for a condition as long as one of the processes lasts.
func (s *site) until(name string, is func() bool) error {
	timeout := time.NewTimer(clusterLimit)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	p := s.processes[name]
	for !is() {
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("%s ended: %s\n%s", name, p.text(), s.Logs())
		case <-timeout.C:
			return fmt.Errorf("%s is not ready within %v: %s\n%s", name, clusterLimit, p.text(), s.Logs())
		}
	}
	return nil
}

// Logs is what the servers have logged.
func (s *site) Logs() string {
	var b strings.Builder
	logs, _ := filepath.Glob(s.path("log", "*"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "== %s\n%s", filepath.Base(name), text[max(0, len(text)-8<<10):])
	}
	return b.String()
}

// end kills everything, and removes the folder.
func (s *site) end() {
	for name := range s.processes {
		s.stop(name)
	}
	os.RemoveAll(s.dir)
}

// freePorts are ports that were free a moment ago.
func freePorts(n int) (ports []int, err error) {
	for range n {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := strings.Cut(address, ":")
		var number int
		if _, err := fmt.Sscan(port, &number); err != nil {
			return nil, err
		}
		ports = append(ports, number)
	}
	return ports, nil
}
