// Package plan has the types of a plan of the next start of a workspace. The dataflow makes plans; explanations,
// comparisons and the terminal read them. The package runs nothing and imports nothing that does.
package plan

import (
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Step is the step that a run would take with a task.
type Step uint8

// The steps of a plan.
const (
	StepNone  Step = iota // the filter leaves it out
	StepHit               // it has a cached result
	StepRun               // it is executed, if its inputs succeed
	StepWait              // its key depends on a task that must run: it may turn out to be a hit
	StepStuck             // it cannot run, or an input cannot be made
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

// MarshalText gives the step its word in answers.
func (s Step) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Task is the plan of one task, with the reason.
type Task struct {
	Step        Step
	ExecutionID string // the hit's
	Forced      bool   // it runs even if it has a cached result
	// Key is the lookup's key; nil if it is not known yet, or if the baseline has the result without a lookup.
	Key    *executions.Key
	Inputs []objectstore.Hash // the inputs in Key, in declared order
	Answer *executions.Answer // the result of a lookup without a hit; else nil
	// Waits are the tasks directly upstream that have no result yet, or that are stuck.
	Waits []int32
	// Twin means that Waits is another task with the same key: whichever of the two runs first gives the result of
	// both.
	Twin bool
	// Err says why a stuck task cannot run, or why a waiting task could not run if it had to. A LackingError fails
	// only that task; any other error ends the run.
	Err error
}

// Plan holds the steps of a run.
type Plan struct {
	Tasks    []Task    `json:"-"` // by index of the graph
	Growing  []Growing `json:"-"`
	Hits     int       `json:"hits"`
	Runs     int       `json:"run"`
	Waits    int       `json:"waits"`
	Stuck    int       `json:"stuck"`
	Forecast `json:"-"`
}

// Growing is a list of items that tasks have yet to make: until then a plan cannot know the tasks of the list.
type Growing struct {
	Name    string  // the family that the list decides, or a task that reads such a family
	Pending bool    // the package has no tasks of the family yet; false: it has the tasks of the last list
	Tasks   int     // how many tasks the last list decides
	Waits   []int32 // the tasks that make the list
	Err     error   // why the list cannot be used
}

// Forecast is the expected duration of a plan, from the last durations of its tasks.
type Forecast struct {
	Expected []time.Duration // by index of the graph; without history, the average of tasks with one
	Known    []bool          // by index of the graph: Expected comes from the task's own history
	History  bool            // any task has a history; otherwise the times below mean nothing
	Unknown  int             // number of tasks of the plan without history, including those that wait
	// Least and Most are the durations with the given cores, memory and resources: Least if every waiting task turns
	// out to be a hit, Most if all of them run.
	Least, Most time.Duration
	// Critical is the longest path through the tasks that run or wait. With any number of cores the run takes
	// CriticalTime.
	Critical     []int32
	CriticalTime time.Duration
}

// Produced is the output of a task.
type Produced struct {
	Output objectstore.Hash
	Size   int64 // of the output object
}

// A LackingError says that a task cannot run, although it has no answer: of an input that exports may leave out, only
// the hash is known. Its content has stayed where the workspace was exported (design.md, "What goes"), or is lost; no
// record says which. Only this task fails, not the run: tasks that do not depend on it go on.
type LackingError struct {
	Workspace, Input string
	Kind             record.LeafKind
}

func (e *LackingError) Error() string {
	what := "@<path>"
	if e.Kind == record.LeafValue {
		what = "<value>"
	}
	return fmt.Sprintf("the content of input %s is not here: an export has left it out, or else it is gone, and e3 verify tells what else is; set it with: e3 set <repo> %s.%s %s", e.Input, e.Workspace, e.Input, what)
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *LackingError) Unwrap() error { return objectstore.ErrNotFound }
