package dataflow

import (
	"context"
	"maps"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Step is what a run would do with a task.
type Step uint8

// The steps of a plan.
const (
	StepNone  Step = iota // the filter leaves it out
	StepHit               // it is answered by an earlier execution
	StepRun               // it is executed, if what it reads succeeds
	StepWait              // what it reads is not known before something upstream has run: it may turn out to be a hit
	StepStuck             // it cannot run, or reads what cannot be made
)

func (s Step) String() string {
	switch s {
	case StepHit:
		return "hit"
	case StepRun:
		return "run"
	case StepWait:
		return "waits"
	case StepStuck:
		return "stuck"
	}
	return "not selected"
}

// TaskPlan is what a run would do with one task, and why.
type TaskPlan struct {
	Step        Step
	ExecutionID string // that answers a hit
	Forced      bool   // it runs whatever is known
	// Key is what it is looked up under; nil where that is not known yet, and where the baseline answers without a look.
	Key    *executions.Key
	Inputs []objectstore.Hash // what Key was made from, in declared order
	Answer *executions.Answer // the lookup that found no hit; nil where none was made
	// Waits are the tasks directly upstream that have no answer yet, or that are stuck.
	Waits []int32
	// Twin says that Waits is another task that has the same key: whichever runs first answers both.
	Twin bool
	// Err says why a stuck task cannot run, and of one that waits that it could not if it had to. A LackingError fails that task;
	// any other ends the run.
	Err error
}

// Planned is what a run would do.
type Planned struct {
	Tasks                    []TaskPlan // by index of the graph
	Hits, Runs, Waits, Stuck int
	Forecast
}

// PlanOptions are the options of a run that is only planned.
type PlanOptions struct {
	Options
	// Fresh are inputs whose content would be stored before the run, so that it need not be there.
	Fresh map[string]bool
	// Stored tells of an object whether the start would store it before it looks anything up. It may be nil.
	Stored func(objectstore.Hash) bool
	// Linked says that the package file is at hand, so that a task object which is lost is stored anew.
	Linked bool
	// Gathered is where the directories of fan-ins are put, for whoever wants to look at them; nil: nowhere.
	Gathered objectstore.Store
}

// Lookup finds what is on record for a key; *executions.Store does it.
type Lookup interface {
	Lookup(ctx context.Context, k executions.Key) (executions.Answer, error)
}

// Plan tells what Run would do with these options now: which tasks are answered, which are executed, and which wait for
// what those leave behind. Nothing is executed and nothing is stored. Equal keys in one graph answer each other, and
// which of them runs is chance. What a task that runs would read is looked for, and in a store on this machine read: whatever has left
// something that is lost runs too. An error means that the records cannot be read.
func Plan(ctx context.Context, g *Graph, objects objectstore.Store, x Lookup, opts PlanOptions) (*Planned, error) {
	s := &scheduler{reader: newReader(ctx, g, objects, unstored{objects, opts.Gathered}, &opts.Options), states: make([]taskState, g.Len())}
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
	planned := &Planned{Tasks: p.tasks}
	for i := range p.tasks {
		switch p.tasks[i].Step {
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
	planned.Forecast = forecast(g, p.tasks, &opts.Options)
	return planned, nil
}

// planner goes over the graph as a scheduler would in which every task without an answer goes on for ever.
type planner struct {
	*scheduler
	x      Lookup
	o      *PlanOptions
	tasks  []TaskPlan
	losses *planLosses
}

// all goes over the graph once.
func (p *planner) all(ctx context.Context) error {
	p.tasks, p.results = make([]TaskPlan, p.g.Len()), make([]TaskResult, p.g.Len())
	for i := range p.tasks {
		if i := int32(i); p.wants(i) && p.proven(i) && !p.losses.below[i] {
			p.hit(i, p.proof.result(i))
		}
	}
	return each(ctx, p.g, p.opts.Lookups, p.plan)
}

func (p *planner) hit(i int32, r TaskResult) {
	p.results[i] = r
	p.tasks[i].Step, p.tasks[i].ExecutionID = StepHit, r.ExecutionID
}

// plan settles task i; what it reads is settled.
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
			stuck = append(stuck, d)
		default:
			t.Waits = append(t.Waits, d)
		}
	}
	switch {
	case len(stuck) > 0:
		t.Step, t.Waits = StepStuck, stuck
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
		if same { // early cut-off, as work has it
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

// waiting settles a task that reads what is not known yet. A forced one runs whatever that will be.
func (p *planner) waiting(ctx context.Context, i int32) error {
	t := &p.tasks[i]
	for _, w := range p.g.Package.Tasks[i].Wiring {
		if w.Kind == record.WireInput {
			if _, err := p.input(w.Name); err != nil {
				return p.stuck(t, err)
			}
		}
	}
	err := p.contents(i)
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

// twins has one task of each key run, and the others wait for it.
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
