// Package history lists the attempts of the tasks of workspaces over all runs: every attempt that is still on record,
// or that an event still names (doc/design.md §14).
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Stores holds the sources of history. Nothing is written to them.
type Stores struct {
	Records    executions.Records
	Executions *executions.Store
	Runs       *runview.Runs
}

// Statuses returns the states that an attempt can have.
func Statuses() []runview.TaskState {
	return []runview.TaskState{
		runview.TaskSuccess, runview.TaskFailed, runview.TaskError, runview.TaskRunning, runview.TaskInterrupted, runview.TaskUnfinished, runview.TaskUnknown,
	}
}

// An Attempt is an execution of a task, as far as it is still known: by its record, and by events for what the record
// lacks.
type Attempt struct {
	runview.Attempt
	Workspace string
	// Execution is its record, or nil where the record is gone or cannot be read. Err then says why: it is an
	// *executions.PrunedError, another error that wraps executions.ErrNotFound, or an *executions.RecordError.
	Execution *executions.Execution
	Err       error
	// Runs are the runs of the workspace that it was part of, earliest first: the one that made it, and those that used
	// its result. MadeBy may be a run of another workspace.
	Runs []string
	// Status is its state now; State is the one that an event has told. Duration goes up to now if it is running.
	Status runview.TaskState
}

// Answered returns the runs of the workspace that used its result and did not make it, earliest first.
func (a *Attempt) Answered() []string {
	return slices.DeleteFunc(slices.Clone(a.Runs), func(run string) bool { return run == a.MadeBy })
}

// Pruned returns the tombstone of its record; nil if it was not pruned, or if the tombstone has expired.
func (a *Attempt) Pruned() *record.Tombstone {
	var gone *executions.PrunedError
	if errors.As(a.Err, &gone) {
		return &gone.Tombstone
	}
	return nil
}

// Peak is the greatest memory that its command used, in bytes; 0 if its record does not tell.
func (a *Attempt) Peak() int64 {
	if a.Execution == nil || a.Execution.Detail == nil {
		return 0
	}
	return a.Execution.Detail.PeakRSS
}

// At is the time of the attempt's beginning, which its id holds.
func (a *Attempt) At() time.Time {
	if a.StartedAt.IsZero() {
		t, _ := executions.ParseID(a.ExecutionID)
		return t
	}
	return a.StartedAt
}

// Attempts returns every execution of a task, given its name in a workspace, whatever its command and its inputs were:
// the latest first. It reads the events of the workspace, and the executions under every task hash that an event names
// for the task, or that it has in a present or former package of the workspace. The workspace need not exist.
func Attempts(ctx context.Context, s Stores, ws, task string) ([]Attempt, error) {
	found, err := Find(ctx, s, Query{Workspace: ws, Tasks: []string{task}})
	if err != nil {
		return nil, err
	}
	return found.Tasks[0].Attempts, nil
}

// Notes are details of an attempt beyond its status. They are untrusted text.
func (a *Attempt) Notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if a.Number > 1 {
		add("attempt %d", a.Number)
	}
	switch a.Status {
	case runview.TaskFailed:
		add("exit code %d", a.ExitCode)
	case runview.TaskError:
		add("%s", cmp.Or(a.Message, a.Reason, "it ended without an exit code"))
	}
	if e := a.Execution; e != nil && e.Detail != nil && e.Detail.Batch.Items > 0 && a.Reason != string(executions.ReasonBatch) {
		add("in a batch of %d", e.Detail.Batch.Items)
	}
	if n := len(a.Answered()); n > 0 && a.Status != runview.TaskError { // a run that waits for an error has no answer of it
		add("cached in %s", human.Count(n, "run"))
	}
	return notes
}

// Of converts an execution to an attempt of a task by its record alone: one that has not ended counts as running.
func Of(ws, task string, e *executions.Execution) *Attempt {
	at := attemptOf(ws, task, e.ExecutionID)
	at.Key, at.Execution = e.Key, e
	at.recorded(e)
	return at
}

func attemptOf(ws, task, id string) *Attempt {
	return &Attempt{Attempt: runview.Attempt{Task: task, ExecutionID: id}, Workspace: ws}
}

// A Query selects the tasks whose history is wanted.
type Query struct {
	Workspace string
	Tasks     []string // by their names
	Pattern   string   // and those that it fits, as for events.Match; "" is none
	// Deep also reads every execution of the repository and finds those whose detail names the workspace and the task.
	// These are older than the events that are kept, or came without events.
	Deep bool
	// From is the id of a run: older runs are not read, nor executions with lesser ids, but for those that answered in the
	// runs that are read. "" is all.
	From string
	// Only is the id of a run that has ended: the result has the attempts that its events name, and nothing else is read.
	Only string
	// NotStarted adds the failures that left no execution, such as that of a task whose input was missing.
	NotStarted bool
}

// A Task is a task with its attempts, the latest first.
type Task struct {
	Name     string
	Attempts []Attempt
	// Appeared is where the task was created; nil if that is unknown, or if earlier runs were not read.
	Appeared *Appearance
}

// Found is the result of a query.
type Found struct {
	Tasks   []Task  // by name; includes never executed tasks that Query.Tasks or a package names
	Damaged []error // logs with damaged lines, which are missing from the result
	Partial bool    // there are earlier attempts, which are not in the result (Latest)
}

// Find returns the attempts of tasks. It reads the events of the workspace once: memory is proportional to the attempts
// found and to the number of runs.
func Find(ctx context.Context, s Stores, q Query) (*Found, error) {
	s.Runs = s.Runs.Remembering()
	f := &finder{
		ctx: ctx, s: s, q: q, tasks: map[string]*taskFinder{}, runs: map[string]*runFacts{},
		packages: map[string]*packageFacts{}, live: map[string]string{}, damaged: map[string]error{},
	}
	for _, name := range q.Tasks {
		f.tasks[name] = newTask(name)
	}
	if err := f.fromEvents(); err != nil {
		return nil, err
	}
	if err := f.fromPackages(); err != nil {
		return nil, err
	}
	if err := f.fromExecutions(); err != nil {
		return nil, err
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	if err := f.settle(); err != nil {
		return nil, err
	}
	if err := f.appeared(); err != nil {
		return nil, err
	}
	return f.found(), nil
}
