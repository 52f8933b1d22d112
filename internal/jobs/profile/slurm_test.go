//go:build linux

package profile_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/profile"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// limit bounds waits for the cluster, since the machine may be busy.
const limit = 2 * time.Minute

// slurm is the shipped profile of Slurm.
func slurm(t *testing.T) *profile.Profile {
	t.Helper()
	text, err := profile.Shipped.ReadFile("profiles/slurm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Decode("slurm", "slurm.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A fixture is a submitter for a cluster, and a program in place of e3 whose behaviour depends on the job's id.
type fixture struct {
	t       *testing.T
	cluster *testserver.Slurm
	s       *cluster.Submitter
	dir     string // where the program writes the names of the jobs that it was started for

	mu     sync.Mutex
	gone   map[string]dispatch.Gone
	warned []string
	news   chan struct{} // closed and replaced with each change
}

// standIn is called like e3. Ids are <behaviour>.<anything>.
const standIn = `#!/bin/sh
ref=$4
echo "$SLURMD_NODENAME $SLURM_CPUS_PER_TASK $*" >> "$DIR/ran-${ref#*/}"
case ${ref#*/} in
ok*) exit 0 ;;
code*) echo "the store is away" >&2; exit 3 ;;
kill*) kill -9 $$ ;;
wait*) while ! [ -e "$DIR/go" ]; do sleep 0.1; done ;;
long*) exec sleep 1000 ;;
esac
`

func newFixture(t *testing.T, server *testserver.Slurm, change func(*profile.Options, *cluster.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, cluster: server.On(t).(*testserver.Slurm), dir: t.TempDir(), gone: make(map[string]dispatch.Gone), news: make(chan struct{})}
	program := filepath.Join(t.TempDir(), "e3'standin") // Slurm itself loses processes with a space in their names
	if err := os.WriteFile(program, []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	o := profile.Options{Env: append(append(os.Environ(), server.Env()...), "DIR="+f.dir, "SLURM_MEM_PER_NODE=1", "SQUEUE_STATES=PENDING")}
	c := cluster.Options{
		Program: program, Repo: "/some/re'po\n#SBATCH --wrap=true", Logs: t.TempDir(),
		Warn: func(text string) {
			f.change(func() { f.warned = append(f.warned, text) })
		},
	}
	if change != nil {
		change(&o, &c)
	}
	scheduler, err := slurm(t).Scheduler(o)
	if err != nil {
		t.Fatal(err)
	}
	f.s = cluster.New(scheduler, c)
	f.s.Gone(func(g dispatch.Gone) {
		f.change(func() {
			if was, there := f.gone[g.ID]; there {
				t.Errorf("%s is gone twice: %+v, then %+v", g.ID, was, g)
			}
			f.gone[g.ID] = g
		})
	})
	t.Cleanup(f.s.Close)
	return f
}

// change records a report.
func (f *fixture) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
	close(f.news)
	f.news = make(chan struct{})
}

// until waits for a condition.
func (f *fixture) until(what string, is func() bool) {
	f.t.Helper()
	timeout := time.After(limit)
	tick := time.NewTicker(100 * time.Millisecond) // for conditions without a report
	defer tick.Stop()
	for {
		f.mu.Lock()
		ok, news := is(), f.news
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-tick.C:
		case <-timeout:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("waited %v for %s; gone: %v; warnings: %q\n%s\n%s", limit, what, f.gone, f.warned, f.cluster.Run("squeue", "--states=all"), f.cluster.Logs())
		}
	}
}

// submit submits jobs with these demands each.
func (f *fixture) submit(policy record.Policy, ids ...string) {
	f.t.Helper()
	var jobs []queue.Job
	for _, id := range ids {
		jobs = append(jobs, queue.Job{ID: id, Queue: "slurm", Workspace: "dev", Task: "a task\n#SBATCH " + id, Policy: policy})
	}
	if err := f.s.Submit(f.t.Context(), jobs); err != nil {
		f.t.Fatal(err)
	}
}

// await waits until all these jobs are gone for the reason, and returns the message of the first.
func (f *fixture) await(reason executions.Reason, ids ...string) string {
	f.t.Helper()
	f.until("the end of "+strings.Join(ids, ", "), func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { _, ok := f.gone[id]; return !ok })
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if g := f.gone[id]; g.Reason != string(reason) {
			f.t.Errorf("%s is gone as %q (%s), want %q", id, g.Reason, g.Message, reason)
		}
	}
	return f.gone[ids[0]].Message
}

// runs returns the program's starts for a job, once there are as many as wanted.
func (f *fixture) runs(id string, want int) (lines []string) {
	f.t.Helper()
	f.until(fmt.Sprintf("start %d of %s", want, id), func() bool {
		text, _ := os.ReadFile(filepath.Join(f.dir, "ran-"+id))
		lines = strings.FieldsFunc(strings.ReplaceAll(string(text), "\n#SBATCH", " #SBATCH"), func(r rune) bool { return r == '\n' })
		return len(lines) >= want
	})
	return lines
}

// slurmID is Slurm's id of a running job.
func (f *fixture) slurmID(id string) string {
	f.t.Helper()
	var found string
	f.until("a running job named after "+id, func() bool {
		for line := range strings.Lines(f.cluster.Run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%A %j")) {
			if number, name, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasSuffix(name, id) {
				found = number
			}
		}
		return found != ""
	})
	return found
}

func TestSlurm(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	server := testserver.NewSlurm(t, testserver.SlurmNodes(), "MaxArraySize=5")

	t.Run("arrays", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, nil)
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprintf("ok.array.%d", i))
		}
		f.submit(record.Policy{CPU: 1.5, Memory: 10 << 20, Timeout: time.Minute}, ids...)
		f.await(executions.ReasonLost, ids...)
		var arrays []string
		for line := range strings.Lines(server.Run("squeue", "--noheader", "--states=all", "--array", "--format=%F %j")) {
			if array, name, _ := strings.Cut(line, " "); strings.HasPrefix(name, "e3:dev.a_task_#SBATCH_ok.array.") {
				arrays = append(arrays, array)
			}
		}
		slices.Sort(arrays)
		if n := len(slices.Compact(slices.Clone(arrays))); n != 4 || len(arrays) != 12 { // halved until Slurm takes them
			t.Errorf("12 jobs in arrays of at most 5 were submitted as %q", arrays)
		}
		for _, id := range ids {
			lines := f.runs(id, 1)
			if want := "2 worker /some/re'po #SBATCH --wrap=true --job slurm/" + id; len(lines) != 1 || !strings.HasSuffix(lines[0], want) {
				t.Errorf("%s ran as %q, want once and to end in %q", id, lines, want)
			}
		}
	})
	t.Run("where they fit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, func(o *profile.Options, c *cluster.Options) {
			o.Resources = map[string]string{"drive": "tape", "database": ""}
		})
		jobs := []queue.Job{
			{ID: "ok.tape", Queue: "q", Policy: record.Policy{Resources: []record.Amount{{Name: "drive", Value: 2}, {Name: "database", Value: 9}}}},
			{ID: "ok.small", Queue: "q", Labels: []string{"small"}},
		}
		if err := f.s.Submit(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		for id, node := range map[string]string{"ok.tape": "n1", "ok.small": "n2"} {
			if lines := f.runs(id, 1); !strings.HasPrefix(lines[0], node+" ") {
				t.Errorf("%s ran as %q, want on %s", id, lines, node)
			}
		}
	})
	t.Run("scripts that fail", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "code.1", "kill.1", "ok.1")
		if got := f.await(executions.ReasonLost, "code.1"); !strings.Contains(got, "exited with code 3: the store is away") {
			t.Errorf("a worker that fails: got %q", got)
		}
		if got := f.await(executions.ReasonLost, "kill.1"); !strings.Contains(got, "signal 9") {
			t.Errorf("a worker that is killed: got %q", got)
		}
		f = newFixture(t, server, func(o *profile.Options, c *cluster.Options) { c.Program = "/nowhere/e3" })
		f.submit(record.Policy{}, "ok.1", "ok.2")
		if got := f.await(executions.ReasonStart, "ok.1", "ok.2"); !strings.Contains(got, "could not start e3") || !strings.Contains(got, "/nowhere/e3: not found") {
			t.Errorf("nodes without e3: got %q", got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, nil)
		f.submit(record.Policy{Memory: 1 << 40}, "ok.memory.1", "ok.memory.2")
		f.submit(record.Policy{Resources: []record.Amount{{Name: "gpu", Value: 1}}}, "ok.gpu")
		if err := f.s.Submit(t.Context(), []queue.Job{{ID: "ok.label", Queue: "q", Labels: []string{"a|b"}}}); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]string{"ok.memory.1": "Memory specification can not be satisfied", "ok.gpu": "gres", "ok.label": "label"} {
			if got := f.await(executions.ReasonStart, id); !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want it to have %q", id, got, want)
			}
		}
	})
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, func(o *profile.Options, c *cluster.Options) { o.Args = []string{"--hold"} })
		f.submit(record.Policy{}, "ok.1", "ok.2")
		f.until("a warning", func() bool { return len(f.warned) > 0 })
		if len(f.warned) != 1 || !strings.Contains(f.warned[0], "JobHeldUser") {
			t.Errorf("two jobs that are held: got warnings %q, want one", f.warned)
		}
		if err := f.s.Cancel(t.Context(), []string{"ok.1", "ok.2"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "long.1", "long.2", "long.3", "wait.4")
		for _, id := range []string{"long.1", "long.2", "long.3", "wait.4"} {
			f.runs(id, 1)
		}
		if err := f.s.Cancel(t.Context(), []string{"long.1", "long.2", "unknown"}); err != nil {
			t.Error(err)
		}
		outside := strings.Fields(server.Run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%A", "--name=e3:dev.a_task_#SBATCH_"))
		server.Run("scancel", outside...) // whichever still run, wait.4 among them
		if got := f.await(executions.ReasonCancelled, "long.3", "wait.4"); !strings.Contains(got, "was cancelled") {
			t.Errorf("scancel from outside: got %q", got)
		}
		f.submit(record.Policy{}, "long.3") // a new worker for the same job
		f.runs("long.3", 2)
		if err := f.s.Cancel(t.Context(), []string{"long.3"}); err != nil {
			t.Error(err)
		}
		f.until("an empty queue", func() bool {
			return server.Run("squeue", "--noheader", "--name=e3:dev.a_task_#SBATCH_,e3:dev.a_task_#SBATCH_long.3") == ""
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		if ids := slices.Sorted(maps.Keys(f.gone)); !slices.Equal(ids, []string{"long.3", "wait.4"}) {
			t.Errorf("gone: got %q, want only those that were cancelled elsewhere", ids)
		}
	})
	t.Run("time limit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "long.time")
		server.Run("scontrol", "update", "JobId="+f.slurmID("long.time"), "EndTime=now+1")
		if got := f.await(executions.ReasonTimeout, "long.time"); !strings.Contains(got, "time limit") {
			t.Errorf("got %q", got)
		}
	})
}

// A controller that is down costs time only.
func TestControllerAway(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	server := testserver.NewSlurm(t, testserver.SlurmNodes())
	f := newFixture(t, server, nil)
	f.submit(record.Policy{}, "wait.1", "wait.2", "wait.3", "long.4")
	for _, id := range []string{"wait.1", "wait.2", "wait.3", "long.4"} {
		f.runs(id, 1)
	}
	server.StopController()
	f.submit(record.Policy{}, "ok.later")
	if err := os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.until("a warning", func() bool { return len(f.warned) > 0 })
	cancelled := make(chan error, 1)
	go func() { cancelled <- f.s.Cancel(t.Context(), []string{"long.4"}) }()
	server.StartController()
	f.await(executions.ReasonLost, "wait.1", "wait.2", "wait.3", "ok.later")
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
	if lines := f.runs("ok.later", 1); len(lines) != 1 {
		t.Errorf("started %d times, want once", len(lines))
	}
	f.until("an empty queue", func() bool { return server.Run("squeue", "--noheader") == "" })
}

// The job of a disconnected node is requeued, while the first copy continues; that of a crashed node is not, if the
// user does not want that.
func TestNodeLost(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	server := testserver.NewSlurm(t, testserver.SlurmNodes())
	again, once := newFixture(t, server, nil), newFixture(t, server, func(o *profile.Options, c *cluster.Options) { o.Args = []string{"--no-requeue", "--nodelist=n1"} })
	again.submit(record.Policy{}, "wait.again")
	first := strings.Fields(again.runs("wait.again", 1)[0])[0]
	once.submit(record.Policy{}, "wait.once")
	once.runs("wait.once", 1)
	if first != "n1" {
		t.Fatalf("the first job is on %s, and the test wants n1", first)
	}
	server.CutOff("n1")
	if got := once.await(executions.ReasonLost, "wait.once"); !strings.Contains(got, "was lost: NODE_FAIL") {
		t.Errorf("a job that is not requeued: got %q", got)
	}
	if lines := again.runs("wait.again", 2); !strings.HasPrefix(lines[1], "n2 ") {
		t.Errorf("a job that is requeued: started as %q, want on n1, then on n2", lines)
	}
	if err := os.WriteFile(filepath.Join(again.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	again.await(executions.ReasonLost, "wait.again")
	server.Return("n1")
}

func TestNoSlurm(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := slurm(t).Scheduler(profile.Options{}); err == nil || !strings.Contains(err.Error(), "sbatch") {
		t.Errorf("without Slurm's commands: got %v, want an error that says so", err)
	}
}

// withSbatch puts a script before the real sbatch on the PATH; in it $1 is a folder, and $2 the real one.
func withSbatch(t *testing.T, script string) {
	t.Helper()
	real, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script = strings.NewReplacer("$1", bin, "$2", real).Replace("#!/bin/sh\n" + script)
	if err := os.WriteFile(filepath.Join(bin, "sbatch"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

func TestAnswers(t *testing.T) {
	suite.Thorough(t)
	server := testserver.NewSlurm(t, testserver.SlurmNodes())
	t.Run("one that is lost", func(t *testing.T) { // what was done is found, and not done again
		withSbatch(t, `[ -e $1/lost ] && exec $2 "$@"
$2 "$@" >$1/lost
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1
`)
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "ok.lost")
		f.await(executions.ReasonLost, "ok.lost")
		if lines := f.runs("ok.lost", 1); len(lines) != 1 {
			t.Errorf("started %d times, want once", len(lines))
		}
		if len(f.warned) != 1 || !strings.Contains(f.warned[0], "Socket timed out") {
			t.Errorf("warnings: got %q, want one of what does not answer", f.warned)
		}
	})
	t.Run("two", func(t *testing.T) { // the unknown one is cancelled
		withSbatch(t, `cat >$1/script
$2 "$@" --hold <$1/script >&2
exec $2 "$@" <$1/script
`)
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "wait.twice")
		f.runs("wait.twice", 1)
		f.until("one job", func() bool {
			return strings.TrimSpace(server.Run("squeue", "--noheader", "--format=%T")) == "RUNNING"
		})
		if err := f.s.Cancel(t.Context(), []string{"wait.twice"}); err != nil {
			t.Error(err)
		}
	})
	t.Run("one without a number", func(t *testing.T) { // looked for like one that is lost
		withSbatch(t, `$2 "$@" >/dev/null
echo all is well
`)
		f := newFixture(t, server, nil)
		f.submit(record.Policy{}, "ok.odd")
		f.await(executions.ReasonLost, "ok.odd")
		if lines := f.runs("ok.odd", 1); len(lines) != 1 {
			t.Errorf("started %d times, want once", len(lines))
		}
	})
}
