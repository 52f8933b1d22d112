package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
)

// reaper closes dead executions and reads the state of others. An *executions.Curator does, and so does an Executor.
type reaper interface {
	CloseIfDead(ctx context.Context, key executions.Key, id string) (bool, error)
	Get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error)
	BegunFor(ctx context.Context, ws, run string) ([]executions.Begun, error)
	DropBegun(ctx context.Context, ws, run string) error
}

// closed is the result of closeDead.
type closed struct {
	current string        // the run that the state names
	old     []oldRun      // all runs on record
	late    int           // executions that go on without their run
	ended   events.Sealed // the end of the run that the state names
	journal int64         // the stream of the journal that had the last run recorded, 0 if it is not known
}

// closeDead closes runs that did not end. Since the caller holds the dataflow lock, a run recorded as running has no
// process any more. Its queued jobs that no worker has begun are withdrawn, its running executions become errors, its
// log gets the missing events, and its record is made from them (doc/design.md, "Crashes"). Executions that workers go
// on with are noted; their ends are appended to the journal later. current is the run that the state names.
func (w *Runner) closeDead(ctx context.Context, lock *hold, current string, x reaper) (closed, error) {
	ws := lock.ws
	c := closed{current: current}
	for rec, err := range w.states.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return c, fmt.Errorf("look for dead runs: %w", err)
		}
		c.old = append(c.old, oldRun{id: rec.Key.Sort})
	}
	confirmed, late := false, false
	for _, o := range c.old {
		end, err := events.SealedEnd(ctx, w.states.Records, ws, o.id)
		if err != nil {
			return c, err
		}
		if end.Event == nil {
			if !confirmed { // so no listed run belongs to a live later holder
				if err := w.states.confirm(ctx, ws); err != nil {
					return c, err
				}
				confirmed = true
			}
			if c.current, err = w.closeRun(ctx, lock, o.id, c.current, x); err != nil {
				return c, fmt.Errorf("close dead run %s: %w", o.id, err)
			}
			if end, err = events.SealedEnd(ctx, w.states.Records, ws, o.id); err != nil {
				return c, err
			}
		}
		if end.Event != nil {
			late, c.journal = late || end.Facts().Late > 0, max(c.journal, end.Facts().Journal)
		}
		if o.id == c.current {
			c.ended = end
		}
	}
	var err error
	if late {
		c.late, err = w.states.tellLate(ctx, ws, x)
	}
	return c, err
}

// closeRun closes a run whose log has no end. Its process may be suspended, unaware that it has lost the lease, so its
// pending writes may arrive until the log has its end. The second of two writers gets a conflict; if that is this
// process, it reads the records again.
func (w *Runner) closeRun(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	const tries = 20 // one process has only a few writes pending
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

// closeOnce makes one attempt, which may fail with ErrConflict. It writes the end last: after a crash before that,
// closing starts again, and events that were already written are not repeated.
func (w *Runner) closeOnce(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	ws := lock.ws
	rec, err := w.states.Records.Get(ctx, runview.Key(ws, id), runview.FieldProvenance, FieldEvents)
	if errors.Is(err, refstore.ErrNotFound) {
		return current, nil
	}
	if err != nil && !errors.Is(err, refstore.ErrDamaged) {
		return current, err
	}
	if runview.Imported(rec) {
		return current, nil // imported runs are not closed
	}
	bounds := runview.BoundsOf(rec)
	var run *record.Run
	if err == nil {
		run, err = record.DecodeRun(rec.Value)
	}
	if err != nil {
		// Lost in a power failure: the record was never synced, so the run had not finished. Or it is damaged, and the
		// events say how it ended.
		run = nil
	}
	c := newClosing(w, ws, id)
	log, err := events.Resume(ctx, w.states.Records, ws, id, w.states.Now, c.read)
	if err != nil {
		return current, err
	}
	defer log.Close()
	defer context.AfterFunc(lock.lasting, func() { log.Stop(context.Cause(lock.lasting)) })()
	if c.f.End() != nil { // the log has its end, and Resume has cut off the rest
		return current, nil
	}
	others, err := w.states.dropLate(ctx, ws, id)
	if err != nil {
		return current, err
	}
	attempts, err := withdrawn(ctx, w.states, ws, id)
	if err != nil {
		return current, err
	}
	c.x, c.log = x, log
	c.know(attempts)
	if log.Empty() {
		if err := recordedOnce(ctx, w.states, ws, id); err != nil { // its process may have died before it did
			return current, err
		}
		first := events.Event{Type: events.RunStarted, Data: started(run)}
		if bounds.First != nil {
			first = *bounds.First
		} else if run != nil {
			first.Time = run.StartedAt
		}
		c.anonymous = bounds.First == nil
		c.emit(first)
	}
	begun, err := x.BegunFor(ctx, ws, id)
	if err != nil {
		return current, err
	}
	for i := range begun {
		if err := c.begin(ctx, &begun[i]); err != nil {
			return current, err
		}
	}
	for i := range attempts {
		if attempts[i].queued() {
			continue
		}
		if err := c.attempt(ctx, &attempts[i]); err != nil {
			return current, err
		}
	}
	if err := c.executions(ctx); err != nil {
		return current, err
	}
	if err := errors.Join(c.followed(ctx), c.awaited(ctx)); err != nil {
		return current, err
	}
	var end events.Event
	if run == nil || run.State == record.RunRunning || run.Error == runview.CrashedError && bounds.Last == nil {
		c.abandon()
		run = c.rebuilt(ws, id, run)
		if _, err := w.states.Runs.Expand(ctx, ws, id, c.f); err != nil { // unnamed tasks are not in the record
			return current, err
		}
		run.Tasks = c.f.Executions()
		end = runview.End(run)
		end.Data.Reason, end.Data.Message = events.ReasonCrashed, runview.CrashedMessage
		end.Data.Late, end.Data.PackageHash = len(c.late)+others, c.f.Grown() // records of earlier runs, which say so, may go
	} else {
		// The run had finished except for its last steps, or its log has lost its end.
		if err := c.settled(ctx, run); err != nil {
			return current, err
		}
		end = runview.End(run)
		if end.Time = run.CompletedAt; bounds.Last != nil {
			end = *bounds.Last
		}
		if n := c.fill(&end); n > 0 {
			end.Data.Late = max(end.Data.Late, n)
		}
	}
	if end, err = c.promise(ctx, rec, run, bounds, end); err != nil {
		return current, err
	}
	if current, err = w.name(ctx, lock, id, current); err != nil {
		return current, err
	}
	if err := x.DropBegun(ctx, ws, id); err != nil {
		return current, err
	}
	c.emit(end)
	if err := log.Close(); err != nil {
		return current, err
	}
	return current, w.states.TellLeft(ctx, ws, id, x) // it may have become known meanwhile
}

// recordedOnce has the journal tell of a run, unless it does.
func recordedOnce(ctx context.Context, w *States, ws, run string) error {
	e := events.Event{Type: events.RunRecorded, Data: &events.Data{Run: run}}
	return events.AppendJournalOnce(ctx, w.Records, ws, w.Now, 0, e, func(old *events.Event) bool {
		return old.Type == events.RunRecorded && old.Data != nil && old.Data.Run == run
	})
}

// A JobAttempt is an execution that a worker has begun for a run, or the next one of a job that waits for a worker.
// Unknown times are zero.
type JobAttempt struct {
	Task, Key string
	Number    int64  // of the attempt in its run
	Execution string // its id; "": the job waits
	Worker    string // that began it
	Adopter   string // the worker that has adopted it, "" if none has
	Claimed   time.Time
	Adopted   time.Time
	Started   time.Time
	Lost      bool   // its worker was lost, and it was given up
	Left      string // the lost worker under whose supervisor its command may run on, after it was cancelled
	Open      bool   // the job has not ended; if this attempt is lost, another may follow
	Retried   int64  // how often a person has queued the job again
}

// queued tells whether no worker has begun the attempt.
func (a *JobAttempt) queued() bool { return a.Execution == "" }

// attempts is Stores.Attempts, ordered by task and attempt.
func (w *States) attempts(ctx context.Context, ws, run string) ([]JobAttempt, error) {
	if w.Attempts == nil {
		return nil, nil
	}
	list, err := w.Attempts(ctx, ws, run)
	slices.SortFunc(list, func(a, b JobAttempt) int {
		return cmp.Or(strings.Compare(a.Task, b.Task), cmp.Compare(a.Number, b.Number), strings.Compare(a.Execution, b.Execution))
	})
	return list, err
}

// withdrawLeft is Stores.Withdraw.
func (w *States) withdrawLeft(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error) {
	if w.Withdraw == nil {
		return 0, nil
	}
	return w.Withdraw(ctx, ws, run, dead)
}

// started returns the data of the first event of a run without events, from its record, which may be nil.
func started(run *record.Run) *events.Data {
	d := &events.Data{Reason: events.ReasonCrashed}
	if run != nil {
		d.Package, d.Inputs = run.PackageRef, run.InputSnapshot
	}
	return d
}

// name makes the state name an ended run, if that is later than the run that it names.
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

// behindRun tells whether a state that names the run current must name the ended run id instead, because id is later or
// current was imported.
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

// resume tells that a task goes on that had waited for approval: it has run since, so it was approved. The journal says
// by whom.
func (c *closing) resume(task string) {
	d := crashed("", 0)
	d.Block = c.blocks[task]
	c.emit(events.Event{Type: events.TaskResumed, Task: task, Data: d})
}

// begin tells of an execution that the run's process had begun, if it died before it could: events are written in
// batches.
func (c *closing) begin(ctx context.Context, l *executions.Begun) error {
	t := c.f.Find(l.Task)
	if t == nil {
		c.announce(l.Task, time.Time{})
	} else if t.ExecutionID >= l.ExecutionID {
		return nil // already reported
	} else if t.State == runview.TaskRunning {
		if err := c.finish(ctx, t); err != nil {
			return err
		}
	}
	t = c.f.Find(l.Task)
	due := max(t.Attempt, 1)
	if t.State == runview.TaskDeferred {
		due = max(l.Attempt, 1)
		c.resume(l.Task)
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

// attempt reports an execution that a worker had begun, as far as the run's process did not. Its end is reported by
// executions, or before the next attempt of its task.
func (c *closing) attempt(ctx context.Context, a *JobAttempt) error {
	t := c.f.Find(a.Task)
	switch {
	case c.f.Abandons(), c.said.end(a.Execution), t != nil && t.Attempt > a.Number:
		return nil
	case t == nil:
		c.announce(a.Task, time.Time{})
	case t.ExecutionID != a.Execution && (t.State == runview.TaskRunning || t.State == runview.TaskClaimed):
		if err := c.finish(ctx, t); err != nil || c.late[t.ExecutionID] {
			return err
		}
	}
	t = c.f.Find(a.Task)
	due := max(a.Number, 1)
	if t.State == runview.TaskDeferred {
		c.resume(a.Task)
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

// executions ends the tasks that were running or waited for another attempt. Where the log says already that they are abandoned, it
// tells no more of them.
func (c *closing) executions(ctx context.Context) error {
	end := c.finish
	if c.f.Abandons() {
		end = c.goesOn
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

// finish reports how a task's execution has ended. If it goes on, finish notes that its end is to be reported later.
func (c *closing) finish(ctx context.Context, t *runview.FoldedTask) error {
	e, timed, err := c.execution(ctx, &t.TaskReport)
	if err != nil {
		return err
	}
	begunSince := !timed && t.State == runview.TaskRunning && e.Time.Before(t.StartedAt.Time) // fenced, and then begun by its process
	if begunSince || e.Data.NoRecord {
		e.Time = t.StartedAt.Time
	}
	if e.Data.NoRecord && t.State == runview.TaskClaimed && isGivenBack(c.attempts, &lateExecution{Task: t.Task, Execution: t.ExecutionID, Attempt: t.Attempt}) {
		c.ran(events.TaskReleased, time.Time{}, t.Task, t.ExecutionID, t.Worker, crashed(t.Key, t.Attempt))
		return nil
	}
	if e.Type == "" {
		return c.goesOn(ctx, t)
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
	if c.open[t.ExecutionID] { // it has ended since the jobs were read: its job says by now which worker has gone on with it
		attempts, err := c.w.states.attempts(ctx, c.ws, c.run)
		if err != nil {
			return err
		}
		c.know(attempts)
		if i := slices.IndexFunc(attempts, func(a JobAttempt) bool { return a.Execution == t.ExecutionID }); i >= 0 {
			c.adopted(t, &attempts[i], max(t.Attempt, 1))
			e.Worker = t.Worker
		}
	}
	c.emit(e)
	return nil
}

// execution returns the end event of an execution whose end is not in the log. The event has no type if the execution
// goes on. timed says that the record knows when the command began and ended.
func (c *closing) execution(ctx context.Context, t *runview.TaskReport) (end events.Event, timed bool, err error) {
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

// abandon reports the tasks that never started, or still had an attempt due, unless the log already does.
func (c *closing) abandon() {
	if c.f.Abandons() {
		return
	}
	if n := c.f.Waiting() + c.waiting; n > 0 {
		c.emit(events.Event{Type: events.TaskAbandoned, Data: &events.Data{Tasks: int(n), Reason: events.ReasonCrashed}})
	}
}

// settled tells of the tasks of an ended run of which its log does not: those of a run that found all of them proven, since
// such a run is recorded before its events, and those whose events are lost.
func (c *closing) settled(ctx context.Context, run *record.Run) error {
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
		if err := c.executed(ctx, t, tasks[t.Task]); err != nil {
			return err
		}
	}
	return nil
}

// executed tells of a task whose execution the record of an ended run names, at the times of the execution's record. Of
// an execution that is gone, nothing is known.
func (c *closing) executed(ctx context.Context, t record.TaskExecution, task *record.PackageTask) error {
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
		if err != nil && !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed) {
			return err
		}
		if e != nil {
			key = e.Key
		}
	}
	if _, err := c.x.Get(ctx, key, t.ExecutionID); errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed) {
		return nil
	} else if err != nil {
		return err
	}
	at, worker, err := c.began(ctx, key.String(), t.ExecutionID)
	if err != nil {
		return err
	}
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
	return c.finish(ctx, c.f.Find(t.Task))
}
