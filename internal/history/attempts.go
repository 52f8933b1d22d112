// Package history tells what became of the tasks of workspaces in all their runs: every attempt that is still on record, or
// that an event still names (doc/design.md §14).
package history

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// Stores are what history is read from. Nothing is written.
type Stores struct {
	Records    executions.Records
	Executions *executions.Store
	Workspaces *workspace.Workspaces
}

// An Attempt is an execution of a task, as far as it is still known.
type Attempt struct {
	Workspace, Task string
	Key             executions.Key // zero where nothing tells it
	ExecutionID     string
	// Execution is its record; nil where that is gone or cannot be read, which Err says.
	Execution *executions.Execution
	Err       error
	// Runs are those whose events name it, earliest first: the one that made it, and those that it answered.
	Runs []string
	// EndedAs is what the event said that ended it, "" where there is none.
	EndedAs events.Type
	EndedAt time.Time
}

// Attempts returns every execution of a task, by its name in a workspace, whatever its command and its inputs were: the latest
// first. It reads the events of the workspace, and the executions under every task hash that they name or that a package which
// the workspace had, or has, gives the task. The workspace need not be here. It takes time in proportion to the
// events of the workspace.
func Attempts(ctx context.Context, s Stores, ws, task string) ([]Attempt, error) {
	a := attempts{ctx: ctx, s: s, ws: ws, task: task, byID: map[string]*Attempt{}, hashes: map[objectstore.Hash]bool{}}
	if err := a.fromEvents(); err != nil {
		return nil, err
	}
	if err := a.fromPackages(); err != nil {
		return nil, err
	}
	for h := range a.hashes {
		if err := a.fromExecutions(h); err != nil {
			return nil, err
		}
	}
	if err := a.read(); err != nil {
		return nil, err
	}
	list := make([]Attempt, 0, len(a.byID))
	for _, at := range a.byID {
		list = append(list, *at)
	}
	slices.SortFunc(list, func(x, y Attempt) int { return strings.Compare(y.ExecutionID, x.ExecutionID) })
	return list, nil
}

type attempts struct {
	ctx      context.Context
	s        Stores
	ws, task string
	byID     map[string]*Attempt
	hashes   map[objectstore.Hash]bool
}

func (a *attempts) attempt(id string) *Attempt {
	at, ok := a.byID[id]
	if !ok {
		at = &Attempt{Workspace: a.ws, Task: a.task, ExecutionID: id}
		a.byID[id] = at
	}
	return at
}

func (a *attempts) key(at *Attempt, key executions.Key) {
	at.Key = key
	a.hashes[key.Task] = true
}

func (a *attempts) fromEvents() error {
	for key, err := range a.s.Records.ListStreams(a.ctx, refstore.Query{Partition: "EVENTS/" + a.ws}) {
		if err != nil {
			return err
		}
		for e, err := range events.Read(a.ctx, a.s.Records, a.ws, key.Sort) {
			if err != nil {
				break // what follows a damaged line is not known
			}
			if e.Task != a.task || e.Execution == "" {
				continue
			}
			at := a.attempt(e.Execution)
			if n := len(at.Runs); n == 0 || at.Runs[n-1] != e.Run {
				at.Runs = append(at.Runs, e.Run)
			}
			if e.Data != nil {
				if k, ok := executions.ParseKey(e.Data.Key); ok {
					a.key(at, k)
				}
			}
			if e.Type == events.TaskCompleted || e.Type == events.TaskFailed {
				at.EndedAs, at.EndedAt = e.Type, e.Time
			}
		}
	}
	return a.ctx.Err()
}

func (a *attempts) fromPackages() error {
	hashes, err := a.s.Workspaces.TaskHashes(a.ctx, a.ws, a.task)
	for _, h := range hashes {
		a.hashes[h] = true
	}
	return err
}

// fromExecutions takes in what was executed for this task, and what answered it without an event.
func (a *attempts) fromExecutions(task objectstore.Hash) error {
	for inputs, err := range a.s.Executions.Inputs(a.ctx, task) {
		if err != nil {
			return err
		}
		key := executions.Key{Task: task, Inputs: inputs}
		for e, err := range a.s.Executions.List(a.ctx, key) {
			var bad *executions.RecordError
			switch {
			case errors.As(err, &bad):
				at := a.attempt(bad.ExecutionID)
				at.Err = err
				a.key(at, key)
			case err != nil:
				return err
			case a.byID[e.ExecutionID] == nil && e.Detail != nil && e.Detail.Task != "" && (e.Detail.Task != a.task || e.Detail.Workspace != a.ws):
				// another task that computes the same
			default:
				at := a.attempt(e.ExecutionID)
				at.Execution = e
				a.key(at, key)
			}
		}
	}
	return nil
}

// read looks for the executions that only events name.
func (a *attempts) read() error {
	for _, at := range a.byID {
		if at.Execution != nil || at.Err != nil {
			continue
		}
		if at.Key == (executions.Key{}) {
			at.Err = executions.ErrNotFound
			continue
		}
		at.Execution, at.Err = a.s.Executions.Get(a.ctx, at.Key, at.ExecutionID)
		if err := at.Err; err != nil && !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed) {
			return err
		}
	}
	return nil
}
