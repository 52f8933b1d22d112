package dataflow

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// planLosses are the tasks of a plan with lost outputs, as found by checking the inputs of tasks that would run. The
// plan is made again until a pass finds no more losses.
type planLosses struct {
	g     *Graph
	looks sync.Map         // by object, a func() (bool, error) that tells whether it is lost
	after map[int32]string // by task, the execution that is no answer any more
	below []bool           // the task, or one upstream of it, has a lost output

	mu    sync.Mutex
	found map[int32]string // as after, found in this pass
}

func newPlanLosses(g *Graph) *planLosses {
	return &planLosses{g: g, after: map[int32]string{}, below: make([]bool, g.Len()), found: map[int32]string{}}
}

// more adds the losses of a pass, and tells whether there were any.
func (l *planLosses) more() bool {
	if len(l.found) == 0 {
		return false
	}
	for i, id := range l.found {
		l.after[i], l.below[i] = id, true
	}
	clear(l.found)
	for _, i := range l.g.Order() {
		for _, d := range l.g.Dependencies(i) {
			l.below[i] = l.below[i] || l.below[d]
		}
	}
	return true
}

// look tells whether an object is lost. Each object is checked once per plan.
func (p *planner) look(_ context.Context, h objectstore.Hash) (bool, error) {
	if p.o.Stored != nil && p.o.Stored(h) {
		return false, nil
	}
	once, _ := p.losses.looks.LoadOrStore(h, sync.OnceValues(func() (bool, error) { return objectstore.Lost(p.ctx, p.objects, h) }))
	return once.(func() (bool, error))()
}

// reads checks the known inputs of a task that would run.
func (p *planner) reads(ctx context.Context, i int32) error {
	if lost, err := p.upstream(ctx, i); lost || err != nil {
		return err // the next pass decides
	}
	inputs, err := p.lostInputs(ctx, i, p.look)
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range inputs {
		if e.Input == "" && !p.o.Linked || e.Input != "" && !p.o.Fresh[e.Input] {
			faults = append(faults, e)
		}
	}
	if len(faults) > 0 {
		return p.stuck(&p.tasks[i], errors.Join(faults...))
	}
	return nil
}

// upstream notes the upstream tasks with lost outputs, and tells whether there are any. As in a run, all of their
// outputs are checked, but only if the task itself could not be staged.
func (p *planner) upstream(ctx context.Context, i int32) (lost bool, err error) {
	if misses, err := p.misses(ctx, i); !misses || err != nil {
		return false, err
	}
	for _, d := range producers(p.reader, i) {
		if p.tasks[d].Step != StepHit {
			continue
		}
		gone, err := p.lostOutput(ctx, d, p.look)
		if err != nil {
			return false, err
		}
		if len(gone) > 0 {
			lost = true
			p.losses.mu.Lock()
			p.losses.found[d] = p.tasks[d].ExecutionID
			p.losses.mu.Unlock()
		}
	}
	return lost, nil
}

// misses tells whether any part that a task reads is lost, as far as the parts are known.
func (p *planner) misses(ctx context.Context, i int32) (bool, error) {
	inputs, err := p.lostInputs(ctx, i, p.look)
	if err != nil || len(inputs) > 0 {
		return len(inputs) > 0, err
	}
	for _, w := range p.g.Package.Tasks[i].Wiring {
		var items []record.FanItem
		switch w.Kind {
		case record.WireOutput:
			items = []record.FanItem{{Task: w.Name, Entry: w.Entry}}
		case record.WireFanIn:
			items = w.Items
		}
		for k := range items {
			if items[k].Input != "" { // it was checked above
				continue
			}
			if lost, err := p.lostPart(ctx, items[k].Task, items[k].Entry); lost || err != nil {
				return lost, err
			}
		}
	}
	return false, nil
}

// lostPart tells whether the output of a hit, or one entry of it, has lost objects.
func (p *planner) lostPart(ctx context.Context, task, entry string) (bool, error) {
	d, _ := p.g.Find(task)
	if p.tasks[d].Step != StepHit {
		return false, nil
	}
	if entry != "" { // the directory's own object lists the entry
		if lost, err := p.look(ctx, p.results[d].Output); lost || err != nil {
			return lost, err
		}
	}
	e, err := p.output(task, entry)
	if err != nil {
		return objectstore.IsLost(err)
	}
	lost, err := tree.FindLost(ctx, p.objects, e.Hash, e.Kind == tree.KindDir, p.look)
	if err != nil {
		return false, fmt.Errorf("output of %s: %w", task, err)
	}
	return len(lost) > 0, nil
}

// unread settles a task whose key cannot be computed. If an upstream output is lost, the next pass knows more.
func (p *planner) unread(ctx context.Context, i int32, err error) error {
	t := &p.tasks[i]
	if lost, _ := objectstore.IsLost(err); lost {
		if upstream, err := p.upstream(ctx, i); upstream || err != nil {
			t.Step = StepWait
			return err
		}
	}
	return p.stuck(t, err)
}
