package explain

import (
	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// follows lists the tasks downstream of the root with their outcomes in a run, or with what the next start will do with
// them if run is "".
func (x *explaining) follows(w *Explanation, run string) error {
	if w.Root.Kind == NoCause {
		return nil
	}
	ws := w.Root.Workspace
	if ws == "" {
		ws = w.Workspace
	}
	g, err := x.graphIn(ws, run)
	if g == nil || err != nil {
		return err
	}
	if graph.Grows(g.Package) { // the tasks of a list follow from the task that makes the list
		if g, err = graph.Whole(g.Package); err != nil {
			return err
		}
	}
	d := &Downstream{Of: w.Root.Task, Run: run}
	reached := make([]bool, g.Len())
	var stack []int32
	if w.Root.Kind == Input || w.Root.Kind == NoValue || w.Root.Kind == Lacking {
		d.Of = record.InputLabel(w.Root.Subject)
		stack = readers(g, w.Root.Subject)
		for _, i := range stack {
			reached[i] = true
		}
	} else if i, ok := g.Find(w.Root.Task); ok {
		stack = append(stack, i)
	}
	g.MarkDownstream(stack, reached)
	state := func(string) string { return "" }
	if run != "" {
		if state, err = x.states(ws, run); err != nil {
			return err
		}
	}
	for i := range g.Len() {
		if !reached[i] || !g.IsTask(int32(i)) {
			continue
		}
		name := g.Name(int32(i))
		d.count(name, state(name))
	}
	if d.Total > 0 {
		w.Downstream = d
	}
	return nil
}

// Words for the outcome of a task downstream.
const (
	ranState      = "ran"
	answeredState = "answered"
	failedState   = "failed"
	skippedState  = "skipped"
)

func (d *Downstream) count(name, state string) {
	d.Total++
	switch state {
	case ranState:
		d.Ran++
	case answeredState:
		d.Answered++
	case failedState:
		d.Failed++
	case skippedState:
		d.Skipped++
	}
	if len(d.Tasks) < maxListed {
		d.Tasks = append(d.Tasks, DownstreamTask{Task: name, State: state})
	}
}

// readers are the tasks that read an input of the package.
func readers(g *graph.Graph, input string) []int32 {
	var list []int32
	for i := range g.Package.Tasks {
		for j := range g.Package.Tasks[i].Wiring {
			if w := &g.Package.Tasks[i].Wiring[j]; w.ReadsInput(func(name string) bool { return name == input }) {
				list = append(list, int32(i))
				break
			}
		}
	}
	return list
}

// graphIn is the graph of a run, or of the next start if run is "".
func (x *evidence) graphIn(ws, run string) (*graph.Graph, error) {
	if run == "" {
		if x.next != nil && x.next.Workspace == ws {
			return x.next.graph, nil
		}
		return nil, nil
	}
	list, err := x.graphsOf(ws, []string{run})
	if len(list) == 0 || err != nil {
		return nil, err
	}
	return list[0], nil
}

// states returns a function that gives the outcome of each task of a run in the words above, or "" if its events do not
// say.
func (x *evidence) states(ws, run string) (func(task string) string, error) {
	key := [2]string{ws, run}
	x.mu.Lock()
	f := x.folds[key]
	x.mu.Unlock()
	if f == nil {
		var err error
		if f, _, err = x.Runs.Fold(x.ctx, ws, run); err != nil {
			return nil, err
		}
		x.mu.Lock()
		x.folds[key] = f
		x.mu.Unlock()
	}
	return func(task string) string {
		t := f.Find(task)
		switch {
		case t == nil && f.Bulk():
			return answeredState
		case t == nil:
			return ""
		}
		switch t.State {
		case runview.TaskSuccess:
			return ranState
		case runview.TaskCached:
			return answeredState
		case runview.TaskFailed, runview.TaskError, runview.TaskRetrying:
			return failedState
		case runview.TaskSkipped:
			return skippedState
		}
		return ""
	}, nil
}
