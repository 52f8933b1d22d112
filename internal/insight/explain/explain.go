// Package explain tells why a task ran, would run, failed, or was answered from the cache: it compares the parts of a key with those of the
// nearest earlier success of the same name, follows each input that differs to what made it, and so finds what changed first
// (doc/design.md §14).
//
// It reads records, events and objects, and writes nothing. What others have written can be wrong in any way: everything is
// bounded, and what is gone or cannot be read is said to be.
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
)

// Bounds of an explanation.
const (
	maxReasons  = 100 // executions that are explained, upstream included
	maxDepth    = 64  // of the chain upstream
	maxFollowed = 8   // inputs and items of one task that are followed upstream
	maxCompared = 50  // earlier successes among which the nearest is looked for
	maxFew      = 8   // compared for Miss
	maxParts    = 100 // differences of one task that are listed
	maxFiles    = 5   // changed files that are named
	maxCounted  = 10_000
	maxListed   = 20 // tasks downstream that are named
	maxLines    = 12 // of a difference between two commands
	maxTail     = 5  // last lines of a log
	maxText     = 200
	clockSlack  = time.Minute // of ids against the clock here
)

// Objects is the part of the object store that explanations use.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Workspaces are what an explanation asks of the workspaces of a repository; workspace.View has it.
type Workspaces interface {
	// State returns the state of a workspace, or human.ErrNotFound.
	State(ctx context.Context, ws string) (*record.WorkspaceState, error)
	// List returns the names of all workspaces in order.
	List(ctx context.Context) ([]string, error)
	// Next tells what the next start of a workspace would run on.
	Next(ctx context.Context, ws string) (*plan.Next, error)
}

// Stores are what explanations are made from.
type Stores struct {
	history.Stores
	Workspaces Workspaces
	Objects    Objects
	// Queued finds the job of a task that a run has put in a queue: For, Run and Since of the answer are not its matter. nil, and a nil
	// answer: there is none.
	Queued func(ctx context.Context, ws, run, task string) (*Wait, error)
}

// An Explainer remembers what it has read: one serves one command. It is safe for concurrent use.
type Explainer struct {
	Stores
	now func() time.Time

	mu       sync.Mutex
	attempts map[[2]string][]history.Attempt // by workspace and task, the latest first
	graphs   map[string]*graph.Graph         // by package hash; nil: gone
	runs     map[[2]string]*runFacts         // by workspace and run
	tasks    map[objectstore.Hash]*record.Task
	trees    map[objectstore.Hash]objectstore.Tree
}

// New returns an Explainer.
func New(s Stores) *Explainer {
	return &Explainer{
		Stores: s, now: s.Runs.Now,
		attempts: map[[2]string][]history.Attempt{}, graphs: map[string]*graph.Graph{}, runs: map[[2]string]*runFacts{},
		tasks: map[objectstore.Hash]*record.Task{}, trees: map[objectstore.Hash]objectstore.Tree{},
	}
}

// State is how the task, or the execution, stands that was asked about. Words never change.
type State string

// The states of what is explained.
const (
	Current  State = "current"   // it has a result: the next start does not run it
	WouldRun State = "would run" // the next start runs it
	Waits    State = "waits"     // what it reads is not known before something upstream has run
	Ran      State = "ran"       // an execution that was asked for, a success
	Failed   State = "failed"    // it has failed, and nothing has changed since
	Skipped  State = "skipped"   // something upstream has failed, and nothing has changed since
	Running  State = "running"   // now
	Queued   State = "queued"    // the run that is at work is about to run it: it waits for a worker, or for its turn
	Stuck    State = "stuck"     // it cannot run
	Removed  State = "removed"   // no package has it any more: its latest execution is explained
	Gone     State = "gone"      // of the execution no record is left
)

// An Explanation answers the question why.
type Explanation struct {
	Workspace string `json:"workspace"`
	Task      string `json:"task"`
	State     State  `json:"state"`
	Sentence  string `json:"sentence"`
	// Execution is the one that is explained; nil where nothing was executed.
	Execution *Ref `json:"execution,omitempty"`
	// Root is what changed, or happened, first; Roots are all such, Root the first of them. What is current has the root of its
	// execution.
	Root  Cause   `json:"root"`
	Roots []Cause `json:"roots,omitempty"`
	// Chain names the tasks from the one that the root is of down to this one; empty where it is its own.
	Chain []string `json:"chain,omitempty"`
	// Reason leads from the task to the roots.
	Reason *Reason `json:"reason,omitempty"`
	// Failure is how it failed, or how that failed because of which it was skipped; Changed is what has changed since it last worked.
	Failure *Failure `json:"failure,omitempty"`
	Changed []Cause  `json:"changed,omitempty"`
	// Waiting is what the run that is at work waits for before it runs it; nil where it does not.
	Waiting *Wait `json:"waiting,omitempty"`
	// Downstream are the tasks that the root concerns besides.
	Downstream *Downstream `json:"downstream,omitempty"`
	Notes      []string    `json:"notes,omitempty"`

	blockers int    // tasks that it waits for
	refused  string // how the latest run ended it without running it
}

// A Wait is what a task waits for in a run that is at work.
type Wait struct {
	For    string    `json:"for"` // approval, worker, or turn: what the run may have at work at a time is
	Run    string    `json:"run"`
	Queue  string    `json:"queue,omitempty"`
	Labels []string  `json:"labels,omitempty"` // that a worker must have
	Memory int64     `json:"memory,omitempty"` // bytes, likewise
	Worker string    `json:"worker,omitempty"` // that has taken it; the run has not heard yet that it began
	Since  time.Time `json:"since"`
}

// What is waited for.
const (
	forApproval = "approval"
	forWorker   = "worker"
	forTurn     = "turn"
)

// A Ref names an execution, with what is worth knowing of it.
type Ref struct {
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

// A Reason says why one task ran, or would run. Differences are to Compared; those that a task upstream has made have their
// reasons in Upstream.
type Reason struct {
	Workspace   string       `json:"workspace"`
	Task        string       `json:"task"`
	Execution   *Ref         `json:"execution,omitempty"`
	Cause       Cause        `json:"cause"`
	Compared    *Ref         `json:"compared,omitempty"`
	Differences []Difference `json:"differences,omitempty"`
	Upstream    []*Reason    `json:"upstream,omitempty"`
	// More counts differences that are not listed, Omitted what was made upstream and was not followed.
	More    int `json:"more,omitempty"`
	Omitted int `json:"omitted,omitempty"`
	// AsAbove says that the rest is said where the same is explained before.
	AsAbove bool `json:"asAbove,omitempty"`
	// Before is why the first attempt of a run was made, of a later one.
	Before *Reason  `json:"before,omitempty"`
	Failed *Failure `json:"failed,omitempty"`
	Notes  []string `json:"notes,omitempty"`

	final bool    // Cause is the root, whatever differs
	see   *Reason // what AsAbove means
}

// A Failure is how an execution ended that did not succeed.
type Failure struct {
	Task     string   `json:"task"`
	Kind     Kind     `json:"kind"`
	ExitCode int64    `json:"exitCode,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Text     string   `json:"text"`
	Log      string   `json:"log,omitempty"` // whose tail it is: stderr or stdout
	Tail     []string `json:"tail,omitempty"`
	// Succeeded is the latest success under the same key.
	Succeeded *Ref `json:"succeeded,omitempty"`
}

// Downstream are the tasks that read, however indirectly, what the root is about.
type Downstream struct {
	Of       string           `json:"of"`
	Run      string           `json:"run,omitempty"` // in which they did what they did; "" where it is to come
	Total    int              `json:"total"`
	Ran      int              `json:"ran,omitempty"`
	Answered int              `json:"answered,omitempty"` // they read the same as before
	Failed   int              `json:"failed,omitempty"`
	Skipped  int              `json:"skipped,omitempty"`
	Tasks    []DownstreamTask `json:"tasks"` // the first ones
}

// A DownstreamTask is one of them, with what became of it in the run.
type DownstreamTask struct {
	Task  string `json:"task"`
	State string `json:"state,omitempty"`
}

// explaining is one question.
type explaining struct {
	evidence
	budget int // reasons that may still be made
	seen   map[[2]string]*Reason
}

// evidence reads what records, objects and runs say, for one call of an Explainer.
type evidence struct {
	*Explainer
	ctx  context.Context
	next *nextRun // nil where only the past is known
}

// known returns what was explained before, in short: nothing is told twice, and a loop in what others have written comes to an end.
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

// past returns the attempts of a task, the latest first by their ids.
func (x *Explainer) past(ctx context.Context, ws, task string) ([]history.Attempt, error) {
	x.mu.Lock()
	list, ok := x.attempts[[2]string{ws, task}]
	x.mu.Unlock()
	if ok {
		return list, nil
	}
	if err := x.Prefetch(ctx, ws, []string{task}); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attempts[[2]string{ws, task}], nil
}

// foresee reads the history of a task and of what is upstream of it, the nearest first, in one go.
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

// Prefetch reads the history of many tasks at once, for Miss.
func (x *Explainer) Prefetch(ctx context.Context, ws string, tasks []string) error {
	found, err := history.Find(ctx, x.Stores.Stores, history.Query{Workspace: ws, Tasks: tasks})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range found.Tasks {
		sortByID(t.Attempts)
		x.attempts[[2]string{ws, t.Name}] = t.Attempts
	}
	return nil
}

// ref describes an attempt.
func ref(a *history.Attempt) *Ref {
	r := &Ref{Workspace: a.Workspace, Task: a.Task, Execution: a.ExecutionID, Run: a.MadeBy, Status: a.Status, At: a.At(), Attempt: a.Number, Worker: a.Worker}
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

// unknownTask is returned for a name that stands for nothing, with what might have been meant.
func unknownTask(name string, known []string) error {
	return &human.UnknownError{What: "task", Name: name, Known: known}
}
