// Package explain says why a task ran, would run, failed, or had a result in the cache. It compares the parts of a
// key with the key of the nearest earlier success of the same name, and follows each input that differs to the
// execution that made it. This leads to the first change (doc/design.md §14).
//
// It reads records, events and objects, and writes nothing. Records that other programs wrote can be wrong in any way:
// all work is bounded, and an explanation says which evidence is gone or cannot be read.
package explain

import (
	"context"
	"sync"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// Bounds of an explanation.
const (
	maxReasons  = 100 // executions that are explained, upstream included
	maxDepth    = 64  // of the chain upstream
	maxFollowed = 8   // inputs and items of one task that are followed upstream
	maxCompared = 50  // earlier successes among which the nearest is looked for
	maxFew      = 8   // compared for Miss
	recentRuns  = 64  // runs whose attempts are read at first
	maxParts    = 100 // differences of one task that are listed
	maxFiles    = 5   // changed files that are listed
	maxCounted  = 10_000
	maxListed   = 20 // tasks downstream that are named
	maxLines    = 12 // of a difference between two commands
	maxTail     = 10 // last lines of a log
	maxText     = 200
	maxLine     = 400         // bytes of a line of a log
	clockSlack  = time.Minute // lead of an id's time over the local clock that is tolerated
)

// Objects is the part of the object store that explanations use.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Workspaces is the part of a repository's workspaces that explanations use; workspace.View implements it.
type Workspaces interface {
	// State returns the state of a workspace, or human.ErrNotFound.
	State(ctx context.Context, ws string) (*record.WorkspaceState, error)
	// List returns the names of all workspaces in order.
	List(ctx context.Context) ([]string, error)
	// Next returns the package and inputs that the next start of a workspace would use.
	Next(ctx context.Context, ws string) (*plan.Next, error)
	// IsCurrent reports whether a workspace shows what the next start would leave as it is, if failed tasks fail again.
	IsCurrent(ctx context.Context, ws, task string) (bool, error)
}

// Stores holds the sources of explanations.
type Stores struct {
	history.Stores
	Workspaces Workspaces
	Objects    Objects
	// Queued finds the job of a task that a run has put in a queue. It leaves For, Run and Since of the result empty. A
	// nil function or a nil result means that there is no job.
	Queued func(ctx context.Context, ws, run, task string) (*Wait, error)
}

// An Explainer caches records, events and objects that it has read, so it should serve one command only. It is safe for
// concurrent use.
type Explainer struct {
	Stores
	now func() time.Time

	mu       sync.Mutex
	attempts map[[2]string]past          // by workspace and task
	from     map[string]string           // by workspace: the first of its recent runs; "" if all runs are recent
	together []string                    // the tasks of the last Prefetch, in order
	folds    map[[2]string]*runview.Fold // by workspace and run
	graphs   map[string]*graph.Graph     // by package hash; nil: gone
	runs     map[[2]string]*runFacts     // by workspace and run
	tasks    map[objectstore.Hash]*record.Task
	trees    map[objectstore.Hash]tree.Entries
}

// New returns an Explainer.
func New(s Stores) *Explainer {
	s.Runs = s.Runs.Remembering()
	return &Explainer{
		Stores: s, now: s.Runs.Now,
		attempts: map[[2]string]past{}, from: map[string]string{}, folds: map[[2]string]*runview.Fold{}, graphs: map[string]*graph.Graph{}, runs: map[[2]string]*runFacts{},
		tasks: map[objectstore.Hash]*record.Task{}, trees: map[objectstore.Hash]tree.Entries{},
	}
}

// State is the state of the task, or of the execution, that a question is about. Its values never change.
type State string

// The states of tasks and executions.
const (
	Current  State = "current"   // it has a result: the next start does not run it
	WouldRun State = "would run" // the next start runs it
	Waits    State = "waits"     // its inputs are not known before a task upstream has run
	Ran      State = "ran"       // the execution in question was a success
	Failed   State = "failed"    // it has failed, and nothing has changed since
	Skipped  State = "skipped"   // something upstream has failed, and nothing has changed since
	Running  State = "running"   // now
	Queued   State = "queued"    // the active run is about to run it: it waits for a worker, or for its turn
	Stuck    State = "stuck"     // it cannot run
	Removed  State = "removed"   // no package has the task any more: its latest execution is explained
	Gone     State = "gone"      // no record of the execution is left
)

// An Explanation says why a task has its state, or why an execution was made.
type Explanation struct {
	Workspace  string        `json:"workspace"`
	Task       string        `json:"task"`
	State      State         `json:"state"`
	Sentence   string        `json:"sentence"`
	Execution  *ExecutionRef `json:"execution,omitempty"`  // the explained one
	Root       Cause         `json:"root"`                 // the first cause; of a current task, the cause of its execution
	Roots      []Cause       `json:"roots,omitempty"`      // all first causes, root first
	Chain      []string      `json:"chain,omitempty"`      // the tasks from the root's down to this one
	Reason     *Reason       `json:"reason,omitempty"`     // leads from the task to the roots
	Failure    *Failure      `json:"failure,omitempty"`    // of this task, or of the task for which it was skipped
	Changed    []Cause       `json:"changed,omitempty"`    // since the last success
	Waiting    *Wait         `json:"waiting,omitempty"`    // why the task waits in the active run
	Downstream *Downstream   `json:"downstream,omitempty"` // other tasks that the root affects
	Notes      []string      `json:"notes,omitempty"`

	blockers int    // tasks that it waits for
	refused  string // how the latest run ended the task without running it
}

// A Wait is what a task waits for in an active run.
type Wait struct {
	For    string    `json:"for"` // approval, worker, or turn: the run has as many tasks at work as it may
	Run    string    `json:"run"`
	Queue  string    `json:"queue,omitempty"`
	Labels []string  `json:"labels,omitempty"` // of the worker
	Memory int64     `json:"memory,omitempty"` // of the worker
	Worker string    `json:"worker,omitempty"` // claimed, but not begun
	Since  time.Time `json:"since"`
}

// Values of Wait.For.
const (
	forApproval = "approval"
	forWorker   = "worker"
	forTurn     = "turn"
)

// An ExecutionRef names an execution, with its main properties.
type ExecutionRef struct {
	Workspace    string            `json:"workspace,omitempty"`
	Task         string            `json:"task,omitempty"`
	Execution    string            `json:"execution,omitempty"`
	Key          string            `json:"key,omitempty"`
	Run          string            `json:"run,omitempty"`
	Status       runview.TaskState `json:"state,omitempty"`
	At           time.Time         `json:"startedAt,omitzero"`
	Attempt      int64             `json:"attempt,omitempty"`
	Worker       string            `json:"worker,omitempty"`
	ImportedFrom string            `json:"importedFrom,omitempty"`
}

// A Reason says why one task ran, or would run. Differences are relative to Compared. Upstream holds the reasons of
// differences that a task upstream has caused.
type Reason struct {
	Workspace   string        `json:"workspace"`
	Task        string        `json:"task"`
	Execution   *ExecutionRef `json:"execution,omitempty"`
	Cause       Cause         `json:"cause"`
	Compared    *ExecutionRef `json:"compared,omitempty"`
	Differences []Difference  `json:"differences,omitempty"`
	Upstream    []*Reason     `json:"upstream,omitempty"`
	More        int           `json:"more,omitempty"`
	Omitted     int           `json:"omitted,omitempty"` // differences whose causes upstream are not followed
	AsAbove     bool          `json:"asAbove,omitempty"` // explained earlier in this answer
	Before      *Reason       `json:"before,omitempty"`  // of the run's first attempt
	Failed      *Failure      `json:"failed,omitempty"`
	Notes       []string      `json:"notes,omitempty"`

	final bool    // Cause is the root, whatever differs
	see   *Reason // the earlier reason that AsAbove refers to
}

// A Failure describes the end of an execution that did not succeed.
type Failure struct {
	Task      string        `json:"task"`
	Kind      Kind          `json:"kind"`
	ExitCode  int64         `json:"exitCode,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Message   string        `json:"message,omitempty"`
	Text      string        `json:"text"`
	Meaning   string        `json:"meaning,omitempty"` // of an exit code that stands for a signal
	Log       string        `json:"log,omitempty"`     // of the tail: stderr or stdout
	Tail      []string      `json:"tail,omitempty"`
	Succeeded *ExecutionRef `json:"succeeded,omitempty"` // the latest success under the same key
}

// Downstream are the tasks that read, directly or indirectly, the input or output that the root names.
type Downstream struct {
	Of       string           `json:"of"`
	Run      string           `json:"run,omitempty"` // the run that it has affected; "": the next run
	Total    int              `json:"total"`
	Ran      int              `json:"ran,omitempty"`
	Answered int              `json:"answered,omitempty"` // cached: they read the same as before
	Failed   int              `json:"failed,omitempty"`
	Skipped  int              `json:"skipped,omitempty"`
	Tasks    []DownstreamTask `json:"tasks"` // the first ones
}

// A DownstreamTask is a task downstream with its outcome in the run.
type DownstreamTask struct {
	Task  string `json:"task"`
	State string `json:"state,omitempty"`
}

// explaining is the state of one explanation.
type explaining struct {
	evidence
	budget int // number of reasons that may still be made
	seen   map[[2]string]*Reason
}

// evidence reads records, objects and runs for one call of an Explainer.
type evidence struct {
	*Explainer
	ctx  context.Context
	next *nextRun // nil if only the past is known
}

// known returns a short form of a reason that was given before. So nothing is explained twice, and a loop in foreign
// records ends.
func (x *explaining) known(at [2]string) *Reason {
	r, ok := x.seen[at]
	if !ok {
		return nil
	}
	return &Reason{Workspace: r.Workspace, Task: r.Task, Execution: r.Execution, Cause: r.Cause, AsAbove: true, see: r}
}

func (x *Explainer) explaining(ctx context.Context) *explaining {
	return &explaining{evidence: evidence{Explainer: x, ctx: ctx}, budget: maxReasons, seen: map[[2]string]*Reason{}}
}

// foresee reads the histories of a task and of its upstream tasks, the nearest first, in one pass.
func (x *explaining) foresee(ws, task string, g *graph.Graph) error {
	i, ok := g.Find(task)
	if !ok {
		return nil
	}
	seen := map[int32]bool{i: true}
	queue := []int32{i}
	for at := 0; at < len(queue) && len(queue) < maxReasons; at++ {
		for _, d := range g.Dependencies(queue[at]) {
			if !seen[d] && len(queue) < maxReasons {
				seen[d] = true
				queue = append(queue, d)
			}
		}
	}
	var names []string
	x.mu.Lock()
	for _, i := range queue {
		if _, known := x.attempts[[2]string{ws, g.Name(i)}]; !known {
			names = append(names, g.Name(i))
		}
	}
	x.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return x.Prefetch(x.ctx, ws, names)
}

// ref describes an attempt.
func ref(a *history.Attempt) *ExecutionRef {
	r := &ExecutionRef{Workspace: a.Workspace, Task: a.Task, Execution: a.ExecutionID, Run: a.MadeBy, Status: a.Status, At: a.At(), Attempt: a.Number, Worker: a.Worker}
	if a.Key != (executions.Key{}) {
		r.Key = a.Key.String()
	}
	if e := a.Execution; e != nil {
		if e.Provenance != nil {
			r.ImportedFrom = "a place that is not on record"
			if n := len(e.Provenance.Steps); n > 0 {
				r.ImportedFrom = e.Provenance.Steps[n-1].Source()
			}
		}
		if d := e.Detail; d != nil && d.Task != "" {
			r.Workspace, r.Task = d.Workspace, d.Task
		}
	}
	return r
}

// unknownTask is the error for a name that no task has; it suggests a similar name.
func unknownTask(name string, known []string) error {
	return &human.UnknownError{What: "task", Name: name, Known: known}
}
