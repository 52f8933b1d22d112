package runview

import (
	"strings"

	"e3/internal/events"
	"e3/internal/format/record"
)

// TaskState is the state of a task, or of an attempt of it. Reports, histories, drawings and timelines use these words.
type TaskState string

// The states of tasks.
const (
	TaskReady       TaskState = "ready" // its inputs are known; reports do not list this state
	TaskCached      TaskState = "cached"
	TaskSuccess     TaskState = "success"
	TaskFailed      TaskState = "failed"      // the command's own non-zero exit
	TaskError       TaskState = "error"       // other failures: signal, timeout, cancelled, bad output, no input
	TaskSkipped     TaskState = "skipped"     // something upstream failed
	TaskClaimed     TaskState = "claimed"     // a worker has taken it
	TaskRunning     TaskState = "running"     // now
	TaskDeferred    TaskState = "deferred"    // waits for approval
	TaskAbandoned   TaskState = "abandoned"   // waited for approval, or for its turn after it, when its run ended
	TaskRetrying    TaskState = "retrying"    // waits for its next attempt
	TaskInterrupted TaskState = "interrupted" // its run died while it was running
	TaskUnfinished  TaskState = "unfinished"  // of an attempt: it was running when it was exported
	TaskUnknown     TaskState = "unknown"     // of an attempt: it existed, but its outcome is unknown
)

// failure is TaskFailed for a failure of the command itself, else TaskError.
func failure(message string) TaskState {
	if message != "" {
		return TaskError
	}
	return TaskFailed
}

// Outcome is the state of an attempt after the event that ends it: TaskSuccess, TaskFailed, TaskError, or TaskDeferred
// if the task suspended itself. It is "" for all other events, including a rejection, which comes after the end.
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

// FamilyOf is the name of the matrix that a task is an item of, or its own.
func FamilyOf(task string) string {
	name, _, _ := strings.Cut(task, "[")
	return name
}
