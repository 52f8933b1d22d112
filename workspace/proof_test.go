package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

const chain = "inputs: {a: {file: a.txt}, n: {value: 1}}\ntasks:\n  one: {in: [a], out: o, run: cat $a $a}\n" +
	"  two: {in: {x: one}, out: p, run: two}\n  other: {out: o, run: cat}"

// newChain is a place in which the chain has been run and proven.
func newChain(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	p.run = func(ctx context.Context, script, dir string) int {
		if script != "two" {
			return shell(ctx, script, dir)
		}
		data, err := os.ReadFile(filepath.Join(dir, "o"))
		if err != nil || os.WriteFile(filepath.Join(dir, "p"), []byte("<"+string(data)+">"), 0o644) != nil {
			return 9
		}
		return 0
	}
	p.write("a.txt", "a")
	p.age("a.txt")
	p.deploy(chain)
	p.start()
	if !p.current() {
		t.Fatal("after a run the workspace is not proven current")
	}
	return p
}

// current starts a run and tells whether it was proven at once to have nothing to do.
func (p *place) current() bool {
	p.t.Helper()
	return p.start().Outcome == nil
}

func (p *place) curator() *executions.Curator {
	return executions.NewCurator(p.repo.Executions, p.repo.Records, time.Now)
}

// execution returns the latest execution of a task.
func (p *place) execution(task string) *executions.Execution {
	p.t.Helper()
	var found *executions.Execution
	for e, err := range p.repo.Executions.All(p.ctx) {
		if err != nil {
			p.t.Fatal(err)
		}
		if e.Detail.Task == task && (found == nil || e.ExecutionID > found.ExecutionID) {
			found = e
		}
	}
	if found == nil {
		p.t.Fatalf("task %s has no execution", task)
	}
	return found
}

func (p *place) generation() *executions.Generation {
	return executions.NewGeneration(p.repo.Records, p.repo.Records)
}

func (p *place) begin() (end func()) {
	p.t.Helper()
	end, err := p.generation().Begin(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return end
}

// output returns the hash of a task's dataset.
func (p *place) output(name string) objectstore.Hash {
	p.t.Helper()
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: name})
	if err != nil {
		p.t.Fatal(err)
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// Which events invalidate a proof. In all cases the answers stay right, known tasks do not run again, and there is soon
// a new proof.
func TestProof(t *testing.T) {
	for _, test := range []struct {
		name    string
		disturb func(t *testing.T, p *place)
		current bool
		runs    int64  // commands that must run
		two     string // the expected output of two
	}{
		{"nothing", func(*testing.T, *place) {}, true, 0, "<aa>"},
		{"a touched input", func(_ *testing.T, p *place) { p.age("a.txt") }, true, 0, "<aa>"},
		{"the same deploy again", func(_ *testing.T, p *place) { p.deploy(chain) }, true, 0, "<aa>"},
		{"other objects come and go", func(t *testing.T, p *place) {
			for i := range 512 { // in all folders
				h, err := objectstore.PutBytes(p.ctx, p.repo.Objects, []byte{byte(i), byte(i >> 8)})
				if err == nil && i%2 == 0 {
					err = p.repo.Objects.Delete(p.ctx, h)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}, true, 0, "<aa>"},
		{"a value set to the same", func(t *testing.T, p *place) {
			leaf, err := p.ws.Datasets.PutValue(p.ctx, int64(1))
			if err == nil {
				err = p.ws.Datasets.Set(p.ctx, "w", "n", leaf)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, true, 0, "<aa>"},
		{"an edited input", func(_ *testing.T, p *place) { p.write("a.txt", "b") }, false, 2, "<bb>"},
		{"an input set", func(_ *testing.T, p *place) { p.set("a", "s") }, false, 2, "<ss>"},
		{"a value that no task reads", func(_ *testing.T, p *place) { p.deploy(strings.Replace(chain, "value: 1", "value: 2", 1)) }, false, 0, "<aa>"},
		{"another description", func(_ *testing.T, p *place) {
			p.deploy(strings.Replace(chain, "{out: o, run: cat}", "{out: o, run: cat, description: new}", 1))
		}, false, 0, "<aa>"},
		{"a new version of a task", func(_ *testing.T, p *place) {
			p.deploy(strings.Replace(chain, "run: two}", "run: two, version: 2}", 1))
		}, false, 1, "<aa>"},
		{"a batch that changed something", func(_ *testing.T, p *place) { p.begin()() }, false, 0, "<aa>"},
		{"an output removed by hand", func(t *testing.T, p *place) {
			h := p.output("one").String()
			if err := os.Remove(filepath.Join(filepath.Join(p.repo.Root, "objects"), h[:2], h[2:])); err != nil {
				t.Fatal(err)
			}
		}, false, 1, "<aa>"},
		{"a folder of objects removed by hand", func(t *testing.T, p *place) {
			h := p.output("two").String()
			if err := os.RemoveAll(filepath.Join(filepath.Join(p.repo.Root, "objects"), h[:2])); err != nil {
				t.Fatal(err)
			}
		}, false, 1, "<aa>"},
		{"a forced run", func(_ *testing.T, p *place) { p.start(func(o *workspace.StartOptions) { o.Force = true }) }, false, 3, "<aa>"},
		{"a part of it forced", func(_ *testing.T, p *place) {
			p.start(func(o *workspace.StartOptions) { o.Force, o.Filter = true, "two" })
		}, false, 1, "<aa>"},
		{"a failed run", func(t *testing.T, p *place) {
			p.deploy(strings.Replace(chain, "run: two}", "run: fail 3}", 1))
			if res := p.start(); res.Run.State != record.RunFailed {
				t.Fatalf("the run is %v", res.Run.State)
			}
			p.deploy(chain)
		}, false, 1, "<aa>"},
		{"a run that publishes nothing", func(_ *testing.T, p *place) {
			p.write("a.txt", "b")
			p.start(func(o *workspace.StartOptions) { o.Publish = workspace.Never })
		}, false, 2, "<bb>"},
		{"the run's record gone", func(t *testing.T, p *place) {
			s, err := p.ws.State(p.ctx, "w")
			if err != nil {
				t.Fatal(err)
			}
			p.forget(refstore.Key{Partition: "DATAFLOW/w", Sort: s.CurrentRunID})
		}, false, 0, "<aa>"},
		{"the proof damaged", func(_ *testing.T, p *place) {
			p.overwrite(refstore.Key{Partition: "INDEX/proofs", Sort: "w"}, []byte("oops"))
		}, false, 0, "<aa>"},
		{"the proof gone", func(_ *testing.T, p *place) { p.forget(refstore.Key{Partition: "INDEX/proofs", Sort: "w"}) }, false, 0, "<aa>"},
		{"an answer rejected", func(t *testing.T, p *place) {
			e := p.execution("one")
			if _, err := p.curator().Reject(p.ctx, e.Key, e.ExecutionID, &record.Rejection{Rejected: true, At: e.CompletedAt}); err != nil {
				t.Fatal(err)
			}
		}, false, 1, "<aa>"},
		{"a rejection taken back", func(t *testing.T, p *place) {
			e := p.execution("two")
			for _, rejected := range []bool{true, false} {
				if _, err := p.curator().Reject(p.ctx, e.Key, e.ExecutionID, &record.Rejection{Rejected: rejected, At: e.CompletedAt}); err != nil {
					t.Fatal(err)
				}
			}
		}, false, 0, "<aa>"},
		{"an answer pruned", func(t *testing.T, p *place) {
			e := p.execution("two")
			n, err := p.curator().Prune(p.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me", "")
			if err != nil || n != 1 {
				t.Fatalf("pruned %d, %v", n, err)
			}
		}, false, 1, "<aa>"},
		{"an earlier answer pruned", func(t *testing.T, p *place) {
			e := p.execution("two")
			p.start(func(o *workspace.StartOptions) { o.Force, o.Filter = true, "two" })
			p.start()
			if !p.current() {
				t.Fatal("there is no proof of the forced run")
			}
			n, err := p.curator().Prune(p.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me", "")
			if err != nil || n != 1 {
				t.Fatalf("pruned %d, %v", n, err)
			}
		}, false, 1, "<aa>"},
		{"a later answer imported", func(t *testing.T, p *place) {
			e := p.execution("one")
			status := e.Status
			output, err := objectstore.PutBytes(p.ctx, p.repo.Objects, []byte("zz"))
			if err == nil {
				status.ExecutionID, err = executions.NewID()
			}
			if err != nil {
				t.Fatal(err)
			}
			status.OutputHash = output.String()
			end, err := p.curator().Begin(p.ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			out, err := p.curator().Import(p.ctx, &executions.Incoming{
				Key: e.Key, Status: &status, Provenance: &record.Provenance{Steps: []record.Step{{By: "ann@elsewhere"}}},
			})
			if err != nil || out != executions.Added {
				t.Fatalf("the import: %v, %v", out, err)
			}
		}, false, 1, "<zz>"},
		{"a task's output unassigned", func(_ *testing.T, p *place) {
			p.deploy(strings.Replace(chain, "  two:", "  twice:", 1))
			p.deploy(chain)
		}, false, 0, "<aa>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newChain(t)
			n := p.commands()
			test.disturb(t, p)
			if got := p.current(); got != test.current {
				t.Errorf("proven current: %v, want %v", got, test.current)
			}
			if got := p.read("two"); got != test.two {
				t.Errorf("the output is %q, want %q", got, test.two)
			}
			if n.Load() != test.runs {
				t.Errorf("%d commands ran, want %d", n.Load(), test.runs)
			}
			p.start() // a loss or a forced run changes the generation: no proof until the next run
			if !p.current() {
				t.Error("there is no proof again")
			}
			if n.Load() != test.runs {
				t.Errorf("%d commands ran in the end, want %d", n.Load(), test.runs)
			}
		})
	}
}

func (p *place) forget(key refstore.Key) {
	p.t.Helper()
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err == nil {
		err = p.repo.Records.Delete(p.ctx, key, rec.Version)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) overwrite(key refstore.Key, value []byte) {
	p.t.Helper()
	rec, err := p.repo.Records.Get(p.ctx, key)
	if err == nil {
		_, err = p.repo.Records.Put(p.ctx, refstore.Record{Key: key, Value: value, Version: rec.Version})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// While a batch is open, no run is proven and no proof is made.
func TestNoProofDuringBatch(t *testing.T) {
	p := newChain(t)
	end := p.begin()
	for range 2 {
		if p.current() {
			t.Error("proven current in the middle of a batch")
		}
	}
	end()
	if p.current() {
		t.Error("a proof was made in the middle of a batch")
	}
	if !p.current() {
		t.Error("no proof was made after it")
	}
}

// A batch that begins while the run is at work leaves it without a proof.
func TestNoProofOverBatch(t *testing.T) {
	p := newChain(t)
	run := p.run
	p.run = func(ctx context.Context, script, dir string) int {
		p.begin()()
		return run(ctx, script, dir)
	}
	p.write("a.txt", "b")
	p.start()
	if p.current() {
		t.Error("a proof was made over a batch")
	}
}

// The next run notices an object that is removed during a run.
func TestRemovedDuringRun(t *testing.T) {
	p := newChain(t)
	gone := p.output("other")
	run := p.run
	p.run = func(ctx context.Context, script, dir string) int {
		if err := p.repo.Objects.Delete(ctx, gone); err != nil {
			t.Error(err)
		}
		return run(ctx, script, dir)
	}
	p.write("a.txt", "b")
	p.start()
	p.run = run
	n := p.commands()
	if p.current() {
		t.Error("proven current without one of its outputs")
	}
	if n.Load() != 1 || p.output("other") != gone {
		t.Errorf("%d commands ran, want the one whose output went", n.Load())
	}
}

// A run that is proven to have nothing to do has a record and events like any other.
func TestProvenRun(t *testing.T) {
	p := newChain(t)
	p.age("e3.yaml")
	p.start() // reads the file once more
	before, err := p.ws.Runs.Run(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	var types []events.Type
	var info *workspace.RunInfo
	res := p.start(func(o *workspace.StartOptions) {
		o.OnEvent = func(e events.Event) { types = append(types, e.Type) }
		o.OnStart = func(i *workspace.RunInfo) { info = i }
		o.OnWork = func() { t.Error("it says that there is work to do") }
	})
	if info == nil || info.RunID != res.Run.RunID || info.Package != nil {
		t.Errorf("OnStart received %+v", info)
	}
	run, err := p.ws.Runs.Run(p.ctx, "w", res.Run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if run.State != record.RunCompleted || run.Summary != (record.Summary{Total: 3, Completed: 3, Cached: 3}) || run.OutputSnapshot != before.OutputSnapshot ||
		run.InputSnapshot != before.InputSnapshot || run.CompletedAt.IsZero() || run.RunID <= before.RunID {
		t.Errorf("its record is %+v", run)
	}
	ids := map[string]string{}
	for e := range before.Tasks.All() {
		ids[e.Task] = e.ExecutionID
	}
	for e := range run.Tasks.All() {
		if !e.Cached || e.ExecutionID != ids[e.Task] {
			t.Errorf("%+v, want cached with %s", e, ids[e.Task])
		}
	}
	want := []events.Type{events.RunStarted, events.TaskCached, events.TaskCached, events.TaskCached, events.RunCompleted}
	if len(types) != len(want) {
		t.Fatalf("events are %v, want %v", types, want)
	}
	for i := range want {
		if types[i] != want[i] {
			t.Errorf("event %d is %s, want %s", i, types[i], want[i])
		}
	}
	if s, err := p.ws.State(p.ctx, "w"); err != nil || s.CurrentRunID != res.Run.RunID {
		t.Errorf("the state names run %q, %v", s.CurrentRunID, err)
	}
	if _, err := p.ws.Runs.Run(p.ctx, "w", before.RunID); err == nil {
		t.Error("the record of the run before is still there")
	}
}
