package runview

import (
	"e3/executions"
	"e3/internal/events"
)

// Attempts counts the attempts of a task as the events of its run come, and tells after which of them none follows.
type Attempts struct {
	From    int64 // attempts before this one are over
	Retries int64 // attempts that may follow the first
	free    int64 // attempts that count against no retries
}

// Last takes an event of the task, and tells whether the task has come to its end with it.
func (a *Attempts) Last(e *events.Event) bool {
	switch e.Type {
	case events.TaskCached, events.TaskCompleted, events.TaskSkipped:
		return true
	case events.TaskDeferred:
		if e.Execution != "" { // it has suspended itself, and begins anew when it is approved
			a.free++
		}
	case events.TaskFailed:
		d := e.Data
		if d.Reason == string(executions.ReasonLost) { // another attempt follows, or the end of the run
			a.free++
			return false
		}
		return d.Attempt >= a.From && (d.Attempt-a.free > a.Retries || d.Block != "" || d.Reason == string(executions.ReasonCancelled))
	}
	return false
}
