//go:build linux

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// clusterPatience is for what waits for a scheduler to find out by itself: that a node is down, that a job has ended.
const clusterPatience = 5 * time.Minute

// clusterLease is long enough for a machine that starts many workers at a time.
const clusterLease = 10 * time.Second

// clusterWidth is how many tasks are ready at once: E3_E2E_TASKS, or as many as take half a minute on two cores.
func clusterWidth() int {
	if n, err := strconv.Atoi(os.Getenv("E3_E2E_TASKS")); err == nil {
		return n
	}
	return 100
}

// A clusterKind is a scheduler, and what differs: all else is the same for all of them.
type clusterKind struct {
	profile string // its name
	// start starts it. Jobs get none of the variables of who submits them, if those of workers are env.
	start func(t testing.TB, env []string) testserver.Cluster
	// values is what the profile leaves to the user.
	values map[string]string
	// submits and lists are the commands that do, each with a word among the arguments, or none.
	submits, lists [2]string
	// timeout is when a command that hangs is given up.
	timeout time.Duration
	// cancelled is in the message of a task whose job was cancelled by hand; "": the task is executed again, as nothing tells
	// why the job is gone.
	cancelled string
	// holds are ways in which a job does not start without help, and how that is told. (Debian's words of PBS do not say it.)
	holds []clusterHold
}

// A clusterHold has words of e3 start, or of the package file and of the profile that are replaced.
type clusterHold struct {
	args     string
	old, new string
	told     string
}

var clusterKinds = []clusterKind{
	{profile: "slurm", timeout: 15 * time.Second, submits: [2]string{"sbatch"}, lists: [2]string{"squeue"}, cancelled: "cancelled",
		holds: []clusterHold{{args: "--executor-args=--hold", told: "PENDING JobHeldUser"}},
		start: func(t testing.TB, _ []string) testserver.Cluster {
			return testserver.NewSlurm(t, testserver.SlurmNodes())
		}},
	{profile: "sge", timeout: 15 * time.Second, submits: [2]string{"qsub"}, lists: [2]string{"qstat"},
		holds: []clusterHold{{args: "--executor-args=-h", told: "hqw"}},
		start: func(t testing.TB, _ []string) testserver.Cluster {
			return testserver.NewGridEngine(t, 8, "n1", "n2")
		}},
	{profile: "pbs", timeout: 15 * time.Second, submits: [2]string{"qsub"}, lists: [2]string{"qstat"},
		start: func(t testing.TB, _ []string) testserver.Cluster {
			return testserver.NewPBS(t, testserver.SlurmNodes())
		}},
	{profile: "kubernetes", timeout: 15 * time.Second, submits: [2]string{"kubectl", "apply"}, lists: [2]string{"kubectl", "get"},
		values: map[string]string{"image": "none"},
		holds: []clusterHold{
			{old: "image: none", new: "image: missing", told: `ImagePullBackOff Back-off pulling image "missing"`},
			{old: "on_lost: kill", new: "on_lost: kill, labels: [gpu]", told: "Unschedulable: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."},
		},
		start: func(t testing.TB, env []string) testserver.Cluster {
			return testserver.NewKubernetes(t, env, 8, "n1", "n2")
		}},
	{profile: "aws-batch", timeout: time.Minute, // its command alone takes a second of processor time
		submits: [2]string{"aws", "submit-job"}, lists: [2]string{"aws", "list-jobs"},
		values: map[string]string{"job_queue": "main", "job_definition": "e3"},
		start: func(t testing.TB, env []string) testserver.Cluster {
			return testserver.NewAWSBatch(t, env, 16)
		}},
}

// A clusterSite is a cluster, and where its repositories are.
type clusterSite struct {
	clusterKind
	cluster testserver.Cluster
	store   func(testing.TB) string // makes a repository, and returns its location; nil: they are in folders that the nodes share
}

func newClusterSite(t testing.TB, kind clusterKind, env ...string) *clusterSite {
	t.Helper()
	return &clusterSite{clusterKind: kind, cluster: kind.start(t, append(env, "E3_LEASE="+clusterLease.String()))}
}

// clusterStores are where else a repository may be.
var clusterStores = map[string]func(testing.TB) string{
	"DynamoDB and S3": func(t testing.TB) string {
		w := newProxiedWorld(t, clusterLease)
		return w.location(w.dynamodb, w.s3)
	},
	"PostgreSQL and S3": func(t testing.TB) string {
		address, _, _ := strings.Cut(testserver.Postgres(t), "?")
		query := url.Values{"sslmode": {"disable"}, "bucket": {"e3-team"}, "s3-endpoint": {testserver.GoFakeS3(t)}, "s3-region": {testserver.Region}, "lease": {clusterLease.String()}}
		location := address + "/team?" + query.Encode()
		if _, err := repo.Init(context.Background(), location, repo.InitOptions{}); err != nil {
			t.Fatal(err)
		}
		return location
	},
}

// on is the site for a part of the test.
func (s *clusterSite) on(t testing.TB) *clusterSite {
	part := *s
	part.cluster = s.cluster.On(t)
	return &part
}

// play has a test use the cluster.
func (s *clusterSite) play(test func(*clusterSite, *testing.T)) func(*testing.T) {
	return func(t *testing.T) { test(s.on(t), t) }
}

// project makes one with a repository of its own. STATE in its graph is its folder of marks: jobs need not have the variable.
func (s *clusterSite) project(t *testing.T, graph string) *project {
	t.Helper()
	p := newProject(t, map[string]string{"a.txt": "alpha\n", s.profile + ".yaml": s.filledIn(t)})
	p.write("e3.yaml", strings.ReplaceAll(graph, "STATE", p.path("state")))
	if s.store != nil {
		p.location = s.store(t)
		p.env = append(append(p.env, testserver.Env()...), "E3_CACHE_DIR="+p.path("cache"), "E3_STATE_DIR="+p.path("links"), "E3_REPO="+p.location)
	}
	p.env = append(append(p.env, s.cluster.Env()...), "E3_LEASE="+clusterLease.String())
	s.interpose(t, p)
	return p
}

// filledIn is the profile with what it leaves to the user, and a shorter patience with its commands.
func (s *clusterSite) filledIn(t testing.TB) string {
	t.Helper()
	path := "../../jobs/profile/profiles/" + s.profile + ".yaml"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, value := range s.values {
		empty := name + `: ""`
		if !strings.Contains(text, empty) {
			t.Fatalf("%s has no %s", path, empty)
		}
		text = strings.ReplaceAll(text, empty, name+": "+value)
	}
	return text + "timeout: " + s.timeout.String() + "\n"
}

// start are the words of a start on the cluster.
func (s *clusterSite) start(more ...string) []string {
	return append([]string{"start", "-f", "e3.yaml", "--json", "--executor", "./" + s.profile + ".yaml", "--grace", "500ms"}, more...)
}

// The faults of commands, which files in the folder "faults" of a project call for, by the name of what the command does.
const (
	faultFails = "fails" // of a submission: it was submitted, and the answer is lost
	faultHangs = "hangs"
)

// interpose puts a wrapper before each command that submits or lists, on the PATH of e3. A submission's fault plays once, that of a list as long as
// its file is there. Lists are counted.
func (s *clusterSite) interpose(t testing.TB, p *project) {
	t.Helper()
	faults := p.path("faults")
	var path string // the last one holds
	for _, v := range p.env {
		if rest, ok := strings.CutPrefix(v, "PATH="); ok {
			path = rest
		}
	}
	for _, dir := range []string{"faults", "bin"} {
		if err := os.MkdirAll(p.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range slices.Compact([]string{s.submits[0], s.lists[0]}) {
		pattern := func(c [2]string) string {
			if c[0] != command {
				return "nothing"
			}
			return "*" + c[1] + "*"
		}
		script := fmt.Sprintf(`#!/bin/sh
PATH=%[1]s
taken=%[2]s/taken.$$
case "$*" in
%[3]s) if mv %[2]s/submit "$taken" 2>/dev/null; then
	%[5]s "$@" > /dev/null 2>&1
	case $(cat "$taken") in
	fails) echo "connection reset by peer" >&2; exit 1;;
	hangs) exec sleep 1000;;
	esac
fi;;
%[4]s) echo >> %[2]s/polls
	case $(cat %[2]s/list 2>/dev/null) in
	fails) echo "connection refused" >&2; exit 1;;
	hangs) exec sleep 1000;;
	esac;;
esac
exec %[5]s "$@"
`, quoted(path), quoted(faults), pattern(s.submits), pattern(s.lists), command)
		if err := os.WriteFile(p.path("bin/"+command), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append(p.env, "PATH="+p.path("bin")+":"+path)
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// ends waits longer for the end of e3 than is usual.
func (s *clusterSite) ends(t *testing.T, x *process, want int) result {
	t.Helper()
	if !x.endsIn(clusterPatience) {
		t.Fatalf("e3 did not end in %v:\n%s\n%+v\n%s", clusterPatience, x.result().text(), s.cluster.Jobs(), s.cluster.Logs())
	}
	r := x.result()
	if r.code != want {
		t.Fatalf("exit code %d, want %d\n%s\n%+v", r.code, want, r.text(), s.cluster.Jobs())
	}
	return r
}

// gone demands that soon the scheduler has none of these jobs.
func (s *clusterSite) gone(t *testing.T, ids ...string) {
	t.Helper()
	eventually(t, clusterPatience, "an end of the scheduler's jobs", func() string {
		for _, j := range s.cluster.Jobs() {
			if slices.Contains(ids, j.ID) {
				return fmt.Sprintf("%+v is there", j)
			}
		}
		return ""
	})
}

// node is where a job runs.
func (s *clusterSite) node(t *testing.T, id string) string {
	t.Helper()
	for _, j := range s.cluster.Jobs() {
		if j.ID == id {
			return j.Node
		}
	}
	t.Fatalf("the scheduler has no job %s", id)
	return ""
}

// once demands that each key has at most one success, that nothing seems to run, that nothing follows the completion of a
// task, and that the repository is sound.
func (s *clusterSite) once(t *testing.T, p *project, r result) {
	t.Helper()
	n := map[executions.Key]int{}
	for _, e := range p.all() {
		if e.State == record.Running {
			t.Errorf("the execution %s of %s seems to run", e.ExecutionID, e.Detail.Task)
		}
		if e.State == record.Success {
			if n[e.Key]++; n[e.Key] > 1 {
				t.Errorf("task %s has succeeded more than once", e.Detail.Task)
			}
		}
	}
	completed := map[string]bool{}
	for _, e := range r.events(t) { // attempts that are lost fail, and are followed by another
		if (e.Type == events.TaskCompleted || e.Type == events.TaskFailed) && completed[e.Task] {
			t.Errorf("task %s has completed, and then %s", e.Task, e.Type)
		}
		completed[e.Task] = completed[e.Task] || e.Type == events.TaskCompleted
	}
	if p.location == "" {
		checkBut(t, p.repository(), tolerated{fenced: true, killed: true})
	}
	if r := p.e3("verify", p.where()); r.code != 0 {
		t.Errorf("verify: exit code %d\n%s", r.code, r.text())
	}
}

// clusterLong has a task that ends at a sign, and says which job it is.
const clusterLong = `
e3: 1
name: long
inputs:
  a: {file: a.txt}
tasks:
  long: {in: [a], out: long.txt, on_lost: kill, pass_env: [E2E_JOB, JOB_ID, SLURM_JOB_ID], run: 'job=${SLURM_JOB_ID:-}${JOB_ID:-}${E2E_JOB:-}; echo "begun $job" >> STATE/ran; until [ -e STATE/go ]; do sleep 0.1; done; echo "ended $job" >> STATE/ran; cat "$a" > "$out"'}
  last: {in: [long], out: last.txt, run: 'cat "$long" > "$out"'}
`

// A longRun is a run of clusterLong.
type longRun struct {
	s *clusterSite
	t *testing.T
	p *project
	x *process

	// spare is how many executions may have been given up before their command began.
	spare int
}

// long begins one in a workspace of this name, and waits until the command has begun. before is called before the start.
func (s *clusterSite) long(t *testing.T, name string, before ...func(*project)) *longRun {
	t.Helper()
	p := s.project(t, strings.ReplaceAll(clusterLong, "name: long", "name: "+name))
	for _, f := range before {
		f(p)
	}
	l := &longRun{s: s, t: t, p: p, x: p.spawn(s.start()...)}
	l.begun(1)
	return l
}

// begun waits until a command has begun so many times, and tells the job of the last.
func (l *longRun) begun(n int) (job string) {
	l.t.Helper()
	eventually(l.t, clusterPatience, "the commands", func() string {
		select {
		case <-l.x.ended:
			l.t.Fatalf("the run has ended:\n%s", l.x.result().text())
		default:
		}
		ran := l.marks()
		if len(ran) < 2*n {
			return fmt.Sprintf("only these have begun: %q; jobs %+v", ran, l.s.cluster.Jobs())
		}
		job = ran[2*n-1]
		return ""
	})
	return job
}

// again waits until another worker has begun the command once more, or has taken over the first.
func (l *longRun) again() {
	l.t.Helper()
	eventually(l.t, clusterPatience, "another worker", func() string {
		adopted := slices.ContainsFunc(l.x.soFar(), func(line string) bool { return strings.Contains(line, `"type":"task.adopted"`) })
		if len(l.marks()) < 4 && !adopted {
			return fmt.Sprintf("none goes on: %q, %+v", l.marks(), l.s.cluster.Jobs())
		}
		return ""
	})
}

func (l *longRun) marks() []string { return l.p.marks("ran") }

// succeeds lets the command end, and demands that the run does with success, of one command that ended out of at most so many that have begun.
func (l *longRun) succeeds(most int) {
	l.t.Helper()
	l.p.write("state/go", "")
	r := l.s.ends(l.t, l.x, 0)
	l.ended(most)
	l.s.once(l.t, l.p, r)
}

func (l *longRun) ended(most int) {
	l.t.Helper()
	n := map[string]int{}
	for i, word := range l.marks() {
		if i%2 == 0 {
			n[word]++
		}
	}
	if n["begun"] > most || n["ended"] != 1 {
		l.t.Errorf("commands have %v, want one that has ended, and at most %d begun: %q", n, most, l.marks())
	}
	// A command that has begun is an execution on record, and there is a second one only because the first was given up. (The name of the task is in
	// the record that its worker makes, and not in that of a run which finds the worker gone.)
	var states []record.State
	var said []string
	named := l.p.of("long")
	for _, e := range l.p.all() {
		if len(named) > 0 && e.Key == named[0].Key {
			states, said = append(states, e.State), append(said, fmt.Sprintf("%s %s %q", e.ExecutionID, e.State, e.Message))
		}
	}
	want := append(slices.Repeat([]record.State{record.Error}, max(len(states)-1, 0)), record.Success)
	if spare := len(states) - n["begun"]; spare < 0 || spare > l.spare || !slices.Equal(states, want) {
		l.t.Errorf("executions of the task: %v, want one for each of %d commands, and at most %d more, the last with success, the others given up", said, n["begun"], l.spare)
	}
	if got := l.p.output("last"); got != "alpha\n" {
		l.t.Errorf("the last task has made %q, want what the first input is", got)
	}
}

// The scenarios that every scheduler plays: those beside each other, and those that end or change what others need.
var (
	clusterBeside = map[string]func(*clusterSite, *testing.T){
		"cancelled by hand": (*clusterSite).cancelledByHand, "worker killed": (*clusterSite).workerKilled,
		"answer of submit lost": (*clusterSite).answerLost, "submit hangs": (*clusterSite).submitHangs,
		"status fails": (*clusterSite).statusFails, "status hangs": (*clusterSite).statusHangs,
		"held": (*clusterSite).held, "interrupted": (*clusterSite).interrupted, "run killed": (*clusterSite).runKilled,
	}
	clusterLast = []struct {
		name string
		play func(*clusterSite, *testing.T)
	}{{"head node reboots", (*clusterSite).reboots}, {"a node dies", (*clusterSite).nodeDies}}
)

// TestClusters runs dataflows on real schedulers. One without a server here is skipped.
func TestClusters(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	for _, kind := range clusterKinds[1:] { // TestSlurm plays the same, and more
		t.Run(kind.profile, func(t *testing.T) {
			s := newClusterSite(t, kind)
			s.all(t)
		})
	}
}

// TestClusterSmoke is the shortest of them in the quick suite, on the scheduler that starts the fastest, where it is installed.
func TestClusterSmoke(t *testing.T) {
	t.Parallel()
	if !testserver.GridEngineInstalled() {
		t.Skip("Grid Engine is not installed; ./run-tests --all installs it")
	}
	newClusterSite(t, clusterKinds[1]).answerLost(t)
}

// TestClusterStores has the workers of a scheduler use repositories that are in no folder: of one that passes the environment on, and of one whose
// containers have their own.
func TestClusterStores(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	for _, kind := range clusterKinds {
		if kind.profile != "slurm" && kind.profile != "kubernetes" {
			continue
		}
		t.Run(kind.profile, func(t *testing.T) {
			s := newClusterSite(t, kind, append(testserver.Env(), "E3_CACHE_DIR="+t.TempDir(), "E3_STATE_DIR="+t.TempDir())...)
			for name, store := range clusterStores {
				t.Run(name, func(t *testing.T) {
					s := s.on(t)
					s.store = store
					s.many(t, 20)
				})
			}
		})
	}
}

// all plays all scenarios.
func (s *clusterSite) all(t *testing.T) {
	t.Run("many tasks", s.play((*clusterSite).wide))
	t.Run("beside", func(t *testing.T) {
		for name, test := range clusterBeside {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s.play(test)(t)
			})
		}
	})
	for _, last := range clusterLast {
		t.Run(last.name, s.play(last.play))
	}
}

// clusterWide is many tasks that are ready at once.
const clusterWide = `
e3: 1
name: wide
inputs:
  a: {file: a.txt}
tasks:
  part: {in: [a], out: part.txt, matrix: {x: [%s]}, resources: {memory: 10MiB}, timeout: 10m, run: 'echo "$x" >> STATE/ran; echo "$x" > "$out"'}
  last: {in: {parts: "part[*]"}, out: last.txt, run: 'cat "$parts"/* > "$out"'}
`

func (s *clusterSite) wide(t *testing.T) { s.many(t, clusterWidth()) }

func (s *clusterSite) many(t *testing.T, n int) {
	var xs []string
	for i := range n {
		xs = append(xs, strconv.Itoa(1000+i))
	}
	p := s.project(t, fmt.Sprintf(clusterWide, strings.Join(xs, ", ")))
	began := time.Now()
	x := p.spawn(s.start()...)
	limit := clusterPatience + time.Duration(n)*5*time.Second // a command of AWS alone takes seconds on a busy machine
	if !x.endsIn(limit) {
		t.Fatalf("%d tasks did not end in %v:\n%s", n, limit, x.result().text())
	}
	r := s.ends(t, x, 0)
	if strings.Contains(r.text(), "without help") {
		t.Errorf("jobs that wait for others to end are said to need help:\n%s", r.text())
	}
	t.Logf("%d tasks took %v", n, time.Since(began).Round(100*time.Millisecond))
	if ran := slices.Sorted(slices.Values(p.marks("ran"))); !slices.Equal(ran, xs) {
		t.Errorf("%d commands ran, %d of them different, want %d", len(ran), len(slices.Compact(ran)), n)
	}
	if got, want := p.output("last"), strings.Join(xs, "\n")+"\n"; got != want {
		t.Errorf("what was made has %d bytes, want %d", len(got), len(want))
	}
	s.once(t, p, r)
	wantRan(t, s.ends(t, p.spawn(s.start()...), 0)) // all is known
}

// A job is cancelled beside e3.
func (s *clusterSite) cancelledByHand(t *testing.T) {
	l := s.long(t, "outside")
	job := l.begun(1)
	s.cluster.Cancel(job)
	if s.cancelled == "" {
		l.spare = 1 // a worker that is told to end puts the job back, and the run finds that the scheduler has no worker for it
		l.again()
		l.succeeds(2)
		return
	}
	r := s.ends(t, l.x, 1)
	if failure := r.failed(t, "long"); !strings.Contains(failure, job) || !strings.Contains(failure, s.cancelled) {
		t.Errorf("the task has failed by %q, want a word about job %s, and %q", failure, job, s.cancelled)
	}
	s.once(t, l.p, r)
}

// The worker is killed. Another one on its node goes on with its command; elsewhere it begins a second one, after the first was killed.
func (s *clusterSite) workerKilled(t *testing.T) {
	l := s.long(t, "slain")
	killWorkers(t, l.p)
	l.again()
	l.succeeds(2)
}

// killWorkers kills the workers of a project.
func killWorkers(t *testing.T, p *project) {
	t.Helper()
	killed := 0
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		words := strings.Split(string(line), "\x00")
		if len(words) < 2 || words[0] != program || words[1] != "worker" || !slices.ContainsFunc(words, func(word string) bool { return word == p.where() }) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d workers of %s were killed, want 1", killed, p.where())
	}
}

// A job is submitted, but the answer says that it was not.
func (s *clusterSite) answerLost(t *testing.T) {
	s.long(t, "unheard", func(p *project) { p.write("faults/submit", faultFails) }).succeeds(1)
}

// A job is submitted, and the command goes on for ever.
func (s *clusterSite) submitHangs(t *testing.T) {
	s.long(t, "stuck", func(p *project) { p.write("faults/submit", faultHangs) }).succeeds(1)
}

func (s *clusterSite) statusFails(t *testing.T) { s.statusFaulty(t, faultFails) }
func (s *clusterSite) statusHangs(t *testing.T) { s.statusFaulty(t, faultHangs) }

// The command that lists jobs does not, for some time, in which the task ends.
func (s *clusterSite) statusFaulty(t *testing.T, fault string) {
	l := s.long(t, "list"+fault)
	l.p.write("faults/list", fault)
	l.polls(1)
	l.p.write("state/go", "")
	eventually(t, clusterPatience, "the end of the command", func() string {
		if ran := l.marks(); !slices.Contains(ran, "ended") {
			return fmt.Sprintf("it says %q", ran)
		}
		return ""
	})
	if err := os.Remove(l.p.path("faults/list")); err != nil {
		t.Fatal(err)
	}
	l.succeeds(1)
}

// polls waits until jobs are listed so many times more.
func (l *longRun) polls(n int) {
	l.t.Helper()
	count := func() int {
		data, _ := os.ReadFile(l.p.path("faults/polls"))
		return strings.Count(string(data), "\n")
	}
	before := count()
	eventually(l.t, clusterPatience, "polls", func() string {
		if more := count() - before; more < n {
			return fmt.Sprintf("there were %d, want %d", more, n)
		}
		return ""
	})
}

// A job does not start without help: the user is told why.
func (s *clusterSite) held(t *testing.T) {
	if len(s.holds) == 0 {
		t.Skip("the server of this test holds no jobs; Slurm, Grid Engine and Kubernetes do: go test -run TestClusters (apt-get install slurm-wlm gridengine-master)")
	}
	for _, h := range s.holds {
		p := s.project(t, strings.ReplaceAll(clusterLong, "name: long", "name: held"))
		for _, file := range []string{"e3.yaml", s.profile + ".yaml"} {
			text, err := os.ReadFile(p.path(file))
			if err != nil {
				t.Fatal(err)
			}
			p.write(file, strings.ReplaceAll(string(text), cmp.Or(h.old, "\x00"), h.new))
		}
		var more []string
		if h.args != "" {
			more = append(more, h.args)
		}
		x := p.spawnCommand(append([]string{"sh", "-c", `exec "$0" "$@" 2> said`, program}, s.start(more...)...)...)
		eventually(t, clusterPatience, "a warning", func() string {
			select {
			case <-x.ended:
				t.Fatalf("the run has ended:\n%s", x.result().text())
			default:
			}
			said, _ := os.ReadFile(p.path("said"))
			if !strings.Contains(string(said), "without help: "+h.told+"\n") {
				return fmt.Sprintf("e3 says %q, the jobs are %+v", said, s.cluster.Jobs())
			}
			return ""
		})
		x.cmd.Process.Signal(os.Interrupt)
		s.once(t, p, s.ends(t, x, 130))
		if ran := p.marks("ran"); len(ran) > 0 {
			t.Errorf("the command has run: %q", ran)
		}
	}
}

// The run is told to end: it cancels its jobs.
func (s *clusterSite) interrupted(t *testing.T) {
	l := s.long(t, "stopped")
	job := l.begun(1)
	l.x.cmd.Process.Signal(os.Interrupt)
	r := s.ends(t, l.x, 130)
	s.gone(t, job)
	s.once(t, l.p, r)
}

// The process of the run is killed: what the scheduler has begun goes on, and the next run finds it in the cache.
func (s *clusterSite) runKilled(t *testing.T) {
	l := s.long(t, "killed")
	job := l.begun(1)
	l.x.kill(false)
	l.p.write("state/go", "")
	s.gone(t, job)
	l.x = l.p.spawn(s.start()...)
	r := s.ends(t, l.x, 0)
	wantRan(t, r, "last")
	l.ended(1)
	s.once(t, l.p, r)
}

// What answers the scheduler's commands is down for some time, in which the task ends.
func (s *clusterSite) reboots(t *testing.T) {
	l := s.long(t, "reboot")
	s.cluster.StopController()
	l.polls(2) // the first of them has failed
	l.p.write("state/go", "")
	eventually(t, clusterPatience, "the end of the command", func() string {
		if ran := l.marks(); !slices.Contains(ran, "ended") {
			return fmt.Sprintf("it says %q", ran)
		}
		return ""
	})
	s.cluster.StartController()
	l.succeeds(1)
}

// A node is gone with all that runs there: another worker gives the first execution up once the lease is over.
func (s *clusterSite) nodeDies(t *testing.T) {
	cluster, ok := s.cluster.(testserver.NodeCluster)
	if !ok {
		t.Skip("its jobs have no nodes here")
	}
	l := s.long(t, "crash")
	cluster.Crash(s.node(t, l.begun(1)))
	l.begun(2)
	l.succeeds(2)
}
