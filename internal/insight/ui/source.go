package ui

import (
	"context"
	"time"

	"e3/executions"
	"e3/internal/insight/compare"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/insight/stats"
	"e3/objectstore"
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
	Facts      Facts
}

func (s *Stores) history() history.Stores {
	return history.Stores{Records: s.Records, Executions: s.Executions, Runs: s.Runs}
}

// Facts are what packages know that also write: the packages of insight do not import them.
type Facts interface {
	// Names returns the names of the workspaces, in order. It is asked again and again while a page of all of them is open.
	Names(ctx context.Context) ([]string, error)
	// Workspaces returns the workspaces by name, with the states of their latest runs.
	Workspaces(ctx context.Context) ([]Workspace, error)
	// Workspace returns one workspace, or human.ErrNotFound.
	Workspace(ctx context.Context, name string) (*Workspace, error)
	// Queues returns the queues by name.
	Queues(ctx context.Context) ([]Queue, error)
	// Store measures the repository. It may take long.
	Store(ctx context.Context) (*Store, error)
}

// A Workspace is the state of a workspace, as e3 status has it.
type Workspace struct {
	Name       string
	Package    string // name@version; "": nothing is deployed
	DeployedAt time.Time
	File       string
	Edited     bool            // the file differs from what is deployed
	Run        *runview.Report // the latest, without its tasks; nil: none
	Busy       string          // what holds it, and for which operation; "": nothing
	BusySince  time.Time
	Deferred   []Deferred
	Faults     []string
	Current    int      // outputs that the next start would not make again
	Stale      []string // and those that it would
	Missing    []string // and those that were never made
}

// A Deferred is a task that waits for approval.
type Deferred struct {
	Workspace, Task, Type string
	Since                 time.Time
}

// A Queue is the state of a queue, as e3 queue has it.
type Queue struct {
	Name    string
	Ready   int
	Delayed int
	Since   time.Time // begin of the longest wait
	Over    []string  // ended runs with jobs that still wait, in words
	Waiting []Job     // in the order in which workers take them
	Running []Job
	Failed  []Job
	Faults  []string
}

// A Job is a task in a queue.
type Job struct {
	ID, Workspace, Run, Task, Step string
	State                          string
	Since                          time.Time // it waits, or is at work
	Worker                         string
	Lease                          string // the last sign of life of its worker, in words; "": it is known to live
	Asks                           string // what a worker must have
	Message                        string // why it failed
}

// A Store is how large a repository is.
type Store struct {
	At                 time.Time
	Kept, Free, Young  Amount // objects that something refers to, that gc would remove, and that are too young
	Missing            int
	Warnings           []string
	Stats              *stats.Stats
	Tasks              []TaskSize // the largest, by the outputs of their executions
	Executions, Pinned int
}

// An Amount is a number of objects and their bytes.
type Amount struct{ Objects, Bytes int64 }

// TaskSize is the outputs of all executions of a task that are on record; content that two executions share counts twice.
type TaskSize struct {
	Workspace, Task string
	Executions      int
	Bytes           int64
}
