package testserver

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// slurmPackages are what Debian calls the programs.
var slurmPackages = []string{"slurm-wlm", "munge"}

// slurmLimit is how long the nodes of a cluster may take until they are ready.
const slurmLimit = 30 * time.Second

// A SlurmNode is a node of a cluster. All are this machine, and none has anything to itself but a name and its processes.
type SlurmNode struct {
	Name     string
	CPUs     int
	Memory   int    // MiB
	Features string // with commas
	Gres     string // as in name:2
}

// SlurmNodes are the nodes of a cluster by default.
func SlurmNodes() []SlurmNode {
	return []SlurmNode{
		{Name: "n1", CPUs: 8, Memory: 4000, Features: "big", Gres: "tape:2"},
		{Name: "n2", CPUs: 8, Memory: 4000, Features: "small"},
	}
}

// A Slurm is a cluster: munged, slurmctld and a slurmd for each node, which end with the test, and what they have started with them.
// It keeps everything in a folder of its own: configuration, keys, state, and logs.
type Slurm struct {
	tb         TB
	dir        string
	ports      []int
	controller *process
	nodes      map[string]*process
}

// NewSlurm starts a cluster of these nodes, with further lines of slurm.conf. It needs root, for the namespaces that its processes
// are in, and Debian's packages, which it installs where apt-get can.
func NewSlurm(tb TB, nodes []SlurmNode, config ...string) *Slurm {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skipf("no Slurm: its nodes are namespaces, which only root may make (run as root)")
	}
	namespaced := append(slurmNamespaces("probe"), "true")
	if out, err := exec.Command(namespaced[0], namespaced[1:]...).CombinedOutput(); err != nil {
		tb.Skipf("no Slurm: its nodes are namespaces, which cannot be made here: %v %s", err, bytes.TrimSpace(out))
	}
	if err := installSlurm(); err != nil {
		tb.Skipf("no Slurm: %v (install it with: apt-get install %s)", err, strings.Join(slurmPackages, " "))
	}
	var faults error
	for range 3 { // the ports were free a moment ago
		dir, err := os.MkdirTemp("", "e3-slurm-*") // its path is short, as that of a socket must be
		if err != nil {
			tb.Fatalf("start Slurm: %v", err)
		}
		s := &Slurm{tb: tb, dir: dir, nodes: make(map[string]*process)}
		if err := s.begin(nodes, config); err != nil {
			s.end()
			faults = errors.Join(faults, err)
			continue
		}
		tb.Cleanup(s.end)
		return s
	}
	tb.Fatalf("start Slurm: %v", faults)
	return nil
}

// installSlurm sees to it that the programs are there.
func installSlurm() error {
	return installPackages("slurm", slurmPackages, func() error {
		for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
			if _, err := slurmProgram(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// slurmProgram finds a program, also where the PATH is not root's.
func slurmProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// slurmNamespaces is the start of a command that gives another a host name and processes of its own. All of them end with the first.
func slurmNamespaces(host string) []string {
	return []string{"unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc", "--",
		"sh", "-c", `hostname "$0" && exec "$@"`, host}
}

// begin starts everything and waits until all nodes are idle.
func (s *Slurm) begin(nodes []SlurmNode, config []string) error {
	for range len(nodes) + 1 {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		_, port, _ := net.SplitHostPort(address)
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, n)
	}
	if err := s.configure(nodes, config); err != nil {
		return err
	}
	munged, err := slurmProgram("munged")
	if err != nil {
		return err
	}
	// It is forced because the folder above its own may be shared by all users.
	m, err := start(nil, munged, "--foreground", "--force", "--num-threads=2", "--socket="+s.path("munge", "socket"), "--key-file="+s.path("munge", "key"),
		"--pid-file="+s.path("munge", "pid"), "--seed-file="+s.path("munge", "seed"), "--log-file="+s.path("log", "munged"))
	if err != nil {
		return err
	}
	s.nodes["munged"] = m
	if err := s.until(m, func() bool { _, err := os.Stat(s.path("munge", "socket")); return err == nil }); err != nil {
		return fmt.Errorf("munged: %w", err)
	}
	if err := s.startController(); err != nil {
		return err
	}
	for _, n := range nodes {
		// The first process of a node adopts what others leave, and must wait for it: slurmd does not.
		if s.nodes[n.Name], err = s.daemon(n.Name, "sh", "-c", `slurmd -D -N "$0" & while kill -0 $!; do wait; done`, n.Name); err != nil {
			return err
		}
	}
	return s.until(s.controller, func() bool {
		out, err := s.command("sinfo", "--noheader", "--Node", "--format=%T").Output()
		return err == nil && strings.Count(string(out), "idle\n") == len(nodes)
	})
}

// configure writes the files of the cluster.
func (s *Slurm) configure(nodes []SlurmNode, config []string) error {
	for _, dir := range []string{"munge", "state", "log"} {
		if err := os.Mkdir(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	key := make([]byte, 128)
	rand.Read(key)
	if err := os.WriteFile(s.path("munge", "key"), key, 0o600); err != nil {
		return err
	}
	lines := []string{
		"ClusterName=e3", "SlurmctldHost=controller(127.0.0.1)", fmt.Sprintf("SlurmctldPort=%d", s.ports[0]), "SlurmUser=root", "SlurmdUser=root",
		"AuthType=auth/munge", "AuthInfo=cred_expire=5,socket=" + s.path("munge", "socket"), "CredType=cred/munge", "MpiDefault=none", "SwitchType=switch/none",
		"StateSaveLocation=" + s.path("state"), "SlurmdSpoolDir=" + s.path("spool.%n"), "SlurmctldPidFile=" + s.path("slurmctld.pid"),
		"SlurmdPidFile=" + s.path("slurmd.%n.pid"), "SlurmctldLogFile=" + s.path("log", "slurmctld"), "SlurmdLogFile=" + s.path("log", "slurmd.%n"),
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none", "AccountingStorageType=accounting_storage/none",
		"JobCompType=jobcomp/none", "MailProg=/bin/true", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "SlurmdParameters=config_overrides",
		"SchedulerType=sched/builtin", "SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=2000",
		"EpilogMsgTime=0", "SlurmctldTimeout=5", "SlurmdTimeout=4", "MessageTimeout=5", "BatchStartTimeout=5", "KillWait=2", "UnkillableStepTimeout=20",
		"ReturnToService=2", "JobRequeue=1", "DefMemPerCPU=100",
	}
	var gres, types []string
	for i, n := range nodes {
		line := fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=%d", n.Name, n.Name, s.ports[i+1], n.CPUs, n.Memory)
		if n.Features != "" {
			line += " Features=" + n.Features
		}
		if name, count, ok := strings.Cut(n.Gres, ":"); ok {
			line += " Gres=" + n.Gres
			types = append(types, name)
			gres = append(gres, fmt.Sprintf("NodeName=%s Name=%s Count=%s", n.Name, name, count))
		}
		lines = append(lines, line)
		if err := os.Mkdir(s.path("spool."+n.Name), 0o755); err != nil {
			return err
		}
	}
	if len(types) > 0 {
		lines = append(lines, "GresTypes="+strings.Join(types, ","))
	}
	lines = append(lines, "PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE")
	for name, content := range map[string][]string{"slurm.conf": append(lines, config...), "gres.conf": gres, "cgroup.conf": {"CgroupPlugin=autodetect"}} {
		if err := os.WriteFile(s.path(name), []byte(strings.Join(content, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Slurm) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// Env is what a program needs to find the cluster.
func (s *Slurm) Env() []string { return []string{"SLURM_CONF=" + s.path("slurm.conf")} }

// On is the cluster for a part of the test, which fails by itself.
func (s *Slurm) On(tb TB) *Slurm {
	part := *s
	part.tb = tb
	return &part
}

// command makes a command that finds the cluster.
func (s *Slurm) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), s.Env()...)
	return cmd
}

// Run runs a command of Slurm's that must succeed, and returns what it prints.
func (s *Slurm) Run(name string, args ...string) string {
	s.tb.Helper()
	cmd := s.command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.tb.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// daemon starts one of the daemons on a host of its own.
func (s *Slurm) daemon(host string, args ...string) (*process, error) {
	args = append(slurmNamespaces(host), args...)
	path := os.Getenv("PATH") + ":/usr/sbin"
	return start(append(s.Env(), "PATH="+path), args[0], args[1:]...)
}

func (s *Slurm) startController() (err error) {
	s.controller, err = s.daemon("controller", "slurmctld", "-D")
	return err
}

// StopController ends slurmctld: no command of Slurm's works any more, while jobs go on. (What it had not saved yet when it is killed
// it forgets, and then refuses to start those jobs that still run a second time.)
func (s *Slurm) StopController() {
	s.tb.Helper()
	s.signal(s.controller, 1, syscall.SIGTERM)
	select {
	case <-s.controller.ended:
	case <-time.After(slurmLimit):
		s.tb.Fatalf("slurmctld does not end:\n%s", s.Logs())
	}
}

// StartController starts slurmctld again, with what it had saved, and waits until it answers.
func (s *Slurm) StartController() {
	s.tb.Helper()
	err := s.startController()
	if err == nil {
		err = s.until(s.controller, func() bool { return s.command("scontrol", "ping").Run() == nil && s.command("squeue").Run() == nil })
	}
	if err != nil {
		s.tb.Fatalf("start slurmctld again: %v", err)
	}
}

// CutOff has the slurmd of a node not answer any more, while what it has started goes on: Slurm takes the node for dead a few seconds later.
func (s *Slurm) CutOff(node string) {
	s.tb.Helper()
	s.signal(s.nodes[node], 2, syscall.SIGSTOP)
}

// Return ends that.
func (s *Slurm) Return(node string) {
	s.tb.Helper()
	s.signal(s.nodes[node], 2, syscall.SIGCONT)
}

// Crash ends a node with all that runs there, as a loss of power does.
func (s *Slurm) Crash(node string) {
	s.tb.Helper()
	s.nodes[node].stop()
}

// signal sends a signal to a daemon, which is so many generations below the process that makes its namespaces. What it has started is
// not below it for long.
func (s *Slurm) signal(p *process, below int, sig syscall.Signal) {
	s.tb.Helper()
	pid := p.cmd.Process.Pid
	var err error
	for range below {
		var children []byte
		if children, err = os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)); err == nil {
			_, err = fmt.Sscan(string(children), &pid)
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		s.tb.Fatalf("signal a daemon of Slurm's: %v", err)
	}
}

// until waits for a condition as long as a process lasts.
func (s *Slurm) until(p *process, is func() bool) error {
	timeout := time.NewTimer(slurmLimit)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it ended: %s", p.text())
		case <-timeout.C:
			return fmt.Errorf("not ready within %v:\n%s", slurmLimit, s.Logs())
		}
	}
	return nil
}

// Logs is what the daemons have logged, for a test that fails.
func (s *Slurm) Logs() string {
	var b strings.Builder
	logs, _ := filepath.Glob(s.path("log", "*"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "== %s\n%s", filepath.Base(name), text[max(0, len(text)-8<<10):])
	}
	return b.String()
}

// end kills everything: the nodes, whose processes end with the first of each, then the others.
func (s *Slurm) end() {
	for name, p := range s.nodes {
		if name != "munged" {
			p.stop()
		}
	}
	if s.controller != nil {
		s.controller.stop()
	}
	if m := s.nodes["munged"]; m != nil {
		m.stop()
	}
	os.RemoveAll(s.dir)
}
