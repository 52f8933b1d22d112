package runview

import (
	"e3/executions"
	"e3/internal/events"
)

// Attempts counts the attempts of a task while the events of its run arrive, and recognizes the last attempt.
type Attempts struct {
	From    int64 // attempts before this one have ended
	Retries int64 // attempts that may follow the first
	free    int64 // attempts that do not use up retries
}

// Last adds an event of the task, and reports whether the task ends with it.
func (a *Attempts) Last(e *events.Event) bool {
	switch e.Type {
	case events.TaskCached, events.TaskCompleted, events.TaskSkipped:
		return true
	case events.TaskDeferred:
		if e.Execution != "" { // it has suspended itself, and restarts after approval
			a.free++
		}
	case events.TaskFailed:
		d := e.Data
		if d.Reason == string(executions.ReasonLost) || d.Reason == string(executions.ReasonBatch) { // another attempt follows, or the end of the run
			a.free++
			return false
		}
		return d.Attempt >= a.From && (d.Attempt-a.free > a.Retries || d.Block != "" || d.Reason == string(executions.ReasonCancelled))
	}
	return false
}
