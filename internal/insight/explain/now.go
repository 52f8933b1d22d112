package explain

import (
	"context"
	"errors"
	"slices"

	"e3/dataflow/graph"
	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/packages"
	"e3/objectstore"
)

// nextRun is the plan of the next start of a workspace for a task and all tasks upstream of it.
type nextRun struct {
	*plan.Next
	graph *graph.Graph
	plan  *plan.Plan
	keys  map[string]*executions.Key // by task, where it is known
}

// look plans a task and its inputs by the current package file. It returns nil if the workspace is not here, or has
// nothing that can run here.
func (x *explaining) look(ws, task string) (*nextRun, error) {
	n, err := x.Workspaces.Next(x.ctx, ws)
	var foreign *packages.NotRunnableError
	if errors.Is(err, human.ErrNotFound) || errors.Is(err, packages.ErrNotDeployed) || errors.As(err, &foreign) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g, err := graph.New(n.Package)
	if err != nil {
		return nil, err
	}
	next := &nextRun{Next: n, graph: g, keys: map[string]*executions.Key{}}
	if _, ok := g.Find(task); !ok {
		return next, nil
	}
	// A label that contains * or ? acts as a pattern and may select more tasks, which does no harm.
	if next.plan, err = n.Planner.Plan(x.ctx, task); err != nil {
		return nil, err
	}
	for i := range next.plan.Tasks {
		if k := next.plan.Tasks[i].Key; k != nil {
			next.keys[g.Name(int32(i))] = k
		}
	}
	return next, nil
}

// nextSide is the side of the next start: the key under which it would look a task up. All its producers must have
// results.
func (x *evidence) nextSide(i int32) (*side, error) {
	n := x.next
	p := &n.plan.Tasks[i]
	s := &side{ws: n.Workspace, task: n.graph.Name(i), hits: map[string]string{}, graph: n.graph}
	s.definition.task, s.inputs = n.graph.Hashes[i], p.Inputs
	if p.Key != nil {
		s.key = p.Key.Inputs
	}
	for _, d := range n.graph.Dependencies(i) {
		s.hits[n.graph.Name(d)] = n.plan.Tasks[d].ExecutionID
	}
	var err error
	if s.object, err = x.object(s.definition.task); err != nil {
		return nil, err
	}
	return s, x.gather(i)
}

// gather makes the directories of a task's fan-ins readable, since no start has stored them yet.
func (x *evidence) gather(i int32) error {
	n := x.next
	fanIn := false
	for _, w := range n.graph.Package.Tasks[i].Wiring {
		fanIn = fanIn || w.Kind == record.WireFanIn
	}
	if !fanIn {
		return nil
	}
	made := map[int32]plan.Produced{}
	for _, d := range n.graph.Dependencies(i) {
		name := n.graph.Name(d)
		if n.plan.Tasks[d].ExecutionID == "" {
			return nil
		}
		a, err := x.attempt(n.Workspace, name, n.plan.Tasks[d].ExecutionID)
		if a == nil || err != nil {
			return err
		}
		out := hash(a.Output)
		size, err := x.Stores.Objects.Stat(x.ctx, out)
		if err != nil {
			return x.passing(err)
		}
		made[d] = plan.Produced{Output: out, Size: size}
	}
	_, _, err := n.Planner.Reads(x.ctx, n.graph, i, func(d int32) (plan.Produced, bool) {
		p, ok := made[d]
		return p, ok
	})
	if err != nil && x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return nil // a missing item is reported by the reader of the directory
}

// would explains why the next start would run a task whose producers all have results.
func (x *explaining) would(i int32, depth int) (*Reason, error) {
	x.budget--
	s, err := x.nextSide(i)
	if err != nil {
		return nil, err
	}
	r := &Reason{Workspace: s.ws, Task: s.task}
	why, err := x.again(executions.Key{Task: s.definition.task, Inputs: s.key}, nil)
	if err != nil {
		return nil, err
	}
	return r, x.compared(r, s, why, depth)
}

// besides explains which parts of a waiting task have already changed, whatever its producers will make: its own
// definition and the inputs of the package. It returns nil if nothing has, or if there is nothing to compare with.
func (x *explaining) besides(i int32) (*Reason, error) {
	x.budget--
	n := x.next
	t := &n.graph.Package.Tasks[i]
	s := &side{ws: n.Workspace, task: t.Name}
	s.definition.task, s.partial, s.inputs = n.graph.Hashes[i], true, make([]objectstore.Hash, len(t.Wiring))
	for j := range t.Wiring {
		if w := &t.Wiring[j]; w.Kind == record.WireInput && w.Entry == "" {
			leaf, _ := n.Inputs.Get(w.Name)
			s.inputs[j] = hash(leaf.Hash)
		}
	}
	var err error
	if s.object, err = x.object(s.definition.task); err != nil {
		return nil, err
	}
	base, err := x.ownNearest(s, maxCompared)
	if base == nil || err != nil {
		return nil, err
	}
	r := &Reason{Workspace: s.ws, Task: s.task, Compared: ref(base.at)}
	if err := x.differ(r, base, s, maxDepth); err != nil || len(r.Differences) == 0 {
		return nil, err
	}
	return r, nil
}

// stuck explains why a task cannot run.
func (x *explaining) stuck(i int32) *Reason {
	n := x.next
	name := n.graph.Name(i)
	p := &n.plan.Tasks[i]
	r := &Reason{Workspace: n.Workspace, Task: name, final: true}
	r.Cause = Cause{Kind: Fault, Workspace: n.Workspace, Task: name, Text: "it cannot run"}
	if p.Err != nil {
		r.Cause.Text = truncate(p.Err.Error(), 2*maxText)
	}
	var lacking *plan.LackingError
	if errors.As(p.Err, &lacking) {
		r.Cause.Kind, r.Cause.Subject = Lacking, lacking.Input
		return r
	}
	for _, w := range n.graph.Package.Tasks[i].Wiring {
		if w.Kind != record.WireInput {
			continue
		}
		if leaf, ok := n.Inputs.Get(w.Name); !ok || leaf.Kind == record.LeafUnassigned {
			r.Cause.Kind, r.Cause.Subject = NoValue, w.Name
			return r
		}
	}
	return r
}

// blockers are the tasks that keep the task from being looked up: tasks with known inputs, upstream or the task itself,
// that the next start would run or cannot run. waiting are the tasks between them and the task, the task included.
func (x *explaining) blockers(i int32) (list, waiting []int32) {
	seen := map[int32]bool{}
	stack := []int32{i}
	for len(stack) > 0 {
		j := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[j] {
			continue
		}
		seen[j] = true
		p := &x.next.plan.Tasks[j]
		switch {
		case p.Step == plan.StepHit:
		case len(p.Waits) == 0 || p.Twin:
			list = append(list, j)
		default:
			waiting = append(waiting, j)
			stack = append(stack, p.Waits...)
		}
	}
	slices.Sort(list)
	slices.Sort(waiting)
	return list, waiting
}

// shows reports whether the workspace already shows, for a task, the output that a start would set.
func (x *explaining) shows(task string, output objectstore.Hash) bool {
	leaf, ok := x.next.Outputs.Get(task)
	return ok && leaf.Hash == output.String()
}

// path names the tasks on a shortest path from a task down to a task that depends on it, both included.
func (x *explaining) path(from, to string) []string {
	g := x.next.graph
	start, ok := g.Find(from)
	end, ok2 := g.Find(to)
	if !ok || !ok2 {
		return []string{from, to}
	}
	below := map[int32]int32{end: end} // task → the next task on the way down
	queue := []int32{end}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		if i == start {
			names := []string{g.Name(i)}
			for i != end {
				i = below[i]
				names = append(names, g.Name(i))
			}
			return names
		}
		for _, d := range g.Dependencies(i) {
			if _, seen := below[d]; !seen {
				below[d] = i
				queue = append(queue, d)
			}
		}
	}
	return []string{from, to}
}
