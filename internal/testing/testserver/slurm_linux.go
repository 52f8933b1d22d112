package testserver

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// slurmPackages are what Debian calls the programs.
var slurmPackages = []string{"slurm-wlm", "munge"}

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

// A Slurm is a cluster: munged, slurmctld and a slurmd for each node.
type Slurm struct{ *site }

// NewSlurm starts a cluster of these nodes, with further lines of slurm.conf. It needs root, for the namespaces that its processes
// are in, and Debian's packages, which it installs where apt-get can.
func NewSlurm(tb TB, nodes []SlurmNode, config ...string) *Slurm {
	tb.Helper()
	needRoot(tb, "Slurm")
	if err := installPackages("slurm", slurmPackages, slurmMissing); err != nil {
		tb.Skipf("no Slurm: %v (install it with: apt-get install %s)", err, strings.Join(slurmPackages, " "))
	}
	return &Slurm{newSite(tb, "Slurm", func(s *site) error { return (&Slurm{s}).begin(nodes, config) })}
}

// SlurmInstalled tells whether its programs are there.
func SlurmInstalled() bool { return slurmMissing() == nil }

func slurmMissing() error {
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := slurmProgram(name); err != nil {
			return err
		}
	}
	return nil
}

// slurmProgram finds a program, also where the PATH is not root's.
func slurmProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// begin starts everything and waits until all nodes are idle.
func (s *Slurm) begin(nodes []SlurmNode, config []string) error {
	s.env = []string{"SLURM_CONF=" + s.path("slurm.conf")}
	ports, err := freePorts(len(nodes) + 1)
	if err != nil {
		return err
	}
	if err := s.configure(nodes, ports, config); err != nil {
		return err
	}
	munged, err := slurmProgram("munged")
	if err != nil {
		return err
	}
	// It is forced because the folder above its own may be shared by all users.
	err = s.start("munged", nil, munged, "--foreground", "--force", "--num-threads=2", "--socket="+s.path("munge", "socket"), "--key-file="+s.path("munge", "key"),
		"--pid-file="+s.path("munge", "pid"), "--seed-file="+s.path("munge", "seed"), "--log-file="+s.path("log", "munged"))
	if err != nil {
		return err
	}
	if err := s.until("munged", func() bool { _, err := os.Stat(s.path("munge", "socket")); return err == nil }); err != nil {
		return err
	}
	if err := s.daemon("controller", "slurmctld", "-D"); err != nil {
		return err
	}
	for _, n := range nodes {
		// The first process of a node adopts what others leave, and must wait for it: slurmd does not.
		if err := s.daemon(n.Name, "sh", "-c", `slurmd -D -N "$0" & while kill -0 $!; do wait; done`, n.Name); err != nil {
			return err
		}
	}
	return s.until("controller", func() bool {
		out, err := s.command("sinfo", "--noheader", "--Node", "--format=%T").Output()
		return err == nil && strings.Count(string(out), "idle\n") == len(nodes)
	})
}

// configure writes the files of the cluster.
func (s *Slurm) configure(nodes []SlurmNode, ports []int, config []string) error {
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
		"ClusterName=e3", "SlurmctldHost=controller(127.0.0.1)", fmt.Sprintf("SlurmctldPort=%d", ports[0]), "SlurmUser=root", "SlurmdUser=root",
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
		line := fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=%d", n.Name, n.Name, ports[i+1], n.CPUs, n.Memory)
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

// On is the cluster for a part of the test.
func (s *Slurm) On(tb TB) Cluster {
	part := *s.site
	part.tb = tb
	return &Slurm{&part}
}

// Jobs lists the jobs that are not over, of an array each.
func (s *Slurm) Jobs() (jobs []Job) {
	s.tb.Helper()
	for line := range strings.Lines(s.Run("squeue", "--noheader", "--array", "--format=%i|%T|%N|%j")) {
		words := strings.SplitN(strings.TrimSpace(line), "|", 4)
		jobs = append(jobs, Job{ID: words[0], Running: words[1] == "RUNNING", Node: words[2], Name: words[3]})
	}
	return jobs
}

// Cancel is scancel.
func (s *Slurm) Cancel(id string) {
	s.tb.Helper()
	s.Run("scancel", id)
}

// daemon starts one of the daemons on a host of its own.
func (s *Slurm) daemon(host string, args ...string) error {
	return s.start(host, append(s.env, "PATH="+os.Getenv("PATH")+":/usr/sbin"), namespaced(host, args...)...)
}

// StopController ends slurmctld: no command of Slurm's works any more, while jobs go on. (What it had not saved yet when it is killed
// it forgets, and then refuses to start those jobs that still run a second time.)
func (s *Slurm) StopController() {
	s.tb.Helper()
	s.signal("controller", 1, syscall.SIGTERM)
	select {
	case <-s.processes["controller"].ended:
	case <-time.After(clusterLimit):
		s.tb.Fatalf("slurmctld does not end:\n%s", s.Logs())
	}
}

// StartController starts slurmctld again, with what it had saved, and waits until it answers.
func (s *Slurm) StartController() {
	s.tb.Helper()
	err := s.daemon("controller", "slurmctld", "-D")
	if err == nil {
		err = s.until("controller", func() bool { return s.command("scontrol", "ping").Run() == nil && s.command("squeue").Run() == nil })
	}
	if err != nil {
		s.tb.Fatalf("start slurmctld again: %v", err)
	}
}

// CutOff has the slurmd of a node not answer any more, while what it has started goes on: Slurm takes the node for dead a few seconds later.
func (s *Slurm) CutOff(node string) {
	s.tb.Helper()
	s.signal(node, 2, syscall.SIGSTOP)
}

// Return ends that.
func (s *Slurm) Return(node string) {
	s.tb.Helper()
	s.signal(node, 2, syscall.SIGCONT)
}

// Crash ends a node.
func (s *Slurm) Crash(node string) { s.stop(node) }
