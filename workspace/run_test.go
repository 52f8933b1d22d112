package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

func startOptions(p *place, filter string) workspace.StartOptions {
	return workspace.StartOptions{Executor: p.executor, Concurrency: 2, Durability: workspace.None, Filter: filter}
}

// runs returns the ids of the runs that have records.
func (p *place) runs() []string {
	p.t.Helper()
	var ids []string
	for rec, err := range p.repo.Records.List(p.ctx, refstore.Query{Partition: "DATAFLOW/w", KeysOnly: true}) {
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, rec.Key.Sort)
	}
	return ids
}

// node reads a node of the workspace's tree.
func (p *place) node(hash string) record.Node {
	p.t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := objectstore.ReadAll(p.ctx, p.repo.Objects, h, 1<<20)
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := record.DecodeNode(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Only the latest finished run has a record; while a run is at work, also that run: the run that the state names always
// has one.
func TestRunRecords(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	if _, err := p.ws.Runs.Run(p.ctx, "w", ""); !errors.Is(err, runview.ErrNoRun) {
		t.Errorf("before the first run: %v", err)
	}
	var last string
	for i := range 4 {
		p.write("a.txt", fmt.Sprint("a", i))
		run := p.run
		p.run = func(ctx context.Context, script, dir string) int {
			s, err := p.ws.State(ctx, "w")
			ids := p.runs()
			if err != nil || s.CurrentRunID != last || s.CurrentRunID != "" && !slices.Contains(ids, s.CurrentRunID) || len(ids) > 2 {
				t.Errorf("round %d: while it runs the state names %q, %v; records are %v", i, s.CurrentRunID, err, ids)
			}
			now, err := p.ws.Runs.Run(ctx, "w", "")
			if err != nil || now.State != record.RunRunning || !now.CompletedAt.IsZero() || now.OutputSnapshot != "" {
				t.Errorf("round %d: while it runs its record is %+v, %v", i, now, err)
			}
			return run(ctx, script, dir)
		}
		res := p.start()
		p.run = run
		last = res.Run.RunID
		if ids := p.runs(); !slices.Equal(ids, []string{last}) {
			t.Errorf("round %d: records are %v, want only %s", i, ids, last)
		}
	}
	var logs int
	for _, err := range p.repo.Records.ListStreams(p.ctx, refstore.Query{Partition: "EVENTS/w"}) {
		if err != nil {
			t.Fatal(err)
		}
		logs++
	}
	if logs != 4 {
		t.Errorf("%d logs are kept, want those of all four runs", logs)
	}
}

func TestRunRecord(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("version: 1.2.3", "inputs: {a: {file: a.txt}}", "tasks:", "  good: {in: [a], out: o, run: cat $a}",
		"  bad: {in: [a], out: o, run: fail 7}", "  after: {in: {x: bad}, out: p, run: cat}")
	res := p.start()
	run, err := p.ws.Runs.Run(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	if run.RunID != res.Run.RunID || run.WorkspaceName != "w" || run.PackageRef != "p@1.2.3" || run.State != record.RunFailed || run.FailedTask != "bad" || run.Error != "7" {
		t.Errorf("the record is %+v", run)
	}
	if want := (record.Summary{Total: 3, Completed: 1, Failed: 1, Skipped: 1}); run.Summary != want {
		t.Errorf("its summary is %+v, want %+v", run.Summary, want)
	}
	var tasks []string
	for e := range run.Tasks.All() {
		tasks = append(tasks, e.Task)
	}
	if want := []string{"good", "bad"}; !slices.Equal(tasks, want) {
		t.Errorf("executions are recorded for %v, want %v: skipped tasks have none", tasks, want)
	}
	in, out := p.node(run.InputSnapshot), p.node(run.OutputSnapshot)
	if len(in) != 1 || in[0].Name != "inputs" {
		t.Errorf("the input snapshot holds %v, want only inputs", in)
	}
	if leaf, ok := p.node(in[0].Hash).Get("a"); !ok || leaf.Hash != objectstore.Sum([]byte("a")).String() {
		t.Errorf("input a in it is %v", leaf)
	}
	tasksNode, ok := out.Get("tasks")
	if !ok || len(out) != 2 {
		t.Fatalf("the output snapshot holds %v", out)
	}
	for name, want := range map[string]record.LeafKind{"good": record.LeafFile, "bad": record.LeafUnassigned, "after": record.LeafUnassigned} {
		if leaf, _ := p.node(tasksNode.Hash).Get(name); leaf.Kind != want {
			t.Errorf("%s is %v in it, want %v", name, leaf, want)
		}
	}
	s, err := p.ws.State(p.ctx, "w")
	if err != nil || s.RootHash != run.OutputSnapshot || s.CurrentRunID != run.RunID || s.PackageName != "p" || s.PackageVersion != "1.2.3" {
		t.Errorf("the state is %+v, %v", s, err)
	}
}

// A failed task keeps the output of an earlier run.
func TestFailureKeepsOlderOutput(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
	p.start()
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: fail 3}}")
	p.start()
	if got := p.read("t"); got != "a" {
		t.Errorf("the output is %q, want the older one", got)
	}
}

func TestPublishing(t *testing.T) {
	for _, test := range []struct {
		publish workspace.Publishing
		want    string
	}{{workspace.Always, "b"}, {workspace.Final, "b"}, {workspace.Never, "a"}} {
		p := newPlace(t)
		p.write("a.txt", "a")
		p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
		p.start()
		p.write("a.txt", "b")
		res := p.start(func(o *workspace.StartOptions) { o.Publish = test.publish })
		if got := p.read("t"); got != test.want {
			t.Errorf("publish %d: the output is %q, want %q", test.publish, got, test.want)
		}
		if has := res.Run.OutputSnapshot != ""; has != (test.publish != workspace.Never) {
			t.Errorf("publish %d: the run has the output snapshot %q", test.publish, res.Run.OutputSnapshot)
		}
		n := p.commands()
		p.start()
		if got := p.read("t"); got != "b" || n.Load() != 0 {
			t.Errorf("publish %d: the next run leaves %q after %d commands", test.publish, got, n.Load())
		}
	}
}

func TestFilterNamesNothing(t *testing.T) {
	p := newPlace(t)
	p.deploy("tasks: {train: {out: o, run: cat}, clean: {out: o, run: cat}}")
	_, err := p.ws.Runner.Start(p.ctx, "w", startOptions(p, "trane"))
	var unknown *workspace.UnknownError
	if !errors.Is(err, workspace.ErrNoMatch) || !errors.As(err, &unknown) || !slices.Equal(unknown.Known, []string{"train", "clean"}) {
		t.Errorf("error is %v, want ErrNoMatch with the tasks", err)
	}
	if ids := p.runs(); len(ids) > 0 {
		t.Errorf("it left the run records %v", ids)
	}
}

// Every event that is emitted is logged identically.
func TestEventsAreLogged(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	told := map[int64]events.Event{}
	var mu = make(chan struct{}, 1)
	res := p.start(func(o *workspace.StartOptions) {
		o.OnEvent = func(e events.Event) {
			mu <- struct{}{}
			told[e.Seq] = e
			<-mu
		}
	})
	n := 0
	var last events.Type
	for e, err := range events.Read(p.ctx, p.repo.Records, "w", res.Run.RunID) {
		if err != nil {
			t.Fatal(err)
		}
		if got := told[e.Seq]; got.Type != e.Type || got.Task != e.Task || got.Execution != e.Execution || !got.Time.Equal(e.Time) {
			t.Errorf("event %d was emitted as %+v and is logged as %+v", e.Seq, got, e.Event)
		}
		n, last = n+1, e.Type
		if e.Run != res.Run.RunID || e.Workspace != "w" {
			t.Errorf("event %d is of run %s, workspace %s", e.Seq, e.Run, e.Workspace)
		}
	}
	if n != len(told) || last != events.RunCompleted {
		t.Errorf("%d events are logged, the last is %s; %d were emitted", n, last, len(told))
	}
}

// A package of the reference can be stored and listed, but not run.
func TestForeignPackage(t *testing.T) {
	p := newPlace(t)
	h, err := objectstore.PutBytes(p.ctx, p.repo.Objects, (&record.LockState{}).Encode()) // beast2 of another type
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Create(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	foreign := workspace.PackageRef{Name: "f", Version: "1", Hash: h.String()}
	if err := p.ws.Packages.Add(p.ctx, foreign); err != nil {
		t.Fatal(err)
	}
	if err := p.ws.Deployer.Deploy(p.ctx, "w", foreign); !errors.Is(err, record.ErrType) || !strings.Contains(err.Error(), "f@1") {
		t.Errorf("error is %v, want ErrType with the package", err)
	}
}
