package workspace

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
)

func (c *closing) emit(e events.Event) {
	if c.shared[e.Execution] {
		e.Data.Shared = true
	}
	e = c.log.Emit(e)
	c.f.Add(&e)
	c.said.add(&e)
}

// said has the executions of which a log tells: that they have begun, or how they have ended.
type said map[string]events.Type

func (s said) add(e *events.Event) {
	switch e.Type {
	case events.TaskCompleted, events.TaskFailed, events.TaskDeferred:
		s[e.Execution] = e.Type
	case events.TaskStarted:
		if !s.end(e.Execution) {
			s[e.Execution] = e.Type
		}
	}
}

// start tells whether the log says that an execution has begun.
func (s said) start(execution string) bool { return s[execution] != "" }

// end tells whether the log says how an execution has ended.
func (s said) end(execution string) bool {
	return s[execution] != "" && s[execution] != events.TaskStarted
}

// ran emits an event of an execution that a process had begun or went on with.
func (c *closing) ran(typ events.Type, at time.Time, task, execution, worker string, data *events.Data) {
	c.emit(events.Event{Type: typ, Time: at, Task: task, Execution: execution, Worker: worker, Data: data})
}

// crashed returns the data of an event that the run's own process did not write.
func crashed(key string, attempt int64) *events.Data {
	return &events.Data{Key: key, Attempt: attempt, Reason: events.ReasonCrashed}
}

// announce emits the first event of a task that no event names. at is when; zero: now.
func (c *closing) announce(task string, at time.Time) {
	if c.f.Unnamed() <= 0 {
		c.emit(events.Event{Type: events.TaskCreated, Time: at, Data: &events.Data{Tasks: 1, Reason: events.ReasonCrashed}})
	}
	c.emit(events.Event{Type: events.TaskMarkedReady, Time: at, Task: task, Data: &events.Data{Reason: events.ReasonCrashed}})
}

// made is when the id of an execution was made: when the execution was claimed, or a little later.
func made(execution string) time.Time {
	at, _ := executions.ParseID(execution)
	return at
}

// began is when the command of an execution began, and the process that ran it, by its record; zero if that does not
// say that it did.
func (c *closing) began(ctx context.Context, key, id string) (at time.Time, worker string, err error) {
	k, ok := executions.ParseKey(key)
	if !ok {
		return time.Time{}, "", nil
	}
	e, err := c.x.Get(ctx, k, id)
	if errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed) {
		return time.Time{}, "", nil
	}
	if err != nil {
		return time.Time{}, "", err
	}
	if e.Detail != nil {
		worker = e.Detail.Worker
	}
	return e.Began(), worker, nil
}
