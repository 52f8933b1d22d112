package main

import (
	"testing"

	"e3/executions"
	"e3/internal/jobs/queue"
)

// TestStillRuns: the text mentions the worker only if there is one.
func TestStillRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		job  queue.Job
		dead bool
		want string
	}{
		"waits":          {queue.Job{Status: queue.Queued}, false, ""},
		"runs":           {queue.Job{Status: queue.Running, LockedBy: "a session"}, false, ": its worker stops it"},
		"an orphan":      {queue.Job{Status: queue.Running}, false, ""},
		"cancelled":      {queue.Job{Status: queue.Cancelled}, false, ""},
		"is tried again": {queue.Job{Status: queue.Running, LockedBy: "a session"}, true, ""},
	} {
		if got := stillRuns(&tt.job, tt.dead); got != tt.want {
			t.Errorf("a job that %s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestQueueReasons: package queue does not import executions, so its reasons must be the same words.
func TestQueueReasons(t *testing.T) {
	for got, want := range map[string]executions.Reason{
		queue.ReasonSuspended: executions.ReasonSuspended, queue.ReasonLost: executions.ReasonLost, queue.ReasonCancelled: executions.ReasonCancelled,
	} {
		if got != string(want) {
			t.Errorf("a job's reason is %q, want %q", got, want)
		}
	}
}
