package workspace_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"e3/refstore"
	"e3/workspace"
)

// lookups counts the lookups of executions.
type lookups struct {
	workspace.Records
	tally
}

func (l *lookups) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	l.add("list", q.Partition)
	return l.Records.List(ctx, q)
}

// ListTime passes on the store's answer.
func (l *lookups) ListTime(partition string) (int64, error) {
	return l.Records.(interface{ ListTime(string) (int64, error) }).ListTime(partition)
}

// counted returns a planner on the place's repository, and what it has looked up.
func (p *place) counted() (*workspace.Planner, *lookups) {
	stores := p.ws.Stores
	l := &lookups{Records: stores.Records}
	stores.Records = l
	return workspace.New(stores).Planner, l
}

// In whichever state the last run has left a workspace: what that run has answered is looked at by no command, and the next
// start has it from the proof.
func TestUnevenStatesAreProven(t *testing.T) {
	const plain = 40
	var n []string
	for i := range plain {
		n = append(n, fmt.Sprint(i))
	}
	base := "inputs: {a: {file: a.txt}, v: {value: 1}}\ntasks:\n" +
		"  t: {matrix: {n: [" + strings.Join(n, ", ") + "]}, in: {x: a}, out: o, run: cat}\n  late: {in: {x: v}, out: o, run: cat}\n"
	none := func(*testing.T, *place) {}
	run := func(change func(*workspace.StartOptions)) func(t *testing.T, p *place) {
		return func(_ *testing.T, p *place) { p.start(func(o *workspace.StartOptions) { o.NoWait = true; change(o) }) }
	}
	for _, state := range []struct {
		name   string
		more   string
		before func(t *testing.T, p *place) // after a whole run
		looked int                          // lookups of a question, at most
	}{
		{"all is well", "", none, 0},
		{"an allowed failure", "  bad: {in: {x: a}, out: o, may_fail: true, run: fail 3}\n  below: {in: {y: bad}, out: p, run: cat}\n", none, 1},
		{"a failure", "  bad: {in: {x: a}, out: o, run: fail 3}\n", none, 1},
		{"a gap", "  bad: {matrix: {k: [0, 3]}, in: {x: a}, out: o, run: fail $k}\n  all: {in: {ms: {from: \"bad[*]\", need: 1}}, out: o, run: cat}\n", none, 1},
		{"a task that waits", "  ok: {in: {x: a}, out: o, approve: true, run: cat}\n", none, 1},
		{"a filtered run", "", run(func(o *workspace.StartOptions) { o.Filter = "late" }), 0},
		{"a filtered run of a changed part", "", func(t *testing.T, p *place) {
			leaf, err := p.ws.Datasets.PutValue(p.ctx, int64(2))
			if err == nil {
				err = p.ws.Datasets.Set(p.ctx, "w", "v", leaf)
			}
			if err != nil {
				t.Fatal(err)
			}
			run(func(o *workspace.StartOptions) { o.Filter = "late" })(t, p)
		}, 1},
		{"a run with values of its own", "", run(func(o *workspace.StartOptions) { o.Set = []workspace.Override{{Name: "v", Value: int64(3)}} }), 0},
		{"a run that publishes nothing", "", run(func(o *workspace.StartOptions) { o.Publish = workspace.Never }), 0},
	} {
		t.Run(state.name, func(t *testing.T) {
			p := newPlace(t)
			p.run = func(ctx context.Context, script, dir string) int {
				if script == "fail 3" {
					return 3
				}
				return shell(ctx, "cat", dir)
			}
			p.write("a.txt", "a")
			p.deploy(base + state.more)
			run(func(*workspace.StartOptions) {})(t, p)
			state.before(t, p)
			planner, l := p.counted()
			if _, err := planner.Status(p.ctx, "w"); err != nil {
				t.Fatal(err)
			}
			if n := l.take()["list EXECUTION"]; n > state.looked {
				t.Errorf("status looks up %d tasks, want at most %d", n, state.looked)
			}
			proof := refstore.Key{Partition: "INDEX/proofs", Sort: "w"}
			rec, err := p.repo.Records.Get(p.ctx, proof)
			if err != nil {
				t.Fatal(err)
			}
			p.forget(proof)
			if _, err := planner.Status(p.ctx, "w"); err != nil {
				t.Fatal(err)
			}
			if n := l.take()["list EXECUTION"]; n < plain {
				t.Errorf("without the proof status looks up %d tasks, want at least %d", n, plain)
			}
			if _, err := p.repo.Records.Put(p.ctx, refstore.Record{Key: proof, Value: rec.Value, Version: refstore.Absent}); err != nil {
				t.Fatal(err)
			}
			res := p.start(func(o *workspace.StartOptions) { o.NoWait = true })
			if res.Outcome != nil && res.Outcome.Proven < plain {
				t.Errorf("the next start has %d tasks from the proof, want at least %d", res.Outcome.Proven, plain)
			}
		})
	}
}

// A question about one task looks at the records of what that task needs, and not at those of the whole graph.
func TestAPlanOfOneTask(t *testing.T) {
	p := newChain(t)
	for _, test := range []struct {
		filter string
		keys   int
	}{{"", 3}, {"two", 2}, {"other", 1}} {
		planner, l := p.counted()
		if _, err := planner.Plan(p.ctx, "w", workspace.PlanOptions{Concurrency: 1, Filter: test.filter}); err != nil {
			t.Fatal(err)
		}
		if n := l.take()["list EXECUTION"]; n != test.keys {
			t.Errorf("with filter %q the plan lists %d keys, want %d", test.filter, n, test.keys)
		}
	}
}
