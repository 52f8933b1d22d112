package testserver

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// gridEnginePackages are what Debian calls the programs.
var gridEnginePackages = []string{"gridengine-master", "gridengine-exec", "gridengine-client", "iproute2"}

// gridEnginePrograms is where Debian puts the programs that no wrapper of its own is for.
const gridEnginePrograms = "/usr/lib/gridengine"

// A GridEngine is a cluster of Grid Engine: a host "head" with sge_qmaster, and a host for each node, with sge_execd. Each is a
// network namespace; a bridge on the head joins them. Its commands are wrappers that enter the head. Slots of the queue "main" are
// the nodes', the parallel environment is "smp", and a node that says nothing for some seconds is dead, its jobs run again.
type GridEngine struct {
	*site
	nodes []string
	slots int
}

// NewGridEngine starts a cluster of nodes with so many slots each. It needs root, for the namespaces, and Debian's packages, which
// it installs where apt-get can.
func NewGridEngine(tb TB, slots int, nodes ...string) *GridEngine {
	tb.Helper()
	needRoot(tb, "Grid Engine")
	if err := installPackages("gridengine", gridEnginePackages, gridEngineMissing); err != nil {
		tb.Skipf("no Grid Engine: %v (install it with: apt-get install %s)", err, strings.Join(gridEnginePackages, " "))
	}
	g := &GridEngine{nodes: nodes, slots: slots}
	g.site = newSite(tb, "Grid Engine", func(s *site) error {
		g.site = s
		return g.begin()
	})
	return g
}

// GridEngineInstalled tells whether its programs are there.
func GridEngineInstalled() bool { return gridEngineMissing() == nil }

func gridEngineMissing() error {
	_, err := exec.LookPath("ip")
	for _, name := range []string{"sge_qmaster", "sge_execd", "qsub"} {
		_, missing := os.Stat(filepath.Join(gridEnginePrograms, name))
		err = errors.Join(err, missing)
	}
	return err
}

// begin starts everything, and waits until all nodes have said how they are.
func (g *GridEngine) begin() error {
	g.env = []string{"SGE_ROOT=" + g.path("root"), "SGE_CELL=default", "SGE_CLUSTER_NAME=e3", "SGE_QMASTER_PORT=6444", "SGE_EXECD_PORT=6445",
		"PATH=" + g.path("bin") + ":" + os.Getenv("PATH")}
	if err := g.layOut(); err != nil {
		return err
	}
	if err := g.host("head", "exec sleep infinity"); err != nil {
		return err
	}
	head, err := g.child("head", 1)
	if err != nil {
		return err
	}
	enter := fmt.Sprintf("nsenter --target %d --net --uts --mount --wd=.", head)
	for _, name := range []string{"qsub", "qstat", "qdel", "qacct", "qconf", "qhost", "qmod"} {
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", enter, filepath.Join(gridEnginePrograms, name))
		if err := os.WriteFile(g.path("bin", name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	if err := g.shell(head, `
		ip link add bridge type bridge && ip addr add 10.71.0.1/24 dev bridge && ip link set bridge up
		cd "$SGE_ROOT"/.. && PATH=`+gridEnginePrograms+`:$PATH
		spoolinit classic libspoolc "$PWD/root/default/common;$PWD/spool" init
		spooldefaults configuration "$PWD/configuration"
		spooldefaults complexes /usr/share/gridengine/util/resources/centry
		spooldefaults usersets /usr/share/gridengine/util/resources/usersets
		spooldefaults managers root`); err != nil {
		return err
	}
	if err := g.startQmaster(); err != nil {
		return err
	}
	for i, name := range g.nodes {
		if _, err := g.output("qconf", "-ah", name); err != nil {
			return err
		}
		// The first process of a node adopts what others leave, and must wait for it.
		run := `until ip -4 addr show eth0 2>/dev/null | grep -q "state UP"; do sleep 0.05; done
			` + gridEnginePrograms + `/sge_execd & while kill -0 $!; do wait; done`
		if err := g.host(name, run); err != nil {
			return err
		}
		node, err := g.child(name, 1)
		if err != nil {
			return err
		}
		if err := g.shell(head, fmt.Sprintf(`ip link add to-%s type veth peer name eth0 netns %d && ip link set to-%s master bridge up`, name, node, name)); err != nil {
			return err
		}
		if err := g.shell(node, fmt.Sprintf(`ip addr add 10.71.0.%d/24 dev eth0 && ip link set eth0 up`, i+2)); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"-Msconf", "scheduler"}, {"-Ahgrp", "hosts.group"}, {"-Ap", "parallel"}, {"-Aq", "queue"}, {"-as", "head"}} {
		if args[0] != "-as" {
			args[1] = g.path(args[1])
		}
		if _, err := g.output("qconf", args...); err != nil {
			return err
		}
	}
	return g.until("qmaster", func() bool {
		out, err := g.output("qstat", "-f")
		return err == nil && len(gridEngineReady.FindAllString(out, -1)) == len(g.nodes)
	})
}

// gridEngineReady is a node in "qstat -f" that has said its load, and is in no bad state.
var gridEngineReady = regexp.MustCompile(`(?m)^main@\S+ +\S+ +\S+ +[0-9.]+ +lx-\S+ *$`)

// layOut writes the files of the cluster.
func (g *GridEngine) layOut() error {
	for _, dir := range []string{"bin", "log", "exec", "spool/job_scripts", "root/default/common"} {
		if err := os.MkdirAll(g.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "lib", "util", "utilbin"} {
		if err := os.Symlink(filepath.Join("/var/lib/gridengine", name), g.path("root", name)); err != nil {
			return err
		}
	}
	base, err := os.ReadFile("/usr/share/gridengine/default-configuration")
	if err != nil {
		return err
	}
	hosts := "127.0.0.1 localhost\n10.71.0.1 head\n"
	for i, name := range g.nodes {
		hosts += fmt.Sprintf("10.71.0.%d %s\n", i+2, name)
	}
	spool := g.path("spool")
	for name, content := range map[string]string{
		"hosts":                           hosts,
		"root/default/common/act_qmaster": "head\n",
		"root/default/common/bootstrap": "admin_user none\ndefault_domain none\nignore_fqdn false\nspooling_method classic\nspooling_lib libspoolc\n" +
			"spooling_params " + g.path("root/default/common") + ";" + spool + "\nbinary_path /usr/sbin\nqmaster_spool_dir " + spool +
			"\nsecurity_mode none\nlistener_threads 2\nworker_threads 2\nscheduler_threads 1\n",
		"configuration": settle(string(base), "min_uid", "0", "min_gid", "0", "execd_spool_dir", g.path("exec"), "load_report_time", "00:00:01",
			"max_unheard", "00:00:05", "reschedule_unknown", "00:00:03", "gid_range", "20000-20100",
			"reporting_params", "accounting=true reporting=false flush_time=00:00:15 accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00"),
		"hosts.group": "group_name @nodes\nhostlist " + strings.Join(g.nodes, " ") + "\n",
		"scheduler": "algorithm default\nschedule_interval 0:0:1\nmaxujobs 0\nqueue_sort_method load\njob_load_adjustments NONE\n" +
			"load_adjustment_decay_time 0:0:0\nload_formula np_load_avg\nschedd_job_info true\nflush_submit_sec 1\nflush_finish_sec 1\nparams none\n" +
			"reprioritize_interval 0:0:0\nhalftime 168\nusage_weight_list cpu=1,mem=0,io=0\ncompensation_factor 5\nweight_user 0.25\nweight_project 0.25\n" +
			"weight_department 0.25\nweight_job 0.25\nweight_tickets_functional 0\nweight_tickets_share 0\nshare_override_tickets TRUE\n" +
			"share_functional_shares TRUE\nmax_functional_jobs_to_schedule 200\nreport_pjob_tickets TRUE\nmax_pending_tasks_per_job 50\n" +
			"halflife_decay_list none\npolicy_hierarchy OFS\nweight_ticket 0.01\nweight_waiting_time 0\nweight_deadline 3600000\nweight_urgency 0.1\n" +
			"weight_priority 1\nmax_reservation 0\ndefault_duration INFINITY\n",
		"parallel": "pe_name smp\nslots 9999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\nallocation_rule $pe_slots\n" +
			"control_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n",
		"queue": "qname main\nhostlist @nodes\nseq_no 0\nload_thresholds NONE\nsuspend_thresholds NONE\nnsuspend 1\nsuspend_interval 00:05:00\npriority 0\n" +
			"min_cpu_interval 00:00:01\nprocessors UNDEFINED\nqtype BATCH\nckpt_list NONE\npe_list smp\nrerun TRUE\nslots " + fmt.Sprint(g.slots) + "\n" +
			"tmpdir /tmp\nshell /bin/sh\nprolog NONE\nepilog NONE\nshell_start_mode unix_behavior\nstarter_method NONE\nsuspend_method NONE\n" +
			"resume_method NONE\nterminate_method NONE\nnotify 00:00:01\nowner_list NONE\nuser_lists NONE\nxuser_lists NONE\nsubordinate_list NONE\n" +
			"complex_values NONE\nprojects NONE\nxprojects NONE\ncalendar NONE\ninitial_state default\n" + unlimited,
	} {
		if err := os.WriteFile(g.path(name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unlimited are the limits of a queue.
var unlimited = func() string {
	var b strings.Builder
	for _, limit := range strings.Fields("rt cpu fsize data stack core rss vmem") {
		fmt.Fprintf(&b, "s_%s INFINITY\nh_%s INFINITY\n", limit, limit)
	}
	return b.String()
}()

// settle gives keys of a configuration other values.
func settle(config string, pairs ...string) string {
	var lines []string
	for line := range strings.Lines(config) {
		if key, _, _ := strings.Cut(line, " "); !slices.Contains(pairs, key) {
			lines = append(lines, line)
		}
	}
	for pair := range slices.Chunk(pairs, 2) {
		lines = append(lines, pair[0]+" "+pair[1]+"\n")
	}
	return strings.Join(lines, "")
}

// host makes a namespace with an /etc/hosts of the cluster's, in which a script runs, and waits until it does.
func (g *GridEngine) host(name, script string) error {
	set := `mount --bind "$SGE_ROOT/../hosts" /etc/hosts && ip link set lo up && touch "$SGE_ROOT/../log/$(hostname)" || exit
	export SGE_ND=1
	`
	if err := g.start(name, g.env, namespaced(name, "--net", "sh", "-c", set+script)...); err != nil {
		return err
	}
	return g.until(name, func() bool { _, err := os.Stat(g.path("log", name)); return err == nil })
}

// shell runs a script on a host, which is that of a process.
func (g *GridEngine) shell(pid int, script string) error {
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(pid), "--net", "--uts", "--mount", "sh", "-exc", script)
	cmd.Env = append(os.Environ(), g.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the hosts: %w: %s", err, out)
	}
	return nil
}

func (g *GridEngine) startQmaster() error {
	head, err := g.child("head", 1)
	if err == nil {
		err = g.start("qmaster", append(g.env, "SGE_ND=1"), "nsenter", "--target", fmt.Sprint(head), "--net", "--uts", "--mount", filepath.Join(gridEnginePrograms, "sge_qmaster"))
	}
	if err != nil {
		return err
	}
	return g.until("qmaster", func() bool { _, err := g.output("qconf", "-sconf"); return err == nil })
}

// On is the cluster for a part of the test.
func (g *GridEngine) On(tb TB) Cluster {
	part := *g.site
	part.tb = tb
	return &GridEngine{&part, g.nodes, g.slots}
}

// Jobs lists the jobs that are not over.
func (g *GridEngine) Jobs() (jobs []Job) {
	g.tb.Helper()
	type job struct {
		ID    string `xml:"JB_job_number"`
		Name  string `xml:"JB_name"`
		State string `xml:"state"`
		Queue string `xml:"queue_name"`
	}
	var list struct {
		Running []job `xml:"queue_info>job_list"`
		Pending []job `xml:"job_info>job_list"`
	}
	if err := xml.Unmarshal([]byte(g.Run("qstat", "-xml", "-u", "*")), &list); err != nil {
		g.tb.Fatalf("qstat -xml: %v", err)
	}
	for _, j := range append(list.Running, list.Pending...) {
		_, node, _ := strings.Cut(j.Queue, "@")
		jobs = append(jobs, Job{ID: j.ID, Name: j.Name, Node: node, Running: strings.HasSuffix(j.State, "r")})
	}
	return jobs
}

// Cancel is qdel.
func (g *GridEngine) Cancel(id string) {
	g.tb.Helper()
	g.Run("qdel", id)
}

// StopController kills sge_qmaster, as a loss of power does.
func (g *GridEngine) StopController() {
	g.tb.Helper()
	g.stop("qmaster")
}

// StartController starts it again, and waits until it answers. Nodes have to report to it before it starts jobs there, which takes
// them up to a minute; where that takes longer than a node may be silent, it has their jobs run again, which still run.
func (g *GridEngine) StartController() {
	g.tb.Helper()
	if err := g.startQmaster(); err != nil {
		g.tb.Fatalf("start sge_qmaster again: %v", err)
	}
}

// CutOff has the sge_execd of a node not answer any more, while what it has started goes on.
func (g *GridEngine) CutOff(node string) {
	g.tb.Helper()
	g.signal(node, 2, syscall.SIGSTOP)
}

// Return ends that.
func (g *GridEngine) Return(node string) {
	g.tb.Helper()
	g.signal(node, 2, syscall.SIGCONT)
}

// Crash ends a node.
func (g *GridEngine) Crash(node string) { g.stop(node) }
