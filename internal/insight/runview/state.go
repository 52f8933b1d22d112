package runview

import (
	"e3/internal/events"
	"e3/internal/format/record"
)

// TaskState is how far a task, or an attempt of it, has come. These are the words of reports, histories, drawings and timelines.
type TaskState string

// The states of tasks.
const (
	TaskReady       TaskState = "ready" // its inputs are known; reports do not list it, as nothing has become of it yet
	TaskCached      TaskState = "cached"
	TaskSuccess     TaskState = "success"
	TaskFailed      TaskState = "failed"      // the command's own non-zero exit
	TaskError       TaskState = "error"       // it did not get that far: signal, timeout, cancelled, bad output, no input
	TaskSkipped     TaskState = "skipped"     // something upstream failed
	TaskClaimed     TaskState = "claimed"     // a worker has taken it
	TaskRunning     TaskState = "running"     // now
	TaskDeferred    TaskState = "deferred"    // waits for approval
	TaskAbandoned   TaskState = "abandoned"   // waited for that, or for its turn after it, when its run ended
	TaskRetrying    TaskState = "retrying"    // waits for its next attempt
	TaskInterrupted TaskState = "interrupted" // its run died while it was running
	TaskUnfinished  TaskState = "unfinished"  // of an attempt: it was running when it was exported
	TaskUnknown     TaskState = "unknown"     // of an attempt: it existed, but its outcome is unknown
)

// failure tells the command's own failure from an error.
func failure(message string) TaskState {
	if message != "" {
		return TaskError
	}
	return TaskFailed
}

// Outcome is the state in which an event leaves an attempt of a task that it ends: TaskSuccess, TaskFailed, TaskError, or TaskDeferred of
// one that suspended itself. "" is of all other events; one that was rejected had ended before.
func Outcome(e *events.Event) TaskState {
	switch {
	case e.Type == events.TaskDeferred && e.Execution != "":
		return TaskDeferred
	case e.Data != nil && e.Data.Block != "":
		return ""
	case e.Type == events.TaskCompleted:
		return TaskSuccess
	case e.Type == events.TaskFailed && e.Data != nil:
		return failure(e.Data.Message)
	case e.Type == events.TaskFailed:
		return TaskFailed
	}
	return ""
}

// StateOf is the state of an attempt as its record says.
func StateOf(s record.State) TaskState {
	switch s {
	case record.Success:
		return TaskSuccess
	case record.Failed:
		return TaskFailed
	case record.Error:
		return TaskError
	}
	return TaskRunning
}
