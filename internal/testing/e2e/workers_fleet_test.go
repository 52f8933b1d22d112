//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/testing/testserver"
	"e3/refstore"
)

// A fleet is a repository and machines with workers. What tasks leave as marks is in one folder of all.
type fleet struct {
	t     testing.TB
	kind  string // "fs", "dynamo" or "postgres"
	w     *world
	lease time.Duration
	root  string // of the repository, if it is a folder
	state string
	// volume has the repository in a file system of its own; nil: it has none
	volume *volume

	machines []*machine
}

// fleetKinds are where the repository of a fleet may be.
var fleetKinds = []string{"fs", "dynamo", "postgres"}

// newFleet makes a repository, and machines with these files in their projects.
func newFleet(t testing.TB, kind string, lease time.Duration, machines int, files map[string]string) *fleet {
	t.Helper()
	common := newProject(t, nil)
	return newFleetIn(t, common, common.path("shared"), kind, lease, machines, files)
}

// newFleetIn is newFleet with the folder that a repository in a folder is to be in.
func newFleetIn(t testing.TB, common *project, dir, kind string, lease time.Duration, machines int, files map[string]string) *fleet {
	t.Helper()
	f := &fleet{t: t, kind: kind, lease: lease, state: common.path("state")}
	switch kind {
	case "dynamo":
		f.w = newProxiedWorld(t, lease)
	case "postgres":
		f.w = newPostgresWorld(t, lease)
	default:
		f.root = filepath.Join(dir, ".e3")
		f.w = &world{t: t, lease: lease, proxied: true} // nothing of it is in servers
		if err := os.MkdirAll(filepath.Dir(f.root), 0o755); err != nil {
			t.Fatal(err)
		}
		if r := common.e3("init", filepath.Dir(f.root)); r.code != 0 {
			t.Fatalf("init: %s", r.text())
		}
	}
	for i := range machines {
		name := "machine-" + string(rune('a'+i))
		var m *machine
		if kind != "fs" {
			m = f.w.machine(name, files)
		} else {
			m = &machine{project: newProject(t, files), w: f.w, name: name}
			m.location, m.outside = f.root, t.TempDir()
			m.env = append(m.env, "E3_REPO="+f.root)
			if apart() {
				m.boot()
			}
		}
		m.env = append(m.env, "E2E_STATE="+f.state, "E3_LEASE="+lease.String())
		f.machines = append(f.machines, m)
	}
	return f
}

// ran are the marks that tasks left, "<task> <execution>" each.
func (f *fleet) ran() []string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.state, "ran"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// begun is how often a task was begun, by any worker.
func (f *fleet) begun(task string) (n int) {
	for _, mark := range f.ran() {
		if name, _, _ := strings.Cut(mark, " "); name == task {
			n++
		}
	}
	return n
}

// cut takes the store away from all machines, and plug gives it back.
func (f *fleet) cut() {
	if f.volume != nil {
		f.volume.freeze()
		return
	}
	for _, m := range f.machines {
		m.cut()
	}
}

func (f *fleet) plug() {
	if f.volume != nil {
		f.volume.thaw()
		return
	}
	for _, m := range f.machines {
		m.plug()
	}
}

// begins waits until a task was begun so many times.
func (f *fleet) begins(task string, times int) {
	f.t.Helper()
	eventually(f.t, patience, "the task "+task, func() string {
		if n := f.begun(task); n < times {
			return fmt.Sprintf("begun %d times, want %d", n, times)
		}
		return ""
	})
}

// let has those tasks end that wait for a sign.
func (f *fleet) let() {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.state, "go"), nil, 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// worker starts one on a machine, and waits until it is ready.
func (m *machine) worker(args ...string) *process {
	m.t.Helper()
	x := m.spawn(append([]string{"worker", "--json", "--grace", "200ms"}, args...)...)
	x.waitLine(`"type":"worker.ready"`)
	return x
}

// drain has a worker take nothing more, and demands that it ends well.
func (m *machine) drain(x *process) {
	m.t.Helper()
	syscall.Kill(x.pid(), syscall.SIGTERM)
	if r := x.wait(); r.code != 0 {
		m.t.Errorf("%s: a worker that is told to end ends with exit code %d\n%s", m.name, r.code, r.text())
	}
}

// A queueReport is what "e3 queue --json" says of a queue.
type queueReport struct {
	Queue          string
	Ready, Delayed int
	Running        []struct {
		Task, Worker string
		Orphaned     bool
		Lost         bool
		Unheard      float64
	}
	Failed []struct{ Task, Run, Status, Reason, Message string }
}

// queues are how the queues stand.
func (m *machine) queues() []queueReport {
	m.t.Helper()
	var doc struct{ Queues []queueReport }
	r := m.expect(0, "queue", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		m.t.Fatalf("e3 queue --json: %v\n%s", err, r.stdout)
	}
	return doc.Queues
}

// idle waits until nothing waits in the queues, or runs.
func (m *machine) idle(limit time.Duration) {
	m.t.Helper()
	eventually(m.t, limit, "an end of what is in the queues", func() string {
		for _, q := range m.queues() {
			if q.Ready+q.Delayed+len(q.Running) > 0 {
				return fmt.Sprintf("%+v", q)
			}
		}
		return ""
	})
}

// looker is the project as this process sees its repository.
func (f *fleet) looker() *project {
	return &project{t: f.t, dir: f.t.(interface{ TempDir() string }).TempDir(), location: f.location()}
}

func (f *fleet) location() string {
	if f.root != "" {
		return f.root
	}
	return f.w.location(f.w.dynamodb, f.w.s3)
}

// gone demands that soon no command and no supervisor is left: what was killed is, once its lease is over.
func (f *fleet) gone() {
	f.t.Helper()
	roots := []string{filepath.Dir(f.state)}
	for _, m := range f.machines {
		roots = append(roots, m.dir)
	}
	eventually(f.t, 2*time.Second+f.lease+slack, "commands are left", func() string {
		var left []string
		for _, root := range roots {
			left = append(left, strays(root, 0)...)
		}
		return strings.Join(left, "\n")
	})
}

// whole demands that the repository is, and that each job, execution and run agree.
func (f *fleet) whole(but tolerated) {
	f.t.Helper()
	f.machines[0].verified()
	f.settledOnce()
	if f.root != "" {
		checkBut(f.t, f.root, but)
		return
	}
	f.w.freed(f.t)
	f.w.check(f.t, but)
}

// settledOnce demands that every job has ended once, that what it says of its execution is on record, that of all
// executions that were made for a job at most one has succeeded, and of all that were made for a key in a run.
func (f *fleet) settledOnce() {
	t := f.t
	t.Helper()
	p := f.looker()
	r := p.open()
	defer r.Close()
	ctx := context.Background()
	known := map[string]*executions.Execution{}
	successes := map[string][]string{} // by job
	for _, e := range p.all() {
		known[e.ExecutionID] = e
		job, _, err := r.Executions.Job(ctx, e.Key, e.ExecutionID)
		if err != nil {
			t.Error(err)
		}
		switch {
		case e.State == record.Running:
			t.Errorf("the execution %s of %s seems to run; it is of job %q", e.ExecutionID, e.Detail.Task, job)
		case e.State == record.Success && job != "":
			successes[job] = append(successes[job], e.ExecutionID)
		}
	}
	names, err := r.Queue().Queues(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ofRun := map[string]string{} // the job that has succeeded, by run, task and attempt
	finished := map[string]*queue.Job{}
	for _, name := range names {
		for j, err := range r.Queue().Jobs(ctx, name) {
			if err != nil {
				t.Error(err)
				continue
			}
			t.Errorf("job %s of %s is %s, locked by %q, when nothing runs", j.Ref(), j.Task, j.Status, j.LockedBy)
		}
		for run, err := range r.Records.List(ctx, refstore.Query{Partition: queue.Kind + "/" + name + "/finished", KeysOnly: true}) {
			if err != nil {
				t.Fatal(err)
			}
			for j, err := range r.Queue().Finished(ctx, name, run.Key.Sort) {
				if err != nil {
					t.Error(err)
					continue
				}
				finished[j.Ref()] = &j
				f.endedOnce(&j, known, ofRun)
			}
		}
	}
	for ref, list := range successes {
		j := finished[ref]
		switch {
		case len(list) > 1:
			t.Errorf("for job %s %d executions have succeeded: %v", ref, len(list), list)
		case j == nil:
			t.Errorf("the execution %v was made for job %s, which does not exist", list, ref)
		case j.Outcome.State != queue.Succeeded && j.Outcome.State != queue.Cancelled || j.Outcome.ExecutionID != list[0]:
			t.Errorf("for job %s the execution %v has succeeded, and it has ended as %+v", ref, list, *j.Outcome)
		}
	}
}

func (f *fleet) endedOnce(j *queue.Job, known map[string]*executions.Execution, ofRun map[string]string) {
	t := f.t
	t.Helper()
	o := j.Outcome
	if !j.Status.Terminal() || o == nil || o.State != j.Status || j.LockedBy != "" {
		t.Errorf("job %s of %s is among the finished, and is %s, locked by %q, with the outcome %+v", j.Ref(), j.Task, j.Status, j.LockedBy, o)
		return
	}
	for _, l := range j.Lost {
		if e := known[l.Execution]; e != nil && e.State != record.Error && !(j.Retried > 0 && e.State == record.Failed) {
			t.Errorf("job %s of %s has given the execution %s up, which is %v", j.Ref(), j.Task, l.Execution, e.State)
		}
	}
	if o.State != queue.Succeeded {
		return
	}
	if e := known[o.ExecutionID]; e == nil || e.State != record.Success || e.OutputHash != o.Output {
		t.Errorf("job %s of %s has succeeded with the execution %s, output %s, which is %+v", j.Ref(), j.Task, o.ExecutionID, o.Output, e)
	}
	attempt := fmt.Sprintf("%s %s %s %d", j.Run, j.Task, j.Step, j.Attempt)
	if other, ok := ofRun[attempt]; ok {
		t.Errorf("of attempt %q both %s and %s have succeeded", attempt, other, j.Ref())
	}
	ofRun[attempt] = j.Ref()
}

// onlyOneSuccess demands that no key has two in one run. A job that a killed run leaves may be done a second time by
// the next run, if a worker takes up a job of the dead one in the moment before it is cancelled.
func (f *fleet) onlyOneSuccess() {
	f.t.Helper()
	type made struct {
		key executions.Key
		run string
	}
	n := map[made][]string{}
	for _, e := range f.looker().all() {
		if e.State == record.Success {
			of := made{e.Key, e.Detail.RunID}
			n[of] = append(n[of], e.Detail.Task+" "+e.ExecutionID)
		}
	}
	for of, ids := range n {
		if len(ids) > 1 {
			f.t.Errorf("a key has %d successes in run %s: %v", len(ids), of.run, ids)
		}
	}
}

// needElsewhere skips what needs a machine of its own to be elsewhere.
func needElsewhere(t testing.TB) {
	t.Helper()
	if !apart() {
		t.Skip("run as root: another machine needs namespaces of its own, else the kernel says who is alive")
	}
}

// weather makes the networks of all machines bad until it is asked to stop.
func (f *fleet) weather(seed func() uint64, rules func() []testserver.Rule) {
	for _, m := range f.machines {
		if m.wire != nil {
			m.wire.Restore()
			switch seed() % 6 {
			case 0:
				m.wire.Cut()
			case 1:
				m.wire.LoseAnswers()
			}
		}
		for _, p := range m.proxies {
			if p != nil {
				p.Faults(seed(), rules()...)
			}
		}
	}
}

// fine ends all that was made bad.
func (f *fleet) fine() {
	for _, m := range f.machines {
		if m.wire != nil {
			m.wire.Release()
			m.wire.Restore()
		}
		for _, p := range m.proxies {
			if p != nil {
				p.Faults(0)
				p.Restore()
			}
		}
	}
}

// sortedMarks is for messages.
func (f *fleet) sortedMarks() string {
	marks := f.ran()
	slices.Sort(marks)
	return strings.Join(marks, "\n")
}
