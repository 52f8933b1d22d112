package workspace

import (
	"context"
	"errors"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// tellTasks completes what the log says of the run's tasks, and notes the executions and the jobs that go on.
func (c *closing) tellTasks(ctx context.Context) error {
	if c.log.Empty() {
		if err := c.tellStart(ctx); err != nil {
			return err
		}
	}
	begun, err := c.x.BegunFor(ctx, c.ws, c.run)
	if err != nil {
		return err
	}
	for i := range begun {
		if err := c.tellBegun(ctx, &begun[i]); err != nil {
			return err
		}
	}
	attempts := c.attempts // c.attempts may be read again meanwhile
	for i := range attempts {
		if attempts[i].queued() {
			continue
		}
		if err := c.tellAttempt(ctx, &attempts[i]); err != nil {
			return err
		}
	}
	if err := c.endTasks(ctx); err != nil {
		return err
	}
	return c.noteJobs(ctx)
}

// tellStart tells that the run began, if its process died before it wrote events, or if they are lost.
func (c *closing) tellStart(ctx context.Context) error {
	if err := recordedOnce(ctx, c.w.states, c.ws, c.run); err != nil { // its process may have died before it did
		return err
	}
	first := events.Event{Type: events.RunStarted, Data: started(c.recorded)}
	if c.bounds.First != nil {
		first = *c.bounds.First
	} else if c.recorded != nil {
		first.Time = c.recorded.StartedAt
	}
	c.anonymous = c.bounds.First == nil
	c.emit(first)
	return nil
}

// recordedOnce adds the run to the journal, unless the journal already has it.
func recordedOnce(ctx context.Context, w *States, ws, run string) error {
	e := events.Event{Type: events.RunRecorded, Data: &events.Data{Run: run}}
	return events.AppendJournalOnce(ctx, w.Records, ws, w.Now, 0, e, func(old *events.Event) bool {
		return old.Type == events.RunRecorded && old.Data != nil && old.Data.Run == run
	})
}

// started returns the data of the first event of a run without events, from its record, which may be nil.
func started(run *record.Run) *events.Data {
	d := &events.Data{Reason: events.ReasonCrashed}
	if run != nil {
		d.Package, d.Inputs = run.PackageRef, run.InputSnapshot
	}
	return d
}

// tellResumed tells that a task goes on after it had waited for approval: it has run since, so it was approved. The
// journal says by whom.
func (c *closing) tellResumed(task string) {
	d := crashed("", 0)
	d.Block = c.blocks[task]
	c.emit(events.Event{Type: events.TaskResumed, Task: task, Data: d})
}

// tellBegun tells of an execution that the run's process had begun but not told when it died: events are written in
// batches.
func (c *closing) tellBegun(ctx context.Context, l *executions.Begun) error {
	t := c.f.Find(l.Task)
	if t == nil {
		c.announce(l.Task, time.Time{})
	} else if t.ExecutionID >= l.ExecutionID {
		return nil // already reported
	} else if t.State == runview.TaskRunning {
		if err := c.tellExecution(ctx, t); err != nil {
			return err
		}
	}
	t = c.f.Find(l.Task)
	due := max(t.Attempt, 1)
	if t.State == runview.TaskDeferred {
		due = max(l.Attempt, 1)
		c.tellResumed(l.Task)
	}
	for retry := t.State == runview.TaskFailed || t.State == runview.TaskError; retry || due < l.Attempt; retry = false {
		if t.State == runview.TaskReady || t.State == runview.TaskRetrying {
			c.emit(events.Event{Type: events.TaskFailed, Task: l.Task, Data: &events.Data{
				Attempt: due, Reason: events.ReasonCrashed, NoRecord: true,
				Message: "the process of this run ended before it could tell of this attempt"}})
		} else if !retry {
			break
		}
		due++
		c.emit(events.Event{Type: events.TaskRetryScheduled, Task: l.Task, Data: crashed("", due)})
	}
	if t.State == runview.TaskReady || t.State == runview.TaskRetrying {
		at, worker, err := c.began(ctx, l.Key, l.ExecutionID)
		if err != nil {
			return err
		}
		if !c.anonymous {
			worker = ""
		}
		if at.IsZero() { // given up by a process that knew no more
			at = made(l.ExecutionID)
		}
		c.ran(events.TaskStarted, at, l.Task, l.ExecutionID, worker, crashed(l.Key, due))
	}
	return nil
}

// tellAttempt reports an execution that a worker had begun, as far as the run's process has not reported it. Its end
// is reported by endTasks, or before the next attempt of its task.
func (c *closing) tellAttempt(ctx context.Context, a *JobAttempt) error {
	t := c.f.Find(a.Task)
	switch {
	case c.f.Abandons(), c.said.end(a.Execution), t != nil && t.Attempt > a.Number:
		return nil
	case t == nil:
		c.announce(a.Task, time.Time{})
	case t.ExecutionID != a.Execution && (t.State == runview.TaskRunning || t.State == runview.TaskClaimed):
		if err := c.tellExecution(ctx, t); err != nil || c.late[t.ExecutionID] {
			return err
		}
	}
	t = c.f.Find(a.Task)
	due := max(a.Number, 1)
	if t.State == runview.TaskDeferred {
		c.tellResumed(a.Task)
	}
	switch t.State {
	case runview.TaskReady:
	case runview.TaskRetrying, runview.TaskClaimed, runview.TaskRunning:
		due = max(t.Attempt, 1)
	case runview.TaskFailed, runview.TaskError:
		due = max(t.Attempt, 1) + 1
		c.emit(events.Event{Type: events.TaskRetryScheduled, Task: a.Task, Data: crashed("", due)})
	default:
		return nil // the task already has its answer
	}
	if t.State == runview.TaskReady || t.State == runview.TaskRetrying {
		c.ran(events.TaskClaimed, a.Claimed, a.Task, a.Execution, a.Worker, crashed(a.Key, due))
	}
	if t.State == runview.TaskClaimed {
		at, _, err := c.began(ctx, a.Key, a.Execution)
		if err != nil {
			return err
		}
		if at.IsZero() {
			at = a.Started
		}
		if !at.IsZero() {
			c.ran(events.TaskStarted, at, a.Task, a.Execution, t.Worker, crashed(a.Key, due))
		}
	}
	c.adopted(t, a, due)
	return nil
}

// endTasks ends the tasks that were running or waited for another attempt. Where the log already says that tasks are
// abandoned, endTasks adds nothing.
func (c *closing) endTasks(ctx context.Context) error {
	end := c.tellExecution
	if c.f.Abandons() {
		end = c.noteTask
	}
	for t := range c.f.All() {
		switch t.State {
		case runview.TaskRunning, runview.TaskClaimed:
			if err := end(ctx, t); err != nil {
				return err
			}
		}
		if t.Reason == string(executions.ReasonBatch) && t.State == runview.TaskError && !c.f.Abandons() { // it was to be tried alone
			c.emit(events.Event{Type: events.TaskRetryScheduled, Task: t.Task, Data: crashed("", t.Attempt+1)})
		}
		switch t.State {
		case runview.TaskRunning, runview.TaskClaimed, runview.TaskRetrying: // it goes on, or its failure is already reported
			c.waiting++
		}
	}
	return nil
}

// tellExecution reports how a task's execution has ended. If the execution goes on, tellExecution notes it, so that
// its end is reported later.
func (c *closing) tellExecution(ctx context.Context, t *runview.FoldedTask) error {
	e, timed, err := c.endOf(ctx, &t.TaskReport)
	if err != nil {
		return err
	}
	// It was fenced first, and its process began it later.
	begunSince := !timed && t.State == runview.TaskRunning && e.Time.Before(t.StartedAt.Time)
	if begunSince || e.Data.NoRecord {
		e.Time = t.StartedAt.Time
	}
	of := &lateExecution{Task: t.Task, Execution: t.ExecutionID, Attempt: t.Attempt}
	if e.Data.NoRecord && t.State == runview.TaskClaimed && isGivenBack(c.attempts, of) {
		c.ran(events.TaskReleased, time.Time{}, t.Task, t.ExecutionID, t.Worker, crashed(t.Key, t.Attempt))
		return nil
	}
	if e.Type == "" {
		return c.noteTask(ctx, t)
	}
	if t.State == runview.TaskClaimed {
		at, _, err := c.began(ctx, t.Key, t.ExecutionID)
		if err != nil {
			return err
		}
		if e.Type == events.TaskCompleted || !at.IsZero() { // its start was not reported either
			c.ran(events.TaskStarted, at, t.Task, t.ExecutionID, t.Worker, crashed(t.Key, t.Attempt))
		}
	}
	if c.open[t.ExecutionID] { // it has ended since the jobs were read: its job now names the worker that continued it
		attempts, err := c.w.states.attempts(ctx, c.ws, c.run)
		if err != nil {
			return err
		}
		c.setAttempts(attempts)
		if i := slices.IndexFunc(attempts, func(a JobAttempt) bool { return a.Execution == t.ExecutionID }); i >= 0 {
			c.adopted(t, &attempts[i], max(t.Attempt, 1))
			e.Worker = t.Worker
		}
	}
	c.emit(e)
	return nil
}

// endOf returns the end event of an execution whose end is not in the log. The event has no type if the execution
// goes on. timed says that the record knows when the command began and ended.
func (c *closing) endOf(ctx context.Context, t *runview.TaskReport) (end events.Event, timed bool, err error) {
	end = events.Event{
		Type: events.TaskFailed, Task: t.Task, Execution: t.ExecutionID, Worker: t.Worker, Data: crashed(t.Key, t.Attempt),
	}
	key, ok := executions.ParseKey(t.Key)
	if !ok {
		end.Data.NoRecord, end.Data.Message = true, "the events of this run do not tell which execution it was"
		return end, timed, nil
	}
	e, err := ended(ctx, key, t.ExecutionID, c.x)
	switch {
	case errors.Is(err, executions.ErrNotFound) && c.open[t.ExecutionID]: // its worker is about to record it
		end.Type = ""
	case errors.Is(err, executions.ErrNotFound):
		end.Data.NoRecord, end.Data.Message = true, "the process of this run ended before the execution was on record"
	case errors.Is(err, executions.ErrMalformed):
		end.Data.NoRecord, end.Data.Message = true, "the record of the execution was lost with the power"
	case err != nil:
		return end, false, err
	case e.State == record.Running: // another live process runs it
		end.Type = ""
	default:
		outcome(&end, e)
		timed = !e.Began().IsZero()
	}
	return end, timed, nil
}

// tellRecorded tells of the tasks that are in an ended run's record but not in its log. Their events are lost, or the
// run found all tasks proven: such a run is recorded before its events.
func (c *closing) tellRecorded(ctx context.Context, run *record.Run) error {
	tasks, err := c.w.states.Runs.TasksOf(ctx, c.f)
	if err != nil {
		return err
	}
	unnamed := -int(c.f.Unnamed())
	for t := range run.Tasks.All() {
		if !t.Cached && c.f.Find(t.Task) == nil {
			unnamed++
		}
	}
	if unnamed > 0 { // at once, as a run does
		c.emit(events.Event{Type: events.TaskCreated, Time: run.StartedAt, Data: &events.Data{Tasks: unnamed, Reason: events.ReasonCrashed}})
	}
	for t := range run.Tasks.All() {
		if f := c.f.Find(t.Task); f != nil && f.Ended == t.ExecutionID {
			continue
		}
		if t.Cached && c.f.Find(t.Task) == nil && c.f.Bulk() {
			continue // one event stands for it
		}
		if t.Cached {
			c.emit(events.Event{
				Type: events.TaskCached, Task: t.Task, Execution: t.ExecutionID, Time: run.CompletedAt,
				Data: &events.Data{As: run.RunID, Reason: events.ReasonCrashed},
			})
			continue
		}
		if err := c.tellRecordedTask(ctx, t, tasks[t.Task]); err != nil {
			return err
		}
	}
	return nil
}

// tellRecordedTask tells of a task whose execution the record of an ended run names, at the times of the execution's
// record. Nothing is known of an execution that is gone.
func (c *closing) tellRecordedTask(ctx context.Context, t record.TaskExecution, task *record.PackageTask) error {
	key := executions.Key{}
	if f := c.f.Find(t.Task); f != nil && f.ExecutionID == t.ExecutionID {
		key, _ = executions.ParseKey(f.Key)
	}
	if key == (executions.Key{}) && task != nil {
		h, err := objectstore.ParseHash(task.Task)
		if err != nil {
			return err
		}
		e, err := c.w.states.executions().FindTask(ctx, h, t.ExecutionID)
		if err != nil && !isNoAnswer(err) {
			return err
		}
		if e != nil {
			key = e.Key
		}
	}
	e, err := c.recordOf(ctx, key, t.ExecutionID)
	if e == nil || err != nil {
		return err
	}
	at, worker := e.Began(), processOf(e)
	ofWorker := slices.ContainsFunc(c.attempts, func(a JobAttempt) bool { return a.Execution == t.ExecutionID })
	if !c.anonymous && !ofWorker { // the run's process executed it itself
		worker = ""
	}
	f := c.f.Find(t.Task)
	if f == nil {
		c.announce(t.Task, at)
		f = c.f.Find(t.Task)
	}
	if f.State != runview.TaskRunning || f.ExecutionID != t.ExecutionID {
		c.ran(events.TaskStarted, at, t.Task, t.ExecutionID, worker, crashed(key.String(), max(f.Attempt, 1)))
	}
	return c.tellExecution(ctx, c.f.Find(t.Task))
}

// noteTask notes a task's execution, which goes on: the journal tells how it ends.
func (c *closing) noteTask(ctx context.Context, t *runview.FoldedTask) error {
	if c.shared[t.ExecutionID] {
		c.late[t.ExecutionID] = true
		return nil // that run, or the journal, tells how it ends
	}
	return c.note(ctx, &lateExecution{
		Task: t.Task, Key: t.Key, Execution: t.ExecutionID, Attempt: t.Attempt, Worker: t.Worker,
		Started: t.State == runview.TaskRunning,
	})
}
