package workspace

import (
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// A closing closes a dead run. First it reads what the run has left: its record, its log, its jobs, and the
// executions that its process had begun. Then it completes the log for each task, and then writes the record and the
// end of the log.
type closing struct {
	w       *Runner
	x       reaper
	ws, run string
	log     *events.Log
	f       *runview.Fold
	said    said              // of executions
	shared  map[string]bool   // executions of other runs, for which this one has waited
	blocks  map[string]string // the last block that each task has waited for
	open    map[string]bool   // executions whose job has not ended
	// attempts are the attempts that workers have begun.
	attempts []JobAttempt
	late     map[string]bool // executions that go on without the run
	// anonymous says that no event names the run's process; then the events of executions do.
	anonymous bool
	waiting   int64 // tasks that wait for another attempt, or whose execution goes on

	rec      refstore.Record // the run's record, with its field for the log's bounds
	bounds   events.Bounds
	recorded *record.Run // the run in rec, later as it will be written; nil: unreadable
	others   int         // noted executions of other runs, and noted retries of this run
}

// newClosing begins the closing of a run. It reads nothing.
func newClosing(w *Runner, ws, run string) *closing {
	return &closing{
		w: w, ws: ws, run: run, f: runview.NewFold(), said: said{}, shared: map[string]bool{}, blocks: map[string]string{},
		late: map[string]bool{},
	}
}

// readRecord reads the run's record. found is false if there is none, or if the run was imported: such a run is not
// closed. A record may be unreadable for two reasons. A power failure lost it before it was synced, so the run had
// not finished; or it is damaged, and the events say how the run ended.
func (c *closing) readRecord(ctx context.Context) (found bool, err error) {
	c.rec, err = c.w.states.Records.Get(ctx, runview.Key(c.ws, c.run), runview.FieldProvenance, FieldEvents)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	if err != nil && !errors.Is(err, refstore.ErrDamaged) {
		return false, err
	}
	if runview.Imported(c.rec) {
		return false, nil
	}
	c.bounds = runview.BoundsOf(c.rec)
	if err == nil {
		if run, err := record.DecodeRun(c.rec.Value); err == nil {
			c.recorded = run
		}
	}
	return true, nil
}

// readJobs drops the notes of an earlier attempt at closing, withdraws the jobs that no worker has begun, and reads
// the others.
func (c *closing) readJobs(ctx context.Context) (err error) {
	if c.others, err = c.w.states.dropLate(ctx, c.ws, c.run); err != nil {
		return err
	}
	attempts, err := withdrawn(ctx, c.w.states, c.ws, c.run)
	c.setAttempts(attempts)
	return err
}

// setAttempts takes in the attempts at the run's jobs.
func (c *closing) setAttempts(attempts []JobAttempt) {
	c.attempts, c.open = attempts, map[string]bool{}
	for i := range attempts {
		if attempts[i].Open && !attempts[i].Lost {
			c.open[attempts[i].Execution] = true
		}
	}
}

// readEvent takes in an event of the log.
func (c *closing) readEvent(e *events.Event) {
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

// ran emits an event of an execution that a process had begun or continued.
func (c *closing) ran(typ events.Type, at time.Time, task, execution, worker string, data *events.Data) {
	c.emit(events.Event{Type: typ, Time: at, Task: task, Execution: execution, Worker: worker, Data: data})
}

// adopted reports that another worker continues a running task's execution, unless the log already says so.
func (c *closing) adopted(t *runview.FoldedTask, a *JobAttempt, due int64) {
	if a.Adopter != "" && t.State == runview.TaskRunning && (!t.Adopted || t.Worker != a.Adopter) {
		c.ran(events.TaskAdopted, a.Adopted, a.Task, a.Execution, a.Adopter, crashed(a.Key, due))
	}
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

// made returns when the id of an execution was made: when the execution was claimed, or a little later.
func made(execution string) time.Time {
	at, _ := executions.ParseID(execution)
	return at
}

// note notes an execution that goes on, or a job for which another execution may begin. The journal will tell its
// end.
func (c *closing) note(ctx context.Context, l *lateExecution) error {
	l.Run = c.run
	c.late[l.Execution] = true
	return c.w.states.noteLate(ctx, c.ws, l)
}

// said holds the executions that a log tells of, with the type of the latest event: of the start, or of the end.
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

// readEvents reads the undamaged events of a run.
func readEvents(ctx context.Context, w *States, ws, run string, read func(*events.Event)) error {
	for e, err := range events.Read(ctx, w.Records, ws, run) {
		if errors.As(err, new(*events.DamagedError)) {
			continue
		}
		if err != nil {
			return err
		}
		read(&e.Event)
	}
	return nil
}

// recordOf reads the record of an execution; nil if there is none or it cannot be read.
func (c *closing) recordOf(ctx context.Context, key executions.Key, id string) (*executions.Execution, error) {
	e, err := c.x.Get(ctx, key, id)
	if isNoAnswer(err) {
		return nil, nil
	}
	return e, err
}

// isNoAnswer tells whether err means that no record tells how an execution ended.
func isNoAnswer(err error) bool {
	return errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed)
}

// began returns, by the record, when the command of an execution began and which process ran it; zero if the record
// does not say that it began.
func (c *closing) began(ctx context.Context, key, id string) (at time.Time, worker string, err error) {
	k, ok := executions.ParseKey(key)
	if !ok {
		return time.Time{}, "", nil
	}
	e, err := c.recordOf(ctx, k, id)
	if e == nil || err != nil {
		return time.Time{}, "", err
	}
	return e.Began(), processOf(e), nil
}

// processOf returns the process that ran an execution, by its record.
func processOf(e *executions.Execution) string {
	if e.Detail == nil {
		return ""
	}
	return e.Detail.Worker
}
