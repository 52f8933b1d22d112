package dataflow

import (
	"errors"

	"e3/executions"
)

// Left is an execution of a worker for which the run no longer waits.
type Left struct {
	Task, Key, Execution, Worker string
	Attempt                      int64
	Started                      bool // an event tells of its start
}

// leaves tells whether the execution of an attempt goes on without the run, and hands it over. The task has no end: it
// counts as abandoned.
func leaves(s *scheduler, c *completion) bool {
	if !errors.Is(c.err, executions.ErrGoesOn) || c.execution == "" {
		return false
	}
	if !c.shared && s.opts.GoesOn != nil { // the other run, or the journal, tells of a shared one
		s.opts.GoesOn(Left{s.g.Name(c.task), c.key, c.execution, c.worker, c.attempt, c.begun})
	}
	return true
}
