package compare_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"e3/executions"
	"e3/internal/insight/compare"
	"e3/refstore"
	"e3/workspace"
)

// lookups counts the reads of executions.
type lookups struct {
	workspace.Records
	n atomic.Int64
}

func (l *lookups) count(partition string) {
	if strings.HasPrefix(partition, "EXECUTION/") {
		l.n.Add(1)
	}
}

func (l *lookups) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	l.count(key.Partition)
	return l.Records.Get(ctx, key, fields...)
}

func (l *lookups) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	l.count(q.Partition)
	return l.Records.List(ctx, q)
}

// A comparison looks up the executions in which the sides differ: how many tasks they share costs no lookup.
func TestCompareLooksUpWhatDiffers(t *testing.T) {
	const shared = 40
	tasks := "tasks:\n  one: {in: [b], out: o, run: \"join $b o\"}\n"
	for i := range shared {
		tasks += fmt.Sprintf("  t%d: {in: [a], out: o, run: \"join $a o\"}\n", i)
	}
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.define("inputs: {a: {file: a.txt}, b: {file: b.txt}}\n" + tasks)
	p.deploy("prod")
	p.start("prod")
	p.start("prod")
	p.write("b.txt", "other")
	p.start("prod")
	p.write("b.txt", "new")
	for _, tt := range []struct {
		a, b string
		most int64 // a side whose execution no event names looks under each key of the task
	}{{"prod@-2", "prod@-1", 0}, {"prod@-1", "prod@", 4}, {"prod@-2", "prod@", 4}, {"prod@", "prod", 0}, {"prod@", "prod@next", 1}} {
		stores := p.repo.Workspaces.Stores
		l := &lookups{Records: stores.Records}
		stores.Records = l
		ws := workspace.New(stores)
		was, err := compare.ParseSide(tt.a, "")
		if err != nil {
			t.Fatal(err)
		}
		is, err := compare.ParseSide(tt.b, "")
		if err != nil {
			t.Fatal(err)
		}
		d, err := compare.Compare(p.ctx, compare.Stores{
			Records: l, Objects: p.repo.Objects, Executions: executions.NewStore(l, p.repo.Objects),
			Workspaces: ws.View(), Runs: ws.Runs, Packages: ws.Packages,
		}, was, is)
		if err != nil {
			t.Fatal(err)
		}
		if n := l.n.Load(); n > tt.most {
			t.Errorf("%s against %s reads %d executions, want at most %d", tt.a, tt.b, n, tt.most)
		}
		if want := tt.most == 4; want != (len(d.Durations.Tasks) == 1) {
			t.Errorf("%s against %s has the durations of %d tasks, want those of task one: %v", tt.a, tt.b, len(d.Durations.Tasks), want)
		}
	}
}
