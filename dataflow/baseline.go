package dataflow

import (
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A Baseline is a run that has ended. It is proven that a lookup now would find the same answers (doc/design.md, "Proof").
// Unchanged tasks need no lookup.
type Baseline struct {
	RunID   string
	Package *record.Package
	Inputs  record.Node // as the run read them
	Outputs record.Node // as the run left them
	Tasks   record.RunTasks
	Open    []string // tasks whose execution in Tasks is no answer
	// Foreign says that it is a run of another workspace. Then no event may refer to that run's log for many tasks,
	// because readers look for the run in the event's own workspace.
	Foreign bool
}

// proof is a baseline matched with the present graph.
type proof struct {
	base    *Baseline
	forced  bool     // dirty includes what --force selects
	same    []bool   // task hash and wiring are unchanged, and the baseline has an answer
	dirty   []bool   // the task, an input or something upstream has changed: it needs a lookup
	ids     []string // the answer of each task in the baseline; "": it has none
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
	for _, task := range base.Open {
		if i, ok := g.Find(task); ok {
			p.ids[i] = ""
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
		ok := p.ids[i] != ""
		if ok { // else the workspace shows an earlier run's output
			p.outputs[i], ok = base.Outputs.Get(t.Name)
		}
		p.same[i] = ok && (same || sameTask(old[t.Name], t))
		p.dirty[i] = !p.same[i] ||
			slices.ContainsFunc(t.Wiring, func(w record.Wire) bool { return w.ReadsInput(func(name string) bool { return changed[name] }) }) ||
			slices.ContainsFunc(g.Dependencies(i), func(d int32) bool { return p.dirty[d] && !g.IsGate(d) })
	}
	return p
}

// lacks tells whether the baseline has no answer for a task. A task that gathers it and has one did without it.
func (p *proof) lacks(g *Graph, task string) bool {
	i, ok := g.Find(task)
	return ok && p.ids[i] == ""
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

// evidence is what the run proves. A run in which a task was decided again proves nothing unless all is well in the end:
// what reads it may have been answered before. Then a second success has changed the generation.
func (s *scheduler) evidence(err error) (e Evidence) {
	if s.proof != nil && !s.proof.base.Foreign {
		for i := range s.proof.dirty {
			if s.g.IsTask(int32(i)) && !s.proof.dirty[i] {
				e.Kept++
			}
		}
	}
	if err != nil || s.heals.begun {
		return e
	}
	untaken := s.untaken()
	for i := range s.results {
		switch r, answers := &s.results[i], s.answers(int32(i)); {
		case !s.g.IsTask(int32(i)):
		case answers && !untaken[i]:
			e.Answered++
		case r.ExecutionID != "":
			e.Open = append(e.Open, s.g.Name(int32(i)))
		}
	}
	return e
}

func (s *scheduler) answers(i int32) bool {
	return s.results[i].State == Cached || s.results[i].State == Succeeded
}

// untaken finds the tasks that make a list which is not the package's: it was not read, or makes no tasks.
func (s *scheduler) untaken() []bool {
	untaken := make([]bool, s.g.Len())
	for i := range s.results {
		if i := int32(i); s.g.IsPending(i) {
			for _, d := range s.g.Dependencies(i) {
				untaken[d] = true
			}
		}
	}
	for _, i := range s.g.Gates() {
		if untaken[i] || s.results[i].State != Cached {
			for _, d := range s.g.Dependencies(i) {
				untaken[d] = true
			}
		}
	}
	return untaken
}
