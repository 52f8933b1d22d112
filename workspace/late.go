package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/refstore"
)

// A lateExecution is an execution that went on when the run of a dead process was closed. A note of it stays until its
// end is in the workspace's journal.
type lateExecution struct {
	Execution string `json:"-"`
	Run       string `json:"run"`
	Task      string `json:"task"`
	Key       string `json:"key"`
	Attempt   int64  `json:"attempt"`
	Worker    string `json:"worker,omitempty"`
	Started   bool   `json:"started,omitempty"` // its run has reported its start
	Told      bool   `json:"told,omitempty"`    // its run tells of its end; it is noted for what follows for its job
}

func latePartition(ws string) string { return "INDEX/late/" + ws }

func (w *States) noteLate(ctx context.Context, ws string, l *lateExecution) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Records.Put(ctx, refstore.Record{Key: refstore.Key{Partition: latePartition(ws), Sort: l.Execution}, Value: text})
	if err != nil && !errors.Is(err, refstore.ErrConflict) { // already noted
		return fmt.Errorf("note the running execution %s: %w", l.Execution, err)
	}
	return nil
}

// dropLate removes the notes of a run that is about to be closed. A process that was killed while it closed the run has left them:
// what they say of the run's log may no longer be so.
func (w *States) dropLate(ctx context.Context, ws, run string) error {
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: latePartition(ws)}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue // as in tellLate
		}
		var l lateExecution
		if err == nil && json.Unmarshal(rec.Value, &l) == nil && l.Run == run {
			err = w.Records.Delete(ctx, rec.Key, rec.Version)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			return fmt.Errorf("executions that went on: %w", err)
		}
	}
	return nil
}

// tellLate appends the ends of executions to the journal that went on without their run, and of those that workers have begun since for
// the same jobs. It returns how many may still end. The caller holds the dataflow lock.
func (w *States) tellLate(ctx context.Context, ws string, x reaper) (left int, err error) {
	t := lateTeller{w: w, ws: ws, x: x}
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: latePartition(ws)}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue // the note is only a hint
		}
		if err != nil {
			return left, fmt.Errorf("executions that went on: %w", err)
		}
		l := lateExecution{Execution: rec.Key.Sort}
		if json.Unmarshal(rec.Value, &l) == nil {
			n, err := t.tell(ctx, &l)
			if err != nil {
				return left, err
			}
			if left += n; n > 0 {
				continue
			}
		}
		if err := w.Records.Delete(ctx, rec.Key, rec.Version); err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			return left, fmt.Errorf("executions that went on: %w", err)
		}
	}
	return left, nil
}

// A lateTeller tells of the executions of a workspace that went on.
type lateTeller struct {
	w    *States
	ws   string
	x    reaper
	told map[string]bool         // executions whose end is in the journal; nil: not read yet
	jobs map[string][]JobAttempt // by run
}

// tell tells of an execution, and of those that follow for its job. It returns 1 while one of them goes on, or may be begun: then the
// note stays, and the next call finds in the journal what is told.
func (t *lateTeller) tell(ctx context.Context, l *lateExecution) (left int, err error) {
	for {
		attempts, err := t.attempts(ctx, l)
		if err != nil {
			return 0, err
		}
		over, err := t.end(ctx, l)
		if err != nil {
			return 0, err
		}
		if !over {
			return 1, nil
		}
		next := following(attempts, l.Task, l.Execution)
		if next == nil {
			if slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Execution == l.Execution && a.Open }) {
				return 1, nil
			}
			return 0, nil
		}
		*l = lateExecution{Execution: next.Execution, Run: l.Run, Task: next.Task, Key: next.Key, Attempt: next.Number, Worker: next.Worker}
	}
}

// following returns the attempt that follows an execution of a task, nil if there is none.
func following(attempts []JobAttempt, task, execution string) (next *JobAttempt) {
	for i := range attempts {
		if a := &attempts[i]; a.Task == task && a.Execution > execution && (next == nil || a.Execution < next.Execution) {
			next = a
		}
	}
	return next
}

// attempts returns those of the run of an execution that a worker has made. They are read before the execution is looked at.
func (t *lateTeller) attempts(ctx context.Context, l *lateExecution) ([]JobAttempt, error) {
	if l.Worker == "" {
		return nil, nil
	}
	list, ok := t.jobs[l.Run]
	if !ok {
		var err error
		if list, err = t.w.attempts(ctx, t.ws, l.Run); err != nil {
			return nil, err
		}
		if t.jobs == nil {
			t.jobs = map[string][]JobAttempt{}
		}
		t.jobs[l.Run] = list
	}
	return list, nil
}

// end tells how an execution has ended. over is false while it goes on.
func (t *lateTeller) end(ctx context.Context, l *lateExecution) (over bool, err error) {
	if t.told == nil {
		if t.told, err = t.w.toldLate(ctx, t.ws); err != nil {
			return false, err
		}
	}
	if l.Told || t.told[l.Execution] {
		return true, nil
	}
	list, over, err := t.w.lateEvents(ctx, t.ws, l, t.x)
	if err != nil || !over {
		return false, err
	}
	t.told[l.Execution] = true
	_, err = events.AppendJournal(ctx, t.w.Records, t.ws, t.w.Now, list...)
	return true, err
}

// toldLate finds the executions whose end is already in the journal: a process may have died before it removed their
// notes.
func (w *States) toldLate(ctx context.Context, ws string) (map[string]bool, error) {
	told := map[string]bool{}
	for e, err := range events.ReadJournal(ctx, w.Records, ws, 0) {
		if err != nil && !errors.As(err, new(*events.JournalError)) {
			return nil, err
		}
		if err == nil && (e.Type == events.TaskCompleted || e.Type == events.TaskFailed) {
			told[e.Execution] = true
		}
	}
	return told, nil
}

// lateEvents returns the events of an execution's end. over is false while it goes on.
func (w *States) lateEvents(ctx context.Context, ws string, l *lateExecution, x reaper) (list []events.Event, over bool, err error) {
	key, ok := executions.ParseKey(l.Key)
	if !ok {
		return nil, true, nil
	}
	e, err := ended(ctx, key, l.Execution, x)
	if errors.Is(err, executions.ErrNotFound) {
		open, fault := isOpen(ctx, w, ws, l)
		if open || fault != nil {
			return nil, false, fault
		}
		e, err = ended(ctx, key, l.Execution, x) // it may have come meanwhile
	}
	at := func(typ events.Type, when time.Time) events.Event {
		return events.Event{
			Type: typ, Time: when, Task: l.Task, Execution: l.Execution, Worker: l.Worker,
			Data: &events.Data{Run: l.Run, Key: l.Key, Attempt: l.Attempt},
		}
	}
	switch {
	case errors.Is(err, executions.ErrNotFound), errors.Is(err, executions.ErrMalformed):
		end := at(events.TaskFailed, time.Time{})
		end.Data.NoRecord, end.Data.Message = true, "the record of the execution is gone"
		return []events.Event{end}, true, nil
	case err != nil:
		return nil, false, err
	case e.State == record.Running:
		return nil, false, nil
	}
	if begun := e.Began(); !l.Started && !begun.IsZero() {
		list = append(list, at(events.TaskStarted, begun))
	}
	end := at(events.TaskFailed, time.Time{})
	outcome(&end, e)
	if e.Detail != nil && end.Type == events.TaskFailed {
		end.Data.Reason = e.Detail.Reason
	}
	return append(list, end), true, nil
}

// ended returns an execution, closed if it is dead.
func ended(ctx context.Context, key executions.Key, id string, x reaper) (*executions.Execution, error) {
	if _, err := x.CloseIfDead(ctx, key, id); err != nil {
		return nil, err
	}
	return x.Get(ctx, key, id)
}

// outcome sets the result of an execution in its end event.
func outcome(end *events.Event, e *executions.Execution) {
	end.Type, end.Time = events.TaskFailed, e.CompletedAt
	end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	if e.State == record.Success {
		end.Type, end.Data.Output = events.TaskCompleted, e.OutputHash
		return
	}
	end.Data.Message, end.Data.ExitCode = e.Message, e.ExitCode
}

// isOpen reports whether the job of an execution that is not on record has not ended: its worker is about to record it.
func isOpen(ctx context.Context, w *States, ws string, l *lateExecution) (bool, error) {
	attempts, err := w.attempts(ctx, ws, l.Run)
	return slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Execution == l.Execution && a.Open && !a.Lost }), err
}

// TellLeft appends to the journal what became of executions that a dead process had begun for a run, where that run was closed by a
// process of another machine, which could not know of them. Of a run without an end it tells nothing: the process that closes it does.
func (w *States) TellLeft(ctx context.Context, ws, run string, x reaper) error {
	end, err := events.End(ctx, w.Records, ws, run)
	if err != nil || end == nil {
		return err
	}
	left, err := x.BegunFor(ctx, ws, run)
	if err != nil || len(left) == 0 {
		return err
	}
	told := map[string]events.Type{}
	for e, err := range events.Read(ctx, w.Records, ws, run) {
		if errors.As(err, new(*events.DamagedError)) {
			continue
		}
		if err != nil {
			return err
		}
		switch e.Type {
		case events.TaskStarted, events.TaskCompleted, events.TaskFailed, events.TaskDeferred:
			told[e.Execution] = e.Type
		}
	}
	for i := range left {
		if last, ok := told[left[i].ExecutionID]; !ok || last == events.TaskStarted {
			if err := tellBegun(ctx, w, ws, run, &left[i], ok, x); err != nil {
				return fmt.Errorf("tell of execution %s of run %s: %w", left[i].ExecutionID, run, err)
			}
		}
	}
	return x.DropBegun(ctx, ws, run)
}

// tellBegun appends the events of an execution to the journal, each once, whatever number of processes do so.
func tellBegun(ctx context.Context, w *States, ws, run string, l *executions.Begun, started bool, x reaper) error {
	list, _, err := w.lateEvents(ctx, ws, &lateExecution{
		Execution: l.ExecutionID, Run: run, Task: l.Task, Key: l.Key, Attempt: l.Attempt, Started: started,
	}, x)
	if err != nil {
		return err
	}
	for _, e := range list {
		same := func(old *events.Event) bool { return old.Execution == e.Execution && old.Type == e.Type }
		if err := events.AppendJournalOnce(ctx, w.Records, ws, w.Now, 0, e, same); err != nil {
			return err
		}
	}
	return nil
}
