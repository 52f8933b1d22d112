package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// reaper ends executions that have died, and knows what became of others. An *executions.Curator does, and so an Executor.
type reaper interface {
	CloseIfDead(ctx context.Context, key executions.Key, id string) (bool, error)
	Get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error)
	BegunFor(ctx context.Context, ws, run string) ([]executions.Begun, error)
	DropBegun(ctx context.Context, ws, run string) error
}

// closeDead closes runs that did not end: under the dataflow lock, a run on record as running has no process any more. Its
// queued jobs that no worker has begun are withdrawn, its running executions become errors, its log gets the missing events, and
// its record is made from them (doc/design.md, "Crashes"). current is the run that the state names; closeDead returns the run
// that it names afterwards, and all runs on record.
func (w *Runner) closeDead(ctx context.Context, lock *hold, current string, x reaper) (string, []oldRun, error) {
	ws := lock.ws
	var old []oldRun
	for rec, err := range w.states.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return current, nil, fmt.Errorf("look for dead runs: %w", err)
		}
		old = append(old, oldRun{id: rec.Key.Sort})
	}
	confirmed := false
	for _, o := range old {
		ended, err := events.Ended(ctx, w.states.Records, ws, o.id)
		if err != nil {
			return current, nil, err
		}
		if ended {
			continue
		}
		if !confirmed { // none that was listed is that of a holder who came after this one, and lives
			if err := w.states.confirm(ctx, ws); err != nil {
				return current, nil, err
			}
			confirmed = true
		}
		if current, err = w.closeRun(ctx, lock, o.id, current, x); err != nil {
			return current, nil, fmt.Errorf("close dead run %s: %w", o.id, err)
		}
	}
	return current, old, nil
}

// closeRun closes a run whose log has no end. Its process may be stopped, and not know yet that it has lost the lease: writes that
// it had begun may arrive until the log has its end. The second writer meets a conflict; if that is this process, it reads the
// records again.
func (w *Runner) closeRun(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	const tries = 20 // what comes late is what one process had under way
	for try := 1; ; try++ {
		now, err := w.closeOnce(ctx, lock, id, current, x)
		if !errors.Is(err, refstore.ErrConflict) || try == tries {
			return now, err
		}
		if err := w.states.confirm(ctx, lock.ws); err != nil {
			return current, err
		}
	}
}

// closeOnce does it, or fails with ErrConflict. The end comes last: cut off before it, closing begins anew, and what was
// emitted already is not missing any more.
func (w *Runner) closeOnce(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	ws := lock.ws
	rec, err := w.states.Records.Get(ctx, runview.Key(ws, id), runview.FieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) {
		return current, nil
	}
	if err != nil && !errors.Is(err, refstore.ErrDamaged) {
		return current, err
	}
	if runview.Imported(rec) {
		return current, nil // it came as it was
	}
	var run *record.Run
	if err == nil {
		run, err = record.DecodeRun(rec.Value)
	}
	if err != nil {
		// Its bytes were lost with the power, so it was never synced: it had not finished. Or they are damaged: the events tell.
		run = nil
	}
	f := runview.NewFold()
	log, err := events.Resume(ctx, w.states.Records, ws, id, w.states.Now, f.Add)
	if err != nil {
		return current, err
	}
	defer log.Close()
	defer context.AfterFunc(lock.lasting, func() { log.Stop(context.Cause(lock.lasting)) })()
	if f.End() != nil { // what followed it was cut
		return current, nil
	}
	if err := w.approvals.blocks.CloseOld(ctx, ws, id); err != nil {
		return current, err
	}
	if _, err := w.states.withdrawLeft(ctx, ws, id, nil); err != nil {
		return current, err
	}
	c := &closing{w: w, x: x, log: log, f: f}
	if log.Empty() {
		c.emit(events.Event{Type: events.RunStarted, Data: started(run)})
	}
	left, err := x.BegunFor(ctx, ws, id)
	if err != nil {
		return current, err
	}
	for i := range left {
		if err := c.begin(ctx, &left[i]); err != nil {
			return current, err
		}
	}
	if err := c.executions(ctx); err != nil {
		return current, err
	}
	var end events.Event
	if run == nil || run.State == record.RunRunning || run.Error == runview.CrashedError {
		c.abandon()
		run = c.rebuilt(ws, id, run)
		if _, err := w.states.Runs.Expand(ctx, ws, id, f); err != nil { // what has no name is not in the record
			return current, err
		}
		run.Tasks = f.Executions()
		if err := log.Flush(); err != nil {
			return current, err
		}
		if rec.Version, err = w.states.Records.Put(ctx, refstore.Record{Key: rec.Key, Value: run.Encode(), Version: rec.Version}); err != nil {
			return current, fmt.Errorf("record run: %w", err)
		}
		end = runview.End(run)
		end.Data.Reason, end.Data.Message = events.ReasonCrashed, runview.CrashedMessage
	} else {
		// It had finished but for its last steps: do them.
		c.proven(run)
		end = runview.End(run)
	}
	if current, err = w.name(ctx, lock, id, current); err != nil {
		return current, err
	}
	if err := x.DropBegun(ctx, ws, id); err != nil {
		return current, err
	}
	c.emit(end)
	return current, log.Close()
}

// withdrawLeft is Stores.Withdraw.
func (w *States) withdrawLeft(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error) {
	if w.Withdraw == nil {
		return 0, nil
	}
	return w.Withdraw(ctx, ws, run, dead)
}

// started says of a run that had no event yet what its record, which may be nil, tells.
func started(run *record.Run) *events.Data {
	d := &events.Data{Reason: events.ReasonCrashed}
	if run != nil {
		d.Package, d.Inputs = run.PackageRef, run.InputSnapshot
	}
	return d
}

// name makes the state name a run that has ended, if it is later than the one that is named.
func (w *Runner) name(ctx context.Context, lock *hold, id, current string) (string, error) {
	behind, err := w.states.behindRun(ctx, lock.ws, id, current)
	if err != nil || !behind {
		return current, err
	}
	_, err = w.states.update(ctx, lock, lock.ws, false, func(s *State) error {
		s.CurrentRunID = id
		return nil
	})
	if err != nil {
		return current, err
	}
	return id, nil
}

// behindRun tells whether a state that names the run current must name the run id instead, which has ended: it is
// later, or the other one was imported.
func (w *States) behindRun(ctx context.Context, ws, id, current string) (bool, error) {
	if id > current {
		return true, nil
	}
	rec, err := w.Records.Get(ctx, runview.Key(ws, current), runview.FieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return runview.Imported(rec), nil
	}
	return runview.Imported(rec), err
}

// closing is a dead run while it is closed.
type closing struct {
	w   *Runner
	x   reaper
	log *events.Log
	f   *runview.Fold
}

func (c *closing) emit(e events.Event) {
	e = c.log.Emit(e)
	c.f.Add(&e)
}

// begin tells of an execution that the run's process had begun, if it died before it could: events are written in batches.
func (c *closing) begin(ctx context.Context, l *executions.Begun) error {
	t := c.f.Find(l.Task)
	if t == nil {
		if c.f.Unnamed() <= 0 {
			c.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1, Reason: events.ReasonCrashed}})
		}
		c.emit(events.Event{Type: events.TaskMarkedReady, Task: l.Task, Data: &events.Data{Reason: events.ReasonCrashed}})
	} else if t.ExecutionID >= l.ExecutionID {
		return nil // they are told
	} else if t.State == runview.TaskRunning {
		e, err := c.execution(ctx, &t.TaskReport)
		if err != nil {
			return err
		}
		c.emit(e)
	}
	t = c.f.Find(l.Task)
	due := max(t.Attempt, 1)
	for retry := t.State == runview.TaskFailed || t.State == runview.TaskError; retry || due < l.Attempt; retry = false {
		if t.State == runview.TaskReady || t.State == runview.TaskRetrying {
			c.emit(events.Event{Type: events.TaskFailed, Task: l.Task, Data: &events.Data{Attempt: due, Reason: events.ReasonCrashed, NoRecord: true,
				Message: "the process of this run ended before it could tell of this attempt"}})
		} else if !retry {
			break
		}
		due++
		c.emit(events.Event{Type: events.TaskRetryScheduled, Task: l.Task, Data: &events.Data{Attempt: due, Reason: events.ReasonCrashed}})
	}
	if t.State == runview.TaskReady || t.State == runview.TaskRetrying {
		c.emit(events.Event{Type: events.TaskStarted, Task: l.Task, Execution: l.ExecutionID, Data: &events.Data{Key: l.Key, Attempt: due, Reason: events.ReasonCrashed}})
	}
	return nil
}

// executions brings the tasks to an end that were running, or waited for another attempt.
func (c *closing) executions(ctx context.Context) error {
	for t := range c.f.All() {
		switch t.State {
		case runview.TaskRunning, runview.TaskClaimed:
			e, err := c.execution(ctx, &t.TaskReport)
			if err != nil {
				return err
			}
			if t.State == runview.TaskClaimed && e.Type == events.TaskCompleted { // its beginning was not told either
				c.emit(events.Event{Type: events.TaskStarted, Task: t.Task, Execution: t.ExecutionID, Worker: t.Worker, Data: &events.Data{
					Key: t.Key, Attempt: t.Attempt, Reason: events.ReasonCrashed}})
			}
			c.emit(e)
		case runview.TaskRetrying:
			c.emit(events.Event{Type: events.TaskFailed, Task: t.Task, Execution: t.Ended, Data: &events.Data{ // as its last attempt did
				Key: t.Key, Attempt: max(t.Attempt-1, 1), Duration: t.Duration.Milliseconds(), ExitCode: t.ExitCode,
				Reason: events.ReasonCrashed, Message: t.Message}})
		}
	}
	return nil
}

// execution finds out what became of an execution whose end is not in the log.
func (c *closing) execution(ctx context.Context, t *runview.TaskReport) (events.Event, error) {
	end := events.Event{Type: events.TaskFailed, Task: t.Task, Execution: t.ExecutionID, Data: &events.Data{
		Key: t.Key, Attempt: t.Attempt, Reason: events.ReasonCrashed}}
	key, ok := executions.ParseKey(t.Key)
	if !ok {
		end.Data.NoRecord, end.Data.Message = true, "the events of this run do not tell which execution it was"
		return end, nil
	}
	_, err := c.x.CloseIfDead(ctx, key, t.ExecutionID)
	var e *executions.Execution
	if err == nil {
		e, err = c.x.Get(ctx, key, t.ExecutionID)
	}
	switch {
	case errors.Is(err, executions.ErrNotFound):
		end.Data.NoRecord, end.Data.Message = true, "the process of this run ended before the execution was on record"
	case errors.Is(err, executions.ErrMalformed):
		end.Data.NoRecord, end.Data.Message = true, "the record of the execution was lost with the power"
	case err != nil:
		return end, err
	case e.State == record.Running: // another process makes it, and is alive
		end.Data.Message = "the process of this run ended before the execution, which goes on"
	case e.State == record.Success:
		end.Type, end.Data.Output = events.TaskCompleted, e.OutputHash
		end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	default:
		end.Data.Message, end.Data.ExitCode = e.Message, e.ExitCode
		end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	}
	return end, nil
}

// abandon tells of the tasks that had no turn.
func (c *closing) abandon() {
	if n := c.f.Waiting(); n > 0 {
		c.emit(events.Event{Type: events.TaskAbandoned, Data: &events.Data{Tasks: int(n), Reason: events.ReasonCrashed}})
	}
}

// proven tells of the tasks of a finished run that have no event yet: it had found all of them proven, and was recorded before
// its events. Those of any other run are written before its last record.
func (c *closing) proven(run *record.Run) {
	if c.f.Counted() || run.Summary.Cached != int64(run.Tasks.Len()) {
		return
	}
	for t := range run.Tasks.All() {
		if c.f.Find(t.Task) == nil {
			c.emit(events.Event{Type: events.TaskCached, Task: t.Task, Execution: t.ExecutionID, Data: &events.Data{As: run.RunID, Reason: events.ReasonCrashed}})
		}
	}
}

// rebuilt is the record of a run whose process died, without its tasks. old is the one that it had, nil if that cannot be
// read. The run has lasted until the last sign of life; when its end was noticed, its last event tells.
func (c *closing) rebuilt(ws, id string, old *record.Run) *record.Run {
	run := &record.Run{RunID: id, WorkspaceName: ws}
	switch s := c.f.Started(); {
	case old != nil:
		run.PackageRef, run.StartedAt, run.InputSnapshot = old.PackageRef, old.StartedAt, old.InputSnapshot
	case s != nil && s.Data != nil:
		run.PackageRef, run.InputSnapshot = s.Data.Package, s.Data.Inputs
		if s.Data.Reason != events.ReasonCrashed {
			run.StartedAt = s.Time
		}
	}
	if run.StartedAt.IsZero() {
		run.StartedAt, _ = executions.ParseID(id)
	}
	run.CompletedAt = c.f.Alive()
	if run.CompletedAt.Before(run.StartedAt) {
		run.CompletedAt = run.StartedAt
	}
	run.State, run.Error, run.Summary = record.RunFailed, runview.CrashedError, c.f.Summary()
	return run
}
