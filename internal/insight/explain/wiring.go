package explain

import (
	"context"
	"errors"
	"slices"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/pkgref"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// runFacts holds the facts of a run's first event.
type runFacts struct {
	known  bool // the run has a first event
	pkg    string
	ref    string // name@version
	force  bool
	filter string
	by     string
	tells  bool // the event tells whether the run was forced
}

// run reads the first event of a run. Nothing is known of a run without events.
func (x *evidence) run(ws, id string) (*runFacts, error) {
	at := [2]string{ws, id}
	x.mu.Lock()
	f, ok := x.runs[at]
	x.mu.Unlock()
	if ok {
		return f, nil
	}
	f = &runFacts{}
	if id != "" {
		e, err := events.First(x.ctx, x.Records, ws, id)
		if err != nil {
			return nil, err
		}
		if e != nil && e.Type == events.RunStarted && e.Data != nil {
			d := e.Data
			pkg, err := events.PackageOf(x.ctx, x.Records, ws, id, e)
			if err != nil {
				return nil, err
			}
			*f = runFacts{known: true, pkg: pkg, ref: d.Package, force: d.Force, filter: d.Filter, tells: d.Inputs != ""}
			if p := d.Process; p != nil && p.User != "" {
				f.by = p.User + "@" + p.Host
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.runs[at] = f
	return f, nil
}

// forced reports whether a run was asked to run a task anew.
func (f *runFacts) forced(task string) bool {
	return f.force && (f.filter == "" || events.Match(f.filter, task))
}

// graph returns the graph of a package, nil if the object is gone or is no package.
func (x *evidence) graph(hash string) (*graph.Graph, error) {
	if hash == "" {
		return nil, nil
	}
	if x.next != nil && hash == x.next.PackageHash {
		return x.next.graph, nil
	}
	x.mu.Lock()
	g, ok := x.graphs[hash]
	x.mu.Unlock()
	if ok {
		return g, nil
	}
	pkg, err := x.Runs.Packages.Load(x.ctx, hash)
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	if err == nil {
		if g, err = graph.New(pkg); err != nil {
			g = nil // a malformed package is no evidence
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.graphs[hash] = g
	return g, nil
}

// graphsOf returns the graphs that may hold the wiring of a task in the given runs, most likely first.
func (x *evidence) graphsOf(ws string, runs []string) ([]*graph.Graph, error) {
	var list []*graph.Graph
	add := func(hash string) error {
		g, err := x.graph(hash)
		if g != nil && !slices.Contains(list, g) {
			list = append(list, g)
		}
		return err
	}
	name := ""
	for _, id := range runs {
		f, err := x.run(ws, id)
		if err != nil {
			return nil, err
		}
		if f.ref != "" {
			name, _ = pkgref.Split(f.ref)
		}
		if err := add(f.pkg); err != nil {
			return nil, err
		}
	}
	if x.next != nil && x.next.Workspace == ws && x.next.graph != nil && !slices.Contains(list, x.next.graph) {
		list = append(list, x.next.graph)
	}
	s, err := x.Workspaces.State(x.ctx, ws)
	switch {
	case err == nil && s.PackageHash != "":
		if err := add(s.PackageHash); err != nil {
			return nil, err
		}
	case err != nil && !errors.Is(err, human.ErrNotFound):
		return nil, err
	}
	if len(list) > 0 {
		return list, nil
	}
	all, err := x.Runs.Packages.List(x.ctx) // an imported run of a workspace that is not here
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Name == name || name == "" {
			if err := add(p.Hash); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// object reads a task object, nil if it is gone or malformed.
func (x *evidence) object(h objectstore.Hash) (*record.Task, error) {
	return known(x, x.tasks, h, executions.LoadTask)
}

// tree reads a directory object, nil if it is gone or malformed.
func (x *evidence) tree(h objectstore.Hash) (tree.Entries, error) {
	return known(x, x.trees, h, tree.Read)
}

// known reads an object once. The error says that the context has ended.
func known[T any](x *evidence, read map[objectstore.Hash]T, h objectstore.Hash, do func(context.Context, objectstore.Store, objectstore.Hash) (T, error)) (T, error) {
	x.mu.Lock()
	v, ok := read[h]
	x.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := do(x.ctx, x.objects(), h)
	if x.ctx.Err() != nil {
		return v, context.Cause(x.ctx)
	}
	if err != nil {
		v = *new(T)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	read[h] = v
	return v, nil
}

// A side is one of two compared executions: a past execution, or the execution that the next start would make.
type side struct {
	ws, task string
	definition
	id   string   // "" for the next start
	runs []string // runs that used the execution; the run that made it comes first
	// wires are its wiring by the names of its inputs, and graph the source of it; nil if no package shows it.
	wires map[string]*record.Wire
	graph *graph.Graph
	hits  map[string]string // of the next start: ids of its producers' results
	at    *history.Attempt
}

// made is the run that made a side; "" if the side is the next start.
func (s *side) made() string {
	if s.id == "" || len(s.runs) == 0 {
		return ""
	}
	return s.runs[0]
}

// sideOf converts an attempt to a side.
func (x *evidence) sideOf(a *history.Attempt) (*side, error) {
	s := &side{ws: a.Workspace, task: a.Task, id: a.ExecutionID, at: a}
	s.definition.task, s.key = a.Key.Task, a.Key.Inputs
	if a.MadeBy != "" {
		s.runs = append(s.runs, a.MadeBy)
	}
	for _, r := range a.Runs {
		if r != a.MadeBy {
			s.runs = append(s.runs, r)
		}
	}
	if e := a.Execution; e != nil {
		s.inputs = make([]objectstore.Hash, len(e.InputHashes))
		for i, text := range e.InputHashes {
			h, err := objectstore.ParseHash(text)
			if err != nil {
				s.inputs = nil
				break
			}
			s.inputs[i] = h
		}
	}
	var err error
	s.object, err = x.object(s.definition.task)
	return s, err
}

// wire fills in the wiring of the side.
func (x *evidence) wire(s *side) error {
	if s.wires != nil {
		return nil
	}
	var graphs []*graph.Graph
	if s.id == "" && x.next != nil {
		graphs = append(graphs, x.next.graph)
	} else {
		var err error
		if graphs, err = x.graphsOf(s.ws, s.runs); err != nil {
			return err
		}
	}
	for _, exact := range []bool{true, false} { // another version of the task may have the same wiring
		for _, g := range graphs {
			i, ok := g.Find(s.task)
			if !ok || (g.Hashes[i] == s.definition.task) != exact {
				continue
			}
			t, err := x.object(g.Hashes[i])
			if err != nil {
				return err
			}
			wiring := g.Package.Tasks[i].Wiring
			if t == nil || len(t.Inputs) != len(wiring) {
				continue
			}
			s.graph, s.wires = g, make(map[string]*record.Wire, len(wiring))
			for j := range wiring {
				s.wires[t.Inputs[j].Name] = &wiring[j]
			}
			return nil
		}
	}
	return nil
}

// source describes the source of a wire in words.
func source(w *record.Wire) string {
	switch w.Kind {
	case record.WireInput:
		if w.Entry != "" {
			return w.Entry + " of input " + w.Name
		}
		return record.InputLabel(w.Name)
	case record.WireOutput:
		if w.Entry != "" {
			return w.Name + "." + w.Entry
		}
		return "task " + w.Name
	}
	if len(w.Items) > 0 && w.Items[0].Input != "" {
		return human.Count(len(w.Items), "file") + " of input " + w.Items[0].Input
	}
	return human.Count(len(w.Items), "task")
}

// outputHash returns the hash of an attempt's output, or of one entry of it; zero if that is not known.
func (x *evidence) outputHash(a *history.Attempt, entry string) (objectstore.Hash, error) {
	out := a.Output
	if e := a.Execution; e != nil {
		out = e.OutputHash
	}
	h, err := objectstore.ParseHash(out)
	if err != nil || entry == "" {
		return h, nil
	}
	t, err := x.tree(h)
	if err != nil {
		return objectstore.Hash{}, err
	}
	e, _ := t.Find(entry)
	return e.Hash, nil
}
