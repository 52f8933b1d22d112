package main

import (
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
)

// Tests the worker's text for each end of a task.
func TestWorkerText(t *testing.T) {
	for want, e := range map[string]worker.Event{
		"w.a  succeeded in 1.5s":                               {Result: executions.Result{State: record.Success}},
		"w.a  failed with exit code 75 after 1.5s":             {Result: executions.Result{State: record.Failed, ExitCode: 75}},
		"w.a  suspended itself after 1.5s; waits for approval": {Result: executions.Result{State: record.Failed, ExitCode: 75, Reason: executions.ReasonSuspended}},
		"w.a  failed: no output":                               {Result: executions.Result{State: record.Error, Reason: executions.ReasonOutput, Message: "no output"}},
		"w.a  cancelled":                                       {Result: executions.Result{State: record.Error, Reason: executions.ReasonCancelled}, Cancelled: true},
	} {
		e.Type, e.Job, e.Result.Duration = worker.JobEnded, queue.Job{ID: "id", Workspace: "w", Task: "a"}, 1500*time.Millisecond
		if got := workerText(&e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
