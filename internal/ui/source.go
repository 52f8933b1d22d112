package ui

import (
	"context"

	"e3/executions"
	"e3/gc"
	"e3/internal/insight/compare"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/workspace"
)

// Objects is the part of an object store that pages read.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Stores holds the sources of pages. Nothing is written to them.
type Stores struct {
	Records    runview.Records
	Objects    Objects
	Executions *executions.Store
	Runs       *runview.Runs
	Compare    compare.Stores
	Explain    func() *explain.Explainer // one for each question, since it remembers what it has read
	Answers    Answers
	// Hints says what to do about failures, as for [explain.FailureReader]; nil: nothing.
	Hints func(ctx context.Context, ws string, t *runview.TaskReport, tail []string) []string
}

func (s *Stores) history() history.Stores {
	return history.Stores{Records: s.Records, Executions: s.Executions, Runs: s.Runs}
}

// Answers are the answers of the packages that run and write, as commands print them. A page asks, and changes
// nothing.
type Answers interface {
	// Names returns the names of the workspaces, in order. It is asked again and again while a page of all of them is
	// open.
	Names(ctx context.Context) ([]string, error)
	// Status returns the state of a workspace, or workspace.ErrNotFound.
	Status(ctx context.Context, ws string) (*workspace.Status, error)
	// Queues returns the states of all queues, by name.
	Queues(ctx context.Context) (queue.States, error)
	// InTurn returns the unfinished jobs of queues in the order in which workers take them, and what cannot be read.
	InTurn(ctx context.Context, queues ...string) (queue.Rows, []error, error)
	// Garbage says what a collection would remove. It may take long, and may return a report beside an error.
	Garbage(ctx context.Context) (*gc.Report, error)
}
