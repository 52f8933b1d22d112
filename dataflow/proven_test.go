package dataflow_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// proven returns a baseline: a run of the package in its own world.
func proven(t failer, pkg *record.Package) (*dataflow.Graph, *world, *dataflow.Baseline) {
	g, w := graphOf(t, pkg), newWorld()
	base := baseline(g, run(context.Background(), t, g, w, nil), oneInput)
	w.calls = nil
	return g, w, base
}

// A proven task is not looked up. It is announced by its own event, or many are announced in one.
func TestProven(t *testing.T) {
	for _, n := range []int{1, events.Bulk, events.Bulk + 1} {
		lines := []string{"t0"}
		for i := 1; i < n; i++ {
			lines = append(lines, fmt.Sprintf("t%d: t%d", i, i-1))
		}
		g, w, base := proven(t, flow(lines...))
		log := &emitted{}
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Baseline, o.Emit = base, log.emit })
		if len(w.calls) > 0 || out.Proven != n || out.Summary.Cached != int64(n) || out.State != record.RunCompleted {
			t.Errorf("%d tasks: %d lookups, %d proven, %+v", n, len(w.calls), out.Proven, out.Summary)
		}
		want := n
		if n > events.Bulk {
			want = 1
		}
		if len(log.list) != want {
			t.Errorf("%d tasks make %d events, want %d", n, len(log.list), want)
		}
		for _, e := range log.list {
			if e.Type != events.TaskCached || e.Data.As != "before" || (e.Task == "") != (want == 1 && n > 1) || e.Task == "" && e.Data.Tasks != n {
				t.Errorf("%d tasks: event %+v, %+v", n, e, e.Data)
			}
		}
	}
}

// An edit costs lookups of the tasks that it may change, and no more. If an output is the same as before, its readers
// keep their results.
func TestEarlyCutOff(t *testing.T) {
	g, w, base := proven(t, flow("clean", "train: clean", "report: train", "apart"))
	pkg := *g.Package
	pkg.Tasks = slices.Clone(pkg.Tasks)
	was := w.cache[executions.NewKey(g.Hashes[0], []objectstore.Hash{mustHash(t, oneInput[0].Hash)})].Output
	for k := 0; ; k++ { // another task that leaves the same
		h := objectstore.Sum(fmt.Append(nil, k))
		if h == g.Hashes[0] || isDir(h) != isDir(g.Hashes[0]) {
			continue
		}
		if out, _ := w.compute(&executions.Request{Task: h, Inputs: []objectstore.Hash{mustHash(t, oneInput[0].Hash)}}, executions.Key{Task: h}); out == was {
			pkg.Tasks[0].Task = h.String()
			break
		}
	}
	g = graphOf(t, &pkg)
	out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Baseline = base })
	wantStates(t, g, out, "clean=succeeded train=cached report=cached apart=cached")
	if want := []string{"clean"}; !slices.Equal(w.calls, want) {
		t.Errorf("looked up: %v, want %v", w.calls, want)
	}
	if out.Proven != 1 { // apart; the others had to wait for clean
		t.Errorf("%d tasks are proven, want 1", out.Proven)
	}
}

func mustHash(t failer, text string) objectstore.Hash {
	h, err := objectstore.ParseHash(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
