package dataflow

import (
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A Baseline is a completed run. It is proven that a lookup now would find the same answers (doc/design.md, "Proof").
// Unchanged tasks need no lookup.
type Baseline struct {
	RunID   string
	Package *record.Package
	Inputs  record.Node // as the run read them
	Outputs record.Node // as the run left them
	Tasks   record.RunTasks
	// Foreign says that it is a run of another workspace. Then no event may refer to that run's log for many tasks,
	// because readers look for the run in the event's own workspace.
	Foreign bool
}

// proof is a baseline matched with the present graph.
type proof struct {
	base    *Baseline
	forced  bool     // dirty includes what --force selects
	same    []bool   // task hash and wiring are unchanged
	dirty   []bool   // the task, an input or something upstream has changed: it needs a lookup
	ids     []string // execution of each task in the baseline
	outputs []record.Leaf
}

// prove compares a baseline with a graph in one pass, without a store. A dirty gate does not make the tasks that it
// holds dirty: its list decides whether a task is part of the run, not what its answer is.
func prove(g *Graph, base *Baseline, inputs record.Node) *proof {
	n := g.Len()
	p := &proof{base: base, same: make([]bool, n), dirty: make([]bool, n), ids: make([]string, n), outputs: make([]record.Leaf, n)}
	old := make(map[string]*record.PackageTask)
	same := base.Package == g.Origin
	if !same {
		for i := range base.Package.Tasks {
			old[base.Package.Tasks[i].Name] = &base.Package.Tasks[i]
		}
	}
	for e := range base.Tasks.All() {
		if i, ok := g.Find(e.Task); ok {
			p.ids[i] = e.ExecutionID
		}
	}
	changed := make(map[string]bool)
	for i := range g.Package.Inputs {
		name := g.Package.Inputs[i].Name
		was, had := base.Inputs.Get(name)
		is, has := inputs.Get(name)
		if had != has || was.Kind != is.Kind || was.Hash != is.Hash {
			changed[name] = true
		}
	}
	for _, i := range g.Order() {
		t := &g.Package.Tasks[i]
		if !g.IsTask(i) {
			p.dirty[i] = g.IsPending(i) || slices.ContainsFunc(g.Dependencies(i), func(d int32) bool { return p.dirty[d] })
			continue
		}
		leaf, ok := base.Outputs.Get(t.Name)
		p.outputs[i] = leaf
		p.same[i] = ok && p.ids[i] != "" && (same || sameTask(old[t.Name], t))
		p.dirty[i] = !p.same[i] ||
			slices.ContainsFunc(t.Wiring, func(w record.Wire) bool { return w.ReadsInput(func(name string) bool { return changed[name] }) }) ||
			slices.ContainsFunc(g.Dependencies(i), func(d int32) bool { return p.dirty[d] && !g.IsGate(d) })
	}
	return p
}

func sameTask(a, b *record.PackageTask) bool {
	return a != nil && a.Task == b.Task && a.Output == b.Output && slices.EqualFunc(a.Wiring, b.Wiring, func(v, w record.Wire) bool {
		return v.Kind == w.Kind && v.Name == w.Name && v.Entry == w.Entry && slices.Equal(v.Items, w.Items) && sameManifest(v.Gather, w.Gather)
	})
}

// sameManifest tells whether two fan-ins have the same manifest, or none, if they have the same members.
func sameManifest(a, b *record.Gather) bool {
	return (a == nil) == (b == nil) && (a == nil || slices.Equal(a.Names, b.Names) && slices.Equal(a.Values, b.Values))
}

// answer is the baseline's answer for task i in the form in which an executor returns it.
func (p *proof) answer(i int32) executions.Result {
	r := p.result(i)
	return executions.Result{State: record.Success, Cached: true, ExecutionID: r.ExecutionID, Output: r.Output, Size: r.Size}
}

// result is the baseline's answer for task i.
func (p *proof) result(i int32) TaskResult {
	h, _ := objectstore.ParseHash(p.outputs[i].Hash) // the hash in a decoded leaf is valid
	return TaskResult{State: Cached, ExecutionID: p.ids[i], Output: h, Size: p.outputs[i].Size, Proven: true}
}
