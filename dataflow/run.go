package dataflow

import (
	"context"
	"time"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Executor answers one task on given inputs; *executions.Executor implements it.
type Executor interface {
	Do(ctx context.Context, req *executions.Request) (executions.Result, error)
}

// State is the state of a task in a run.
type State uint8

// The states of a task. Every selected task leaves Pending exactly once.
const (
	Pending   State = iota
	Cached          // answered by an earlier execution
	Succeeded       // executed here, or by another run on which this run waited
	Failed          // its last attempt ended without success
	Skipped         // something upstream failed
	Abandoned       // the run ended before its turn
)

// TaskResult is the result of one task.
type TaskResult struct {
	State       State
	Rejected    bool   // it has failed since a person did not approve it
	ExecutionID string // "" if there is none
	Output      objectstore.Hash
	Size        int64
	Duration    time.Duration // of the execution
	Proven      bool          // answered by the baseline, without a lookup
}

// Change is a dataset that a run has produced.
type Change struct {
	Task string
	Leaf record.Leaf
}

// Publish makes results visible in the workspace. It is called by one goroutine at a time.
type Publish func(ctx context.Context, changes []Change) error

// Options say how to run a graph.
type Options struct {
	RunID     string
	Workspace string
	Inputs    record.Node // the datasets of the package's inputs
	Baseline  *Baseline   // nil: nothing is proven, everything is looked up

	Concurrency int                // commands at a time, in cores; at least 1
	Memory      int64              // bound in bytes on the sum of declared demands; 0: none
	Capacities  map[string]float64 // of named resources; default: the greatest single demand
	Force       bool               // run what the filter names even if the answer is known
	Filter      string             // only tasks that match this pattern, and tasks upstream of them; "": all
	FailFast    bool               // start nothing after the first failure
	Strict      bool               // tasks that may fail fail the run as others do
	// Lookups is how many tasks are looked up at a time, for remote records. Ready tasks are then looked up before
	// they claim any resources of commands. 0: a task is looked up when it is launched.
	Lookups int

	// Outstanding bounds the executions that are out at a time, per queue and set of labels, if the executor makes
	// them elsewhere. This process's own limits do not apply there. 0: executions are made here.
	Outstanding int
	// Blocks records the tasks that wait for approval. nil: there is no record, and such a task fails.
	Blocks Blocks
	NoWait bool // end when all remaining tasks wait for a person

	Growth   Growth                          // nil if the graph does not grow
	Expected func(task string) time.Duration // from history; nil: unknown
	Emit     func(events.Event)              // called by several goroutines
	Publish  Publish                         // nil: nothing is published before the end
	// Restore stores lost contents of the package file and its linked files anew. nil: there are no such files.
	Restore func(ctx context.Context) error
}

// Outcome is the result of a run.
type Outcome struct {
	Graph      *Graph // what the graph has become: the tasks of its package
	State      record.RunState
	FailedTask string
	Error      string
	Tasks      []TaskResult // by index of Graph
	Summary    record.Summary
	Proven     int // number of tasks that the baseline answered without a lookup
	Evidence
	TimedOut bool // the first failure was a timeout
	Waiting  int  // number of tasks that wait for a person, if Options.NoWait alone ended the run
}

// Evidence is what a run proves for the next one, if the generation is the same at its end as before its first lookup.
type Evidence struct {
	// Answered is the number of tasks whose answer it has found; 0 if it proves nothing.
	Answered int
	// Open are tasks with an execution that answers nothing: failed ones, and those that make a list which the run has not
	// taken, so that the package may be of another list.
	Open []string
	// Kept is the number of tasks that the baseline answers still, whether the run selected them or not.
	Kept int
}

// Run brings every selected task to its end and returns the results. A task that fails is an outcome. An error means
// that the stores are at fault and the run had to stop: the running commands have ended, and the outcome says that
// the run failed. A done ctx cancels the run: commands are stopped and recorded as cancelled.
func Run(ctx context.Context, g *Graph, objects objectstore.Store, exec Executor, opts Options) (*Outcome, error) {
	s := newScheduler(ctx, g, objects, exec, &opts)
	err := s.run()
	o := s.outcome(err)
	if opts.Growth != nil {
		if err := o.plain(); err != nil {
			return nil, err
		}
	}
	return o, err
}

// plain leaves only the package's tasks in the outcome, in the package's order.
func (o *Outcome) plain() error {
	g, err := graph.New(o.Graph.Origin)
	if err != nil {
		return err
	}
	tasks := make([]TaskResult, g.Len())
	for i := range tasks {
		if at, ok := o.Graph.Find(g.Name(int32(i))); ok {
			tasks[i] = o.Tasks[at]
		}
	}
	o.Graph, o.Tasks = g, tasks
	return nil
}

// Executions returns the tasks that have an execution, in the graph's order, for the run's record.
func (o *Outcome) Executions(g *Graph) record.RunTasks {
	return record.NewRunTasks(func(yield func(record.TaskExecution) bool) {
		for i := range o.Tasks {
			if t := &o.Tasks[i]; t.ExecutionID != "" {
				if !yield(record.TaskExecution{Task: g.Name(int32(i)), ExecutionID: t.ExecutionID, Cached: t.State == Cached}) {
					return
				}
			}
		}
	})
}

// Results returns the datasets for which the run has answers, in the graph's order; without proven, only those of
// tasks that were looked up or executed.
func (o *Outcome) Results(g *Graph, proven bool) []Change {
	var changes []Change
	for i := range o.Tasks {
		if t := &o.Tasks[i]; (t.State == Cached || t.State == Succeeded) && (proven || !t.Proven) {
			changes = append(changes, Change{Task: g.Name(int32(i)), Leaf: leafOf(g, int32(i), t.Output, t.Size)})
		}
	}
	return changes
}
