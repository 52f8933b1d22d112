//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// slurmPatience is for what waits for Slurm to find out by itself: that a node is down (some seconds), that a time
// limit is over (half a minute).
const slurmPatience = 3 * time.Minute

// slurmLease is long enough for a machine that starts many workers at a time.
const slurmLease = 10 * time.Second

// slurmGraph is 200 tasks, of different demands.
const slurmGraph = `
e3: 1
name: wide
inputs:
  a: {file: a.txt}
tasks:
  part: {in: [a], out: part.txt, matrix: {x: [%s], y: [0, 1]}, pass_env: [E2E_STATE], resources: {memory: 10MiB}, timeout: 10m, run: 'echo "$x$y" >> "$E2E_STATE/ran"; echo "$x$y" > "$out"'}
  tape: {in: {parts: "part[*]"}, out: tape.txt, resources: {tape: 1}, run: 'cat "$parts"/* > "$out"; hostname >> "$out"'}
  last: {in: [tape], out: last.txt, labels: [small], run: 'cat "$tape" > "$out"; hostname >> "$out"'}
`

// slurmLong has a task that ends at a sign, and says on which node it is.
const slurmLong = `
e3: 1
name: long
inputs:
  a: {file: a.txt}
tasks:
  long: {in: [a], out: long.txt, pass_env: [E2E_STATE], run: 'echo "begun $(hostname)" >> "$E2E_STATE/ran"; until [ -e "$E2E_STATE/go" ]; do sleep 0.1; done; echo "ended $(hostname)" >> "$E2E_STATE/ran"; cat "$a" > "$out"; hostname >> "$out"'}
  last: {in: [long], out: last.txt, run: 'cat "$long" > "$out"'}
`

var slurmStart = []string{"start", "-f", "e3.yaml", "--json", "--executor", "slurm", "--grace", "500ms"}

// A slurmSite is a cluster, and where its repositories are.
type slurmSite struct {
	cluster *testserver.Slurm
	w       *world // nil: in folders that the nodes share
}

// project makes one with a repository of its own.
func (s *slurmSite) project(t *testing.T, graph string) *project {
	t.Helper()
	files := map[string]string{"e3.yaml": graph, "a.txt": "alpha\n"}
	var p *project
	if s.w == nil {
		p = newProject(t, files)
	} else {
		w := newProxiedWorld(t, s.w.lease)
		p = newProject(t, files)
		p.location = w.location(w.dynamodb, w.s3)
		p.env = append(append(p.env, testserver.Env()...), "E3_CACHE_DIR="+p.path("cache"), "E3_STATE_DIR="+p.path("links"), "E3_REPO="+p.location)
	}
	p.env = append(append(p.env, s.cluster.Env()...), "E3_LEASE="+slurmLease.String())
	return p
}

// queued waits for what squeue lists of a job with this in its name.
func (s *slurmSite) queued(t *testing.T, state, name string) (id string) {
	t.Helper()
	eventually(t, slurmPatience, "a job of Slurm's for "+name, func() string {
		list := s.cluster.Run("squeue", "--noheader", "--array", "--states="+state, "--format=%A %j")
		for line := range strings.Lines(list) {
			if number, named, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(named, name) {
				id = number
				return ""
			}
		}
		return "there are only:\n" + list
	})
	return id
}

// left demands that soon Slurm has nothing to do for jobs with this in their name.
func (s *slurmSite) left(t *testing.T, name string) {
	t.Helper()
	eventually(t, slurmPatience, "an end of Slurm's jobs", func() string {
		if list := s.cluster.Run("squeue", "--noheader", "--format=%A %j %T"); strings.Contains(list, name) {
			return list
		}
		return ""
	})
}

// ends waits longer for the end of e3 than is usual.
func (s *slurmSite) ends(t *testing.T, x *process, want int) result {
	t.Helper()
	if !x.endsIn(slurmPatience) {
		t.Fatalf("e3 did not end in %v:\n%s\n%s\n%s", slurmPatience, x.result().text(), s.cluster.Run("squeue", "--states=all"), s.cluster.Logs())
	}
	r := x.result()
	if r.code != want {
		t.Fatalf("exit code %d, want %d\n%s\n%s", r.code, want, r.text(), s.cluster.Run("squeue", "--states=all"))
	}
	return r
}

// once demands that each key has at most one success, that nothing seems to run, and that nothing follows the
// completion of a task.
func (s *slurmSite) once(t *testing.T, p *project, r result) {
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
}

// TestSlurm runs dataflows on a real Slurm: two nodes, which are namespaces of this machine.
func TestSlurm(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	for _, store := range []string{"folder", "DynamoDB and S3"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := &slurmSite{cluster: testserver.NewSlurm(t, testserver.SlurmNodes())}
			if store != "folder" {
				s.w = &world{lease: slurmLease}
			}
			t.Run("200 tasks", s.play((*slurmSite).wide))
			t.Run("beside", func(t *testing.T) {
				for name, test := range map[string]func(*slurmSite, *testing.T){
					"scancel": (*slurmSite).scancelled, "time limit": (*slurmSite).timeLimit, "interrupted": (*slurmSite).interrupted,
					"worker in an allocation": (*slurmSite).allocation, "no e3 there": (*slurmSite).noProgram, "killed": (*slurmSite).killed,
					"retried": (*slurmSite).retried, "stands still": (*slurmSite).standsStill,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						s.play(test)(t)
					})
				}
			})
			t.Run("a node cut off", s.play((*slurmSite).cutOff))
			t.Run("a node crashes", s.play((*slurmSite).crash))
		})
	}
}

// play has a test use the cluster.
func (s *slurmSite) play(test func(*slurmSite, *testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		test(&slurmSite{cluster: s.cluster.On(t), w: s.w}, t)
	}
}

func (s *slurmSite) wide(t *testing.T) {
	var xs []string
	for i := range 99 {
		xs = append(xs, fmt.Sprint(1000+i))
	}
	p := s.project(t, fmt.Sprintf(slurmGraph, strings.Join(xs, ", ")))
	began := time.Now()
	r := s.ends(t, p.spawn(slurmStart...), 0)
	t.Logf("200 tasks took %v in %d submissions", time.Since(began).Round(time.Millisecond),
		len(slices.Compact(slices.Sorted(slices.Values(strings.Fields(s.cluster.Run("squeue", "--noheader", "--states=all", "--format=%F")))))))
	if ran := p.marks("ran"); len(ran) != 198 || len(slices.Compact(slices.Sorted(slices.Values(ran)))) != 198 {
		t.Errorf("%d commands ran, %d of them different, want 198", len(ran), len(slices.Compact(slices.Sorted(slices.Values(ran)))))
	}
	if got := p.e3("get", "wide.last").stdout; !strings.HasSuffix(got, "\nn1\nn2\n") || strings.Count(got, "\n") != 200 {
		t.Errorf("what was made ends in %q and has %d lines, want 200 and the nodes that have the tape, then the feature", tail(got), strings.Count(got, "\n"))
	}
	s.once(t, p, r)
	wantRan(t, s.ends(t, p.spawn(slurmStart...), 0)) // all is known
}

func (s *slurmSite) scancelled(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: outside"))
	x := p.spawn(slurmStart...)
	id := s.queued(t, "RUNNING", "e3:outside.long")
	p.begun(1)
	s.cluster.Run("scancel", id)
	r := s.ends(t, x, 1)
	failure := r.failed(t, "long")
	if !strings.Contains(failure, "Slurm's job "+id) || !strings.Contains(failure, "cancelled") {
		t.Errorf("the task has failed by %q, want a word about Slurm's job %s", failure, id)
	}
	s.once(t, p, r)
}

// begun waits until so many commands of slurmLong have begun.
func (p *project) begun(n int) {
	p.t.Helper()
	eventually(p.t, slurmPatience, "the commands", func() string {
		if ran := p.marks("ran"); len(ran) < 2*n {
			return fmt.Sprintf("only these have begun: %q", ran)
		}
		return ""
	})
}

// failed is the message with which the last attempt at a task has failed.
func (r result) failed(t *testing.T, task string) (message string) {
	t.Helper()
	for _, e := range r.events(t) {
		if e.Type == events.TaskFailed && e.Task == task && e.Data != nil {
			message = e.Data.Message
		}
	}
	if message == "" {
		t.Errorf("task %s has not failed\n%s", task, r.text())
	}
	return message
}

func (s *slurmSite) timeLimit(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: limit"))
	x := p.spawn(slurmStart...)
	id := s.queued(t, "RUNNING", "e3:limit.long")
	s.cluster.Run("scontrol", "update", "JobId="+id, "EndTime=now+1")
	r := s.ends(t, x, 124)
	if failure := r.failed(t, "long"); !strings.Contains(failure, "time limit") {
		t.Errorf("the task has failed by %q, want a word about the time limit", failure)
	}
	s.once(t, p, r)
}

func (s *slurmSite) interrupted(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: stopped"))
	p.write("e3.yaml", strings.ReplaceAll(p.read("e3.yaml"), "in: [a]", "in: [a], matrix: {n: [1, 2, 3, 4]}"))
	p.write("e3.yaml", strings.ReplaceAll(p.read("e3.yaml"), "{in: [long], out: last.txt, run: 'cat \"$long\"", "{in: {long: \"long[*]\"}, out: last.txt, run: 'cat \"$long\"/*"))
	x := p.spawn(slurmStart...)
	s.queued(t, "RUNNING", "e3:stopped.long")
	p.begun(4)
	x.cmd.Process.Signal(os.Interrupt)
	r := s.ends(t, x, 130)
	s.left(t, "e3:stopped")
	s.once(t, p, r)
}

// The process of the run is killed: what Slurm has begun goes on, and the next run finds it in the cache.
func (s *slurmSite) killed(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: killed"))
	x := p.spawn(slurmStart...)
	p.begun(1)
	x.kill(false)
	p.write("state/go", "")
	s.left(t, "e3:killed")
	r := s.ends(t, p.spawn(slurmStart...), 0)
	wantRan(t, r, "last")
	s.once(t, p, r)
}

// A task that was queued again is made by the next run: no other process submits it.
func (s *slurmSite) retried(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(strings.ReplaceAll(slurmLong, "name: long", "name: again"), "until [ -e \"$E2E_STATE/go\" ]; do sleep 0.1; done", "[ -e \"$E2E_STATE/go\" ]"))
	s.ends(t, p.spawn(slurmStart...), 1)
	if r := p.e3("queue", "retry", p.where(), "again.long"); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	p.write("state/go", "")
	r := s.ends(t, p.spawn(slurmStart...), 0)
	wantRan(t, r, "last", "long")
	s.once(t, p, r)
}

// e3 worker in an allocation takes what any run wants executed.
func (s *slurmSite) allocation(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: allocated"))
	p.write("state/go", "")
	worker := p.spawnCommand("srun", "--job-name=allocation", "--nodelist=n2", program, "worker", p.where(), "--idle", "3s", "--for", "1m")
	r := s.ends(t, p.spawn("start", "-f", "e3.yaml", "--json", "--workers"), 0)
	if got := p.e3("get", "allocated.last").stdout; got != "alpha\nn2\n" {
		t.Errorf("what was made is %q, want it to come from n2", got)
	}
	s.ends(t, worker, 0)
	s.once(t, p, r)
}

// where is the repository for an e3 in another folder.
func (p *project) where() string {
	if p.location != "" {
		return p.location
	}
	return p.repository()
}

func (s *slurmSite) noProgram(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: bare"))
	r := s.ends(t, p.spawn(append(slurmStart, "--executor-program", "/nowhere/e3")...), 1)
	if failure := r.failed(t, "long"); !strings.Contains(failure, "/nowhere/e3: not found") {
		t.Errorf("the task has failed by %q, want a word about the program that the node lacks", failure)
	}
	s.once(t, p, r)
}

// A node does not answer Slurm any more, while what runs there goes on. Slurm requeues the job: a second worker
// begins, and waits while the first has the lease. Whatever they do, one result is committed.
func (s *slurmSite) cutOff(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: cut"))
	x := p.spawn(slurmStart...)
	s.queued(t, "RUNNING", "e3:cut.long")
	p.begun(1)
	node := p.marks("ran")[1]
	s.cluster.CutOff(node)
	other := map[string]string{"n1": "n2", "n2": "n1"}[node]
	eventually(t, slurmPatience, "a second start", func() string {
		list := s.cluster.Run("squeue", "--noheader", "--states=all", "--format=%j %T %N")
		if strings.Contains(list, "e3:cut.long RUNNING "+other) {
			return ""
		}
		return "there are only:\n" + list
	})
	p.write("state/go", "")
	r := s.ends(t, x, 0)
	if got := p.e3("get", "cut.last").stdout; got != "alpha\n"+node+"\n" {
		t.Errorf("what was made is %q, want it to come from %s, where the first copy went on", got, node)
	}
	if ran, want := p.marks("ran"), []string{"begun", node, "ended", node}; !slices.Equal(ran, want) {
		t.Errorf("the command ran as %q, want %q", ran, want)
	}
	s.once(t, p, r)
	if n := len(p.of("long")); n != 1 {
		t.Errorf("%d executions of the task, want the one that went on", n)
	}
	s.cluster.Return(node)
	s.left(t, "e3:cut")
}

// A node is gone with all that runs there. Slurm requeues the job, and its second worker gives the first execution up
// once the lease is over.
func (s *slurmSite) crash(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(slurmLong, "name: long", "name: crash"))
	x := p.spawn(slurmStart...)
	p.begun(1)
	node := p.marks("ran")[1]
	s.cluster.Crash(node)
	p.begun(2)
	p.write("state/go", "")
	r := s.ends(t, x, 0)
	other := map[string]string{"n1": "n2", "n2": "n1"}[node]
	if ran, want := p.marks("ran"), []string{"begun", node, "begun", other, "ended", other}; !slices.Equal(ran, want) {
		t.Errorf("the command ran as %q, want %q", ran, want)
	}
	var states []record.State
	for _, e := range p.of("long") {
		states = append(states, e.State)
	}
	if !slices.Equal(states, []record.State{record.Error, record.Success}) {
		t.Errorf("executions of the task: %v, want one that was given up, and one that succeeded", states)
	}
	s.once(t, p, r)
}
