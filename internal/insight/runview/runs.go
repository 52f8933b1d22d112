// Package runview reports the outcomes of runs: from their records, their events and the executions that they name. It
// writes nothing, and the packages that execute runs build on it.
package runview

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/packages"
	"e3/refstore"
)

// ErrNoRun says that a workspace has not been run.
var ErrNoRun = errors.New("there is no run yet")

// A run whose process died without ending it is closed later: its last event has this message and events.ReasonCrashed, its record this
// error.
const (
	CrashedMessage = "the process of this run ended without finishing it"
	CrashedError   = events.ReasonCrashed + ": " + CrashedMessage
)

// Records are the stores of records and streams.
type Records interface {
	refstore.Store
	refstore.Streams
}

// Workspaces is the part of workspaces that reports use beside the records of runs.
type Workspaces interface {
	// State reads the state of a workspace; human.ErrNotFound if there is none. The state of a workspace without a
	// deployed package names none.
	State(ctx context.Context, ws string) (*record.WorkspaceState, error)
	// AtWork reports whether the process of an unended run holds the workspace, and the last sign of life of a process
	// on another host.
	AtWork(ctx context.Context, ws string, run *record.Run) (bool, refstore.Heard, error)
	// Queued lists the tasks of a run that wait for a worker, in order.
	Queued(ctx context.Context, ws, run string) ([]Queued, error)
	// Expected returns how long a task of a workspace took when it last ran; 0: unknown.
	Expected(ctx context.Context, ws string) func(task string) time.Duration
}

// Queued is a task of a run that waits for a worker.
type Queued struct {
	Task  string
	Since time.Time
	Lost  bool // a worker had begun the task, and was lost
}

// Runs are the runs of a repository's workspaces.
type Runs struct {
	Records    Records
	Objects    executions.Objects
	Packages   *packages.Registry
	Workspaces Workspaces
	Lookups    int // runs and executions that are looked up at a time; 0: the number of processors
	Now        func() time.Time
}

// Remembering returns the same runs with packages that are read once: see [packages.Registry.Remembering].
func (v *Runs) Remembering() *Runs {
	c := *v
	c.Packages = v.Packages.Remembering()
	return &c
}
