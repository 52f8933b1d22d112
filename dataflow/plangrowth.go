package dataflow

import (
	"context"
	"slices"

	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Made finds the lists of items that are known before a run: the lists of gates whose tasks all have an answer now.
// Nothing is executed and nothing is stored; only the tasks upstream of gates are looked up. lookups is as for Keys.
func Made(ctx context.Context, g *Graph, objects objectstore.Store, x Lookup, inputs record.Node, lookups int) ([]MadeList, error) {
	needed := make([]bool, g.Len())
	var stack []int32
	for _, i := range g.Gates() {
		stack = append(stack, i)
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		if stack = stack[:len(stack)-1]; !needed[i] {
			needed[i] = true
			stack = append(stack, g.Dependencies(i)...)
		}
	}
	r := newReader(ctx, g, objects, unstored{Store: objects}, &Options{Inputs: inputs})
	known := make([]bool, g.Len())
	err := each(ctx, g, lookups, func(ctx context.Context, i int32) error {
		if !needed[i] || g.IsPending(i) {
			return nil
		}
		if g.IsGate(i) {
			known[i] = !slices.ContainsFunc(g.Dependencies(i), func(d int32) bool { return !known[d] })
			return nil
		}
		key := r.key(i, known)
		if key == nil {
			return nil
		}
		a, err := x.Lookup(ctx, *key)
		if err != nil || a.Hit == nil {
			return err
		}
		r.results[i], known[i] = TaskResult{Output: a.Hit.Output, Size: a.Hit.Size}, true
		return nil
	})
	if err != nil {
		return nil, err
	}
	var made []MadeList
	for i := range known {
		if i := int32(i); known[i] && g.IsGate(i) {
			made = append(made, madeList(r, i))
		}
	}
	return made, nil
}

// held marks the tasks below gates that the baseline does not prove.
func (p *planner) held() []bool {
	held := make([]bool, p.g.Len())
	var closed []int32
	for _, i := range p.g.Gates() {
		if !p.proven(i) || p.losses.below[i] || p.opts.Baseline.Package != p.g.Origin {
			closed = append(closed, i)
			held[i] = true
		}
	}
	p.g.MarkDownstream(closed, held)
	return held
}

// gate settles a gate after the tasks that make its list: the list is known if all of them have answers.
func (p *planner) gate(i int32) {
	t := &p.tasks[i]
	if t.Step = StepHit; len(t.Waits) > 0 {
		t.Step = StepWait
	}
}

// unknown settles a pending task.
func (p *planner) unknown(i int32) {
	t := &p.tasks[i]
	t.Step = StepWait
	if err := p.o.Failed[p.g.Name(i)]; err != nil {
		t.Step, t.Err, t.Waits = StepStuck, err, nil
	}
}

// planned returns the plan of the package's tasks only, in the package's order: in a new graph they are the first
// nodes.
func (p *planner) planned() *Planned {
	planned := &Planned{Tasks: p.tasks}
	if p.g.Origin == p.g.Package {
		return planned
	}
	n := len(p.g.Origin.Tasks)
	planned.Tasks = p.tasks[:n]
	for i := range planned.Tasks {
		planned.Tasks[i].Waits = p.tasksBelow(planned.Tasks[i].Waits)
	}
	for i := n; i < p.g.Len(); i++ {
		i := int32(i)
		t := &p.tasks[i]
		if t.Step == StepNone || t.Step == StepHit {
			continue
		}
		e := plan.Growing{Name: p.g.Name(i), Waits: p.tasksBelow(t.Waits), Err: t.Err}
		if e.Pending = p.g.IsPending(i); !e.Pending {
			for _, d := range p.g.Dependents(i) {
				if p.g.IsTask(d) && p.tasks[d].Step != StepNone {
					e.Tasks++
				}
			}
			if e.Tasks == 0 && e.Err == nil {
				continue // its pending family says it
			}
		}
		planned.Growing = append(planned.Growing, e)
	}
	return planned
}

// tasksBelow replaces gates and pending tasks by the tasks that they wait for.
func (p *planner) tasksBelow(waits []int32) []int32 {
	var list []int32
	seen := map[int32]bool{}
	var add func(i int32)
	add = func(i int32) {
		if seen[i] {
			return
		}
		seen[i] = true
		if p.g.IsTask(i) {
			list = append(list, i)
			return
		}
		for _, d := range p.tasks[i].Waits {
			add(d)
		}
	}
	for _, i := range waits {
		add(i)
	}
	return list
}

var _ Lookup = (*executions.Store)(nil)
