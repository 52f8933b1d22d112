package workspace

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
)

// closing is the closing of a dead run.
type closing struct {
	w       *Runner
	x       reaper
	ws, run string
	log     *events.Log
	f       *runview.Fold
	said    said              // of executions
	shared  map[string]bool   // executions of other runs, for which this one has waited
	blocks  map[string]string // that tasks have waited for, the last of each
	open    map[string]bool   // executions whose job has not ended
	// attempts are those that workers have begun.
	attempts []JobAttempt
	late     map[string]bool // executions that go on
	// anonymous says that the events do not tell which process the run was; then they tell who ran what it executed.
	anonymous bool
	waiting   int64 // tasks that wait for another attempt, or whose execution goes on
}

// newClosing begins the closing of a run of whose log nothing is read yet.
func newClosing(w *Runner, ws, run string) *closing {
	return &closing{
		w: w, ws: ws, run: run, f: runview.NewFold(), said: said{}, shared: map[string]bool{}, blocks: map[string]string{},
		late: map[string]bool{},
	}
}

// know takes in the attempts at the run's jobs.
func (c *closing) know(attempts []JobAttempt) {
	c.attempts, c.open = attempts, map[string]bool{}
	for i := range attempts {
		if attempts[i].Open && !attempts[i].Lost {
			c.open[attempts[i].Execution] = true
		}
	}
}

// read takes in an event of the log.
func (c *closing) read(e *events.Event) {
	c.f.Add(e)
	c.said.add(e)
	if e.Type == events.TaskDeferred && e.Data != nil {
		c.blocks[e.Task] = e.Data.Block
	}
	if e.Data != nil && e.Data.Shared {
		c.shared[e.Execution] = true
	}
}

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

// adopted reports that another worker has gone on with a running task's execution, unless the log says so.
func (c *closing) adopted(t *runview.FoldedTask, a *JobAttempt, due int64) {
	if a.Adopter != "" && t.State == runview.TaskRunning && (!t.Adopted || t.Worker != a.Adopter) {
		c.ran(events.TaskAdopted, a.Adopted, a.Task, a.Execution, a.Adopter, crashed(a.Key, due))
	}
}

// goesOn notes a task's execution: the journal tells how it ends.
func (c *closing) goesOn(ctx context.Context, t *runview.FoldedTask) error {
	c.late[t.ExecutionID] = true
	if c.shared[t.ExecutionID] {
		return nil // that run, or the journal, tells how it ends
	}
	return c.w.states.noteLate(ctx, c.ws, &lateExecution{
		Run: c.run, Task: t.Task, Key: t.Key, Execution: t.ExecutionID, Attempt: t.Attempt, Worker: t.Worker,
		Started: t.State == runview.TaskRunning,
	})
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
