package dataflow

import (
	"context"
	"maps"
	"slices"

	"e3/dataflow/plan"
	"e3/executions"
	"e3/objectstore"
)

// The words of a plan.
type (
	Step         = plan.Step
	TaskPlan     = plan.Task
	Planned      = plan.Plan
	Forecast     = plan.Forecast
	Produced     = plan.Produced
	LackingError = plan.LackingError
)

// The steps of a plan.
const (
	StepNone  = plan.StepNone
	StepHit   = plan.StepHit
	StepRun   = plan.StepRun
	StepWait  = plan.StepWait
	StepStuck = plan.StepStuck
)

// PlanOptions are the options of a plan.
type PlanOptions struct {
	Options
	// Fresh are inputs whose content the start would store before the run, so that it may be missing now.
	Fresh map[string]bool
	// Stored tells whether the start would store an object before any lookup. It may be nil.
	Stored func(objectstore.Hash) bool
	// Linked says that the package file is on this machine, so that a lost task object would be stored anew.
	Linked bool
	// Failed says which pending families the known lists do not make: see Grown.
	Failed map[string]error
	// Gathered receives the directories of fan-ins, for inspection; nil: they are not stored. It also reads the directories
	// of inputs that the start would store.
	Gathered objectstore.Store
}

// Lookup finds what is on record for a key; *executions.Store implements it.
type Lookup interface {
	Lookup(ctx context.Context, k executions.Key) (executions.Answer, error)
}

// Plan tells what Run would do with these options now: which tasks are answered, which are executed, and which wait
// for outputs of executed tasks. Nothing is executed and nothing is stored. Tasks with equal keys in one graph answer
// each other, and which of them runs is chance. Plan also checks the inputs of tasks that would run, and reads them
// if the store is on this machine: a task whose output is lost runs too. An error means that the records cannot be
// read.
func Plan(ctx context.Context, g *Graph, objects objectstore.Store, x Lookup, opts PlanOptions) (*Planned, error) {
	s := &scheduler{reader: newReader(ctx, g, objects, unstored{objects, opts.Gathered}, &opts.Options), states: make([]taskState, g.Len())}
	if opts.Gathered != nil {
		s.folders = opts.Gathered
	}
	s.marked = marked(g.Package)
	s.choose()
	maps.DeleteFunc(s.marked, func(name string, _ bool) bool { return opts.Fresh[name] })
	p := &planner{scheduler: s, x: x, o: &opts, losses: newPlanLosses(g)}
	for more := true; more; more = p.losses.more() {
		if err := p.all(ctx); err != nil {
			return nil, err
		}
	}
	p.twins()
	f := forecast(g, p.tasks, &opts.Options)
	planned := p.planned()
	for i := range planned.Tasks {
		switch planned.Tasks[i].Step {
		case StepHit:
			planned.Hits++
		case StepRun:
			planned.Runs++
		case StepWait:
			planned.Waits++
		case StepStuck:
			planned.Stuck++
		}
	}
	planned.Forecast = f
	planned.Critical = slices.DeleteFunc(planned.Critical, func(i int32) bool { return !g.IsTask(i) })
	return planned, nil
}

// planner walks the graph like a scheduler in which no executed task ever ends.
type planner struct {
	*scheduler
	x      Lookup
	o      *PlanOptions
	tasks  []TaskPlan
	losses *planLosses
}

// all walks the graph once.
func (p *planner) all(ctx context.Context) error {
	p.tasks, p.results = make([]TaskPlan, p.g.Len()), make([]TaskResult, p.g.Len())
	held := p.held()
	for i := range p.tasks {
		if i := int32(i); p.wants(i) && p.proven(i) && !p.losses.below[i] && !held[i] {
			p.hit(i, p.proof.result(i))
		}
	}
	return each(ctx, p.g, p.opts.Lookups, p.plan)
}

func (p *planner) hit(i int32, r TaskResult) {
	p.results[i] = r
	p.tasks[i].Step, p.tasks[i].ExecutionID = StepHit, r.ExecutionID
}

// plan settles task i, whose inputs are settled.
func (p *planner) plan(ctx context.Context, i int32) error {
	t := &p.tasks[i]
	if !p.wants(i) || t.Step != StepNone {
		return nil
	}
	t.Forced = p.forces(i)
	var stuck []int32
	for _, d := range p.g.Dependencies(i) {
		switch p.tasks[d].Step {
		case StepHit:
		case StepStuck:
			if p.g.Tolerates(i, d) {
				t.Waits = append(t.Waits, d)
				continue
			}
			stuck = append(stuck, d)
		default:
			t.Waits = append(t.Waits, d)
		}
	}
	switch {
	case len(stuck) > 0:
		t.Step, t.Waits = StepStuck, stuck
		return nil
	case p.g.IsGate(i):
		p.gate(i)
		return nil
	case p.g.IsPending(i):
		p.unknown(i)
		return nil
	case len(t.Waits) > 0:
		return p.waiting(ctx, i)
	}
	after := p.losses.after[i]
	if p.proof != nil && p.proof.same[i] && !t.Forced && after == "" {
		same, err := p.sameInputs(i)
		if err != nil {
			return p.unread(ctx, i, err)
		}
		if same { // early cut-off, as in work
			p.hit(i, p.proof.result(i))
			return nil
		}
	}
	inputs, _, err := p.resolve(i)
	if err != nil {
		return p.unread(ctx, i, err)
	}
	key := executions.NewKey(p.g.Hashes[i], inputs)
	t.Key, t.Inputs = &key, inputs
	if !t.Forced {
		a, err := p.x.Lookup(ctx, key)
		if err != nil {
			return err
		}
		a = a.Without(after)
		if h := a.Hit; h != nil {
			p.hit(i, TaskResult{ExecutionID: h.ExecutionID, Output: h.Output, Size: h.Size})
			return nil
		}
		t.Answer = &a
	}
	if err := p.contents(i); err != nil {
		return p.stuck(t, err)
	}
	t.Step = StepRun
	return p.reads(ctx, i)
}

// waiting settles a task whose inputs are not all known yet. A forced task runs whatever its inputs will be.
func (p *planner) waiting(ctx context.Context, i int32) error {
	t := &p.tasks[i]
	var err error
	inputParts(p.g.Package.Tasks[i].Wiring, func(name, _ string) bool {
		_, err = p.input(name)
		return err == nil
	})
	if err != nil {
		return p.stuck(t, err)
	}
	err = p.contents(i)
	switch {
	case err != nil && (t.Forced || p.ctx.Err() != nil):
		return p.stuck(t, err)
	case t.Forced:
		t.Step = StepRun
		return p.reads(ctx, i)
	default:
		t.Step, t.Err = StepWait, err
	}
	return nil
}

// stuck settles a task that a run could not execute.
func (p *planner) stuck(t *TaskPlan, err error) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	t.Step, t.Err, t.Waits = StepStuck, err, nil
	return nil
}

// twins lets one task of each key run, and the others wait for it.
func (p *planner) twins() {
	first := map[executions.Key]int32{}
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.Step != StepRun || t.Forced {
			continue
		}
		if f, ok := first[*t.Key]; ok {
			t.Step, t.Waits, t.Twin = StepWait, []int32{f}, true
		} else {
			first[*t.Key] = int32(i)
		}
	}
}
