//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// slurmDemands is tasks that only one of the two nodes may execute.
const slurmDemands = `
e3: 1
name: demands
inputs:
  a: {file: a.txt}
tasks:
  tape: {in: [a], out: tape.txt, resources: {tape: 1}, run: 'hostname > "$out"'}
  last: {in: [tape], out: last.txt, labels: [small], run: 'cat "$tape" > "$out"; hostname >> "$out"'}
`

const slurmWhere = `
e3: 1
name: allocated
inputs:
  a: {file: a.txt}
tasks:
  last: {in: [a], out: last.txt, run: 'hostname > "$out"'}
`

// TestSlurm runs dataflows on a real Slurm: two nodes, which are namespaces of this machine.
func TestSlurm(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	for _, store := range []string{"folder", "DynamoDB and S3"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := newClusterSite(t, clusterKinds[0])
			s.store = clusterStores[store]
			t.Run("Slurm alone", func(t *testing.T) {
				for name, test := range map[string]func(*clusterSite, *testing.T){
					"demands": (*clusterSite).demands, "time limit": (*clusterSite).timeLimit, "worker in an allocation": (*clusterSite).allocation,
					"no e3 there": (*clusterSite).noProgram, "retried": (*clusterSite).retried, "stands still": (*clusterSite).standsStill,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						s.play(test)(t)
					})
				}
			})
			t.Run("a node cut off", s.play((*clusterSite).cutOff))
			s.all(t)
		})
	}
}

// slurm is the cluster of a site that has Slurm.
func (s *clusterSite) slurm() *testserver.Slurm { return s.cluster.(*testserver.Slurm) }

func (s *clusterSite) demands(t *testing.T) {
	p := s.project(t, slurmDemands)
	s.ends(t, p.spawn(s.start()...), 0)
	if got := p.output("last"); got != "n1\nn2\n" {
		t.Errorf("what was made is %q, want the node that has the tape, then the one with the feature", got)
	}
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

func (s *clusterSite) timeLimit(t *testing.T) {
	l := s.long(t, "limit")
	s.slurm().Run("scontrol", "update", "JobId="+l.begun(1), "EndTime=now+1")
	r := s.ends(t, l.x, 124)
	if failure := r.failed(t, "long"); !strings.Contains(failure, "time limit") {
		t.Errorf("the task has failed by %q, want a word about the time limit", failure)
	}
	s.once(t, l.p, r)
}

// A task that was queued again is made by the next run: no other process submits it.
func (s *clusterSite) retried(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(strings.ReplaceAll(clusterLong, "name: long", "name: again"), "until [ -e STATE/go ]; do sleep 0.1; done", "[ -e STATE/go ]"))
	s.ends(t, p.spawn(s.start()...), 1)
	if r := p.e3("queue", "retry", p.where(), "again.long"); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	p.write("state/go", "")
	r := s.ends(t, p.spawn(s.start()...), 0)
	wantRan(t, r, "last", "long")
	s.once(t, p, r)
}

// e3 worker in an allocation takes what any run wants executed.
func (s *clusterSite) allocation(t *testing.T) {
	p := s.project(t, slurmWhere)
	worker := p.spawnCommand("srun", "--job-name=allocation", "--nodelist=n2", program, "worker", p.where(), "--idle", "3s", "--for", "1m")
	r := s.ends(t, p.spawn("start", "-f", "e3.yaml", "--json", "--workers"), 0)
	if got := p.output("last"); got != "n2\n" {
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

func (s *clusterSite) noProgram(t *testing.T) {
	p := s.project(t, strings.ReplaceAll(clusterLong, "name: long", "name: bare"))
	r := s.ends(t, p.spawn(s.start("--executor-program", "/nowhere/e3")...), 1)
	if failure := r.failed(t, "long"); !strings.Contains(failure, "/nowhere/e3: not found") {
		t.Errorf("the task has failed by %q, want a word about the program that the node lacks", failure)
	}
	s.once(t, p, r)
}

// A node does not answer Slurm any more, while what runs there goes on. Slurm requeues the job: a second worker
// begins, and waits while the first has the lease. Whatever they do, one result is committed.
func (s *clusterSite) cutOff(t *testing.T) {
	l := s.long(t, "cut")
	job := l.begun(1)
	node := s.node(t, job)
	s.slurm().CutOff(node)
	eventually(t, clusterPatience, "a second start", func() string {
		for _, j := range s.cluster.Jobs() {
			if j.ID == job && j.Running && j.Node != node {
				return ""
			}
		}
		return fmt.Sprintf("there are only %+v", s.cluster.Jobs())
	})
	l.succeeds(1)
	if n := len(l.p.of("long")); n != 1 {
		t.Errorf("%d executions of the task, want the one that went on", n)
	}
	s.slurm().Return(node)
	s.gone(t, job)
}
