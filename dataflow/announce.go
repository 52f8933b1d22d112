package dataflow

import (
	"cmp"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// Executor.Do calls the methods below, one call at a time. So nothing else touches the turn before it comes back. An event
// of another machine comes late: it has the time when it happened; zero means now.

// data is the data that all events of an attempt have.
func (t *turn) data() *events.Data {
	return &events.Data{Key: t.key, Batch: t.batch.ID, Items: t.batch.Items, Attempt: t.number, Shared: t.shared}
}

// sharing is called with true before the task waits for a job of another run, and with false if that job gave no
// answer: its execution counts as given up, and another one follows.
func (s *scheduler) sharing(t *turn, yes bool) {
	if !yes && t.begun {
		s.attemptLost(t, t.execution, executions.ReasonLost, "the job of another run has made no result", time.Time{}, time.Time{})
	}
	t.shared = yes
}

// started is called when the command of an execution is about to start.
func (s *scheduler) started(t *turn, id string, at time.Time) {
	t.begun, t.execution = true, id
	s.emit(events.Event{Type: events.TaskStarted, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: t.worker, Data: t.data()})
}

// claimed is called when a worker has claimed the task. A worker that continues the begun execution is not announced
// again.
func (s *scheduler) claimed(t *turn, id, worker string, at time.Time) {
	if t.worker = worker; t.begun && id == t.execution {
		return
	}
	if t.begun {
		s.attemptLost(t, t.execution, executions.ReasonLost, "another worker has begun anew", at, time.Time{})
		t.worker = worker
	}
	t.claimed, t.execution = true, id
	s.emit(events.Event{Type: events.TaskClaimed, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: worker, Data: t.data()})
}

// released is called when the worker has given the task back before its command began.
func (s *scheduler) released(t *turn, id string, at time.Time) {
	if id != t.execution || t.begun || !t.claimed {
		return
	}
	s.emit(events.Event{Type: events.TaskReleased, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: t.worker, Data: t.data()})
	t.claimed, t.execution, t.worker = false, "", ""
}

// orphaned is called when the lease of the task's worker has expired. Its command may go on.
func (s *scheduler) orphaned(t *turn, id string, at time.Time) {
	if id == t.execution && (t.begun || t.claimed) {
		s.emit(events.Event{Type: events.TaskOrphaned, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: t.worker, Data: t.data()})
	}
}

// adopted is called when another worker goes on with the task's command.
func (s *scheduler) adopted(t *turn, id, worker string, at time.Time) {
	if id == t.execution && (t.begun || t.claimed) {
		t.worker = worker
		s.emit(events.Event{Type: events.TaskAdopted, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: worker, Data: t.data()})
	}
}

// attemptLost is called when a worker's attempt is given up and another one follows.
func (s *scheduler) attemptLost(t *turn, id string, reason executions.Reason, message string, at, again time.Time) {
	if t.execution != "" {
		id = t.execution
	}
	if message == "" {
		message = "its worker was lost"
	}
	d := t.data()
	d.Reason, d.Message = string(cmp.Or(reason, executions.ReasonLost)), message
	t.last = &events.Event{Type: events.TaskFailed, Time: at, Task: t.view.g.Name(t.task), Execution: id, Worker: t.worker, Data: d}
	d.MayFail, d.Tolerable = t.policy.MayFail && !s.opts.Strict, t.mild
	if s.opts.Emit != nil { // not emit, which belongs to the scheduler's goroutine
		s.opts.Emit(*t.last)
	}
	t.number++
	t.lost++
	t.begun, t.claimed, t.execution, t.worker = false, false, "", ""
	delay := time.Duration(0)
	if !again.IsZero() {
		delay = max(0, time.Until(again))
	}
	s.emit(events.Event{Type: events.TaskRetryScheduled, Time: at, Task: t.view.g.Name(t.task), Data: &events.Data{Attempt: t.number, DelayMs: delay.Milliseconds()}})
}

// catchUp announces what was not announced while the execution was made. A command that ends at once elsewhere may be
// seen only at its end, perhaps after another attempt was lost.
func (s *scheduler) catchUp(t *turn, r *executions.Result) {
	if r.Cached || r.ExecutionID == "" {
		return
	}
	if t.execution != "" && t.execution != r.ExecutionID {
		s.attemptLost(t, t.execution, executions.ReasonLost, "", time.Time{}, time.Time{})
	}
	if !t.begun && r.State != record.Error {
		s.started(t, r.ExecutionID, beginning(r))
	}
}

// beginning returns when an execution began; zero: not known.
func beginning(r *executions.Result) time.Time {
	if r.EndedAt.IsZero() {
		return time.Time{}
	}
	return r.EndedAt.Add(-r.Duration)
}
