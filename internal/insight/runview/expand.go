package runview

import (
	"context"
	"iter"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// Expand adds to a fold the tasks that bulk events stand for. It takes their executions from the run that the event
// names or, if that run has them from an earlier run, from there. It returns the number of tasks that cannot be
// named, because the runs are gone or it is unknown which of their tasks were meant. Even a log that refers to itself
// costs at most one reading of each run of the workspace.
func (v *Runs) Expand(ctx context.Context, ws, run string, f *Fold) (unnamed int64, err error) {
	if len(f.bulk) == 0 {
		return 0, nil
	}
	g, err := v.graphOf(ctx, f.PackageHash())
	if err != nil {
		return 0, err
	}
	for _, b := range f.bulk {
		from, err := v.answers(ctx, ws, run, b.As)
		if err != nil {
			return 0, err
		}
		names := f.provenBy(g)
		if int64(len(names)) != b.Tasks { // its package is gone, or an event is
			names = f.unmentioned(from)
		}
		if int64(len(names)) != b.Tasks {
			unnamed += b.Tasks
			continue
		}
		f.proven -= b.Tasks
		f.named += b.Tasks
		for _, name := range names {
			t := f.task(name)
			t.State, t.Ended, t.Proven = TaskCached, from.ids[name], true
			t.ExecutionID = t.Ended
		}
	}
	return unnamed, nil
}

// States yields the tasks of a run at work as far as its events and its graph tell: those that events name, and the
// proven ones for which bulk events stand. Other tasks have not had their turn.
func (f *Fold) States(g *graph.Graph) iter.Seq[*TaskReport] {
	return func(yield func(*TaskReport) bool) {
		for i := range f.tasks {
			if !yield(&f.tasks[i].TaskReport) {
				return
			}
		}
		if f.proven == 0 || f.started == nil {
			return
		}
		names := f.provenBy(g)
		if int64(len(names)) != f.proven {
			return // the ones that are still to come are among them
		}
		for _, name := range names {
			if !yield(&TaskReport{Task: name, State: TaskCached, Proven: true}) {
				return
			}
		}
	}
}

// provenBy returns the tasks of the run's graph that a baseline proved, in the order of the graph: the selected
// tasks, except tasks that the events name and all tasks downstream of them. This is sufficient, because the first
// unproven task on each path was ready and so has an event.
func (f *Fold) provenBy(g *graph.Graph) []string {
	if g == nil {
		return nil
	}
	var selected []bool
	if d := f.started.Facts(); d.Filter != "" {
		_, selected = g.Select(d.Filter)
	}
	looked := make([]bool, g.Len())
	var stack []int32
	for i := range f.tasks {
		if n, ok := g.Find(f.tasks[i].Task); ok {
			looked[n] = true
			if f.tasks[i].own && !f.tasks[i].shared {
				stack = append(stack, n)
			}
		}
	}
	g.MarkDownstream(stack, looked)
	var names []string
	for n := range looked {
		if !looked[n] && (selected == nil || selected[n]) {
			names = append(names, g.Name(int32(n)))
		}
	}
	return names
}

// unmentioned returns the tasks in from that no event of the run names.
func (f *Fold) unmentioned(from *answered) []string {
	var names []string
	for _, name := range from.names {
		if _, ok := f.index[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// HasTask returns a function for [events.Filter] that tells whether a task is among the proven tasks of a bulk event:
// by the package, or, if that is gone, by the executions that Expand would find. It remembers its answers.
func (v *Runs) HasTask(task string) func(ctx context.Context, pkg string, as events.RunRef) (bool, error) {
	packages, runs := map[string]*graph.Graph{}, map[events.RunRef]bool{}
	return func(ctx context.Context, pkg string, as events.RunRef) (bool, error) {
		g, known := packages[pkg]
		if !known {
			var err error
			if g, err = v.graphOf(ctx, pkg); err != nil {
				return false, err
			}
			packages[pkg] = g
		}
		if g != nil {
			_, has := g.Find(task)
			return has, nil
		}
		has, known := runs[as]
		if !known {
			from, err := v.answers(ctx, as.Workspace, "", as.Run)
			if err != nil {
				return false, err
			}
			has = from.ids[task] != ""
			runs[as] = has
		}
		return has, nil
	}
}

// graphOf returns the graph of a package; nil if the package is gone or cannot be read.
func (v *Runs) graphOf(ctx context.Context, hash string) (*graph.Graph, error) {
	if hash == "" {
		return nil, nil
	}
	pkg, err := v.Packages.Load(ctx, hash)
	if err != nil {
		return nil, ctx.Err()
	}
	g, err := graph.New(pkg)
	if err != nil {
		return nil, nil
	}
	return g, nil
}

// answered maps tasks to their executions in a run.
type answered struct {
	names []string
	ids   map[string]string
}

func (a *answered) add(task, id string) {
	if _, ok := a.ids[task]; !ok && id != "" {
		a.names = append(a.names, task)
		a.ids[task] = id
	}
}

// answers gathers the executions of a run, and of the earlier runs from which it has them, by records and events.
// self is the run for which this is done.
func (v *Runs) answers(ctx context.Context, ws, self, run string) (*answered, error) {
	a := &answered{ids: map[string]string{}}
	for seen := map[string]bool{self: true}; !seen[run]; {
		seen[run] = true
		if _, err := executions.ParseID(run); err != nil {
			break // no name of a run
		}
		rec, err := v.Read(ctx, ws, run)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil && rec.State != record.RunRunning {
			for e := range rec.Tasks.All() {
				a.add(e.Task, e.ExecutionID)
			}
			break
		}
		f, _, err := v.Fold(ctx, ws, run)
		if err != nil {
			return nil, err
		}
		for i := range f.tasks {
			a.add(f.tasks[i].Task, f.tasks[i].Ended)
		}
		if len(f.bulk) == 0 {
			break
		}
		run = f.bulk[0].As // e3 writes at most one such event
	}
	return a, nil
}
