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

// A lateExecution is an execution that went on when the run of a dead process was closed. Its note stays until its
// end is in the workspace's journal.
type lateExecution struct {
	Execution string `json:"-"`
	Run       string `json:"run"`
	Task      string `json:"task"`
	Key       string `json:"key"`
	Attempt   int64  `json:"attempt"`
	Worker    string `json:"worker,omitempty"`
	Started   bool   `json:"started,omitempty"` // its run has reported its start
	Told      bool   `json:"told,omitempty"`    // its run tells its end; the note is for later executions of its job
	Awaited   bool   `json:"awaited,omitempty"` // its job waits for a worker; the noted execution precedes the next one
	After     int64  `json:"after,omitempty"`   // events of the journal when it was noted: its end comes later

	Retried int64  `json:"retried,omitempty"` // how often a person has queued its job again
	By      string `json:"by,omitempty"`      // that person
	At      string `json:"at,omitempty"`      // when
}

func latePartition(ws string) string { return "INDEX/late/" + ws }

func (w *States) noteLate(ctx context.Context, ws string, l *lateExecution) error {
	if end, err := events.JournalEnd(ctx, w.Records, ws); err == nil {
		l.After = end
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	key := refstore.Key{Partition: latePartition(ws), Sort: l.Execution}
	_, err = w.Records.Put(ctx, refstore.Record{Key: key, Value: text})
	if err != nil && !errors.Is(err, refstore.ErrConflict) { // already noted
		return fmt.Errorf("note the running execution %s: %w", l.Execution, err)
	}
	return nil
}

// dropLate removes the notes of a run that is about to be closed. A process that was killed while it closed the run
// has left them, and the run's log may have changed since. Notes of retries that may yet happen stay. It returns how
// many notes are left.
func (w *States) dropLate(ctx context.Context, ws, run string) (left int, err error) {
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: latePartition(ws)}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue // as in tellLate
		}
		var l lateExecution
		over := true
		switch {
		case err != nil || json.Unmarshal(rec.Value, &l) != nil:
		case l.Run != run:
			left++
		case l.Retried > 0:
			if over, err = endsRetry(ctx, w, ws, &l); err == nil && !over {
				left++
			}
		}
		if err == nil && l.Run == run && over {
			err = w.Records.Delete(ctx, rec.Key, rec.Version)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			return 0, fmt.Errorf("executions that went on: %w", err)
		}
	}
	return left, nil
}

// tellLate appends to the journal the ends of executions that went on without their run, and of executions that
// workers have begun since for the same jobs. It returns how many may still end. Several processes may call it at a
// time.
func (w *States) tellLate(ctx context.Context, ws string, x reaper) (left int, err error) {
	t := lateTeller{w: w, ws: ws, x: x}
	var notes []lateNote
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: latePartition(ws)}) {
		if errors.Is(err, refstore.ErrDamaged) {
			warn(w, &LateNoteError{Workspace: ws, Execution: rec.Key.Sort, Err: err})
			continue
		}
		if err != nil {
			return left, fmt.Errorf("executions that went on: %w", err)
		}
		notes = t.read(notes, rec)
	}
	for i := range notes {
		n, err := t.settle(ctx, &notes[i])
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, nil
}

// TellLate appends the end of an execution that has gone on without its run to the journal, if the execution is noted
// and the run is closed. It costs a read if the execution is not noted.
func TellLate(ctx context.Context, w *States, ws, execution string, x reaper) error {
	rec, err := w.Records.Get(ctx, refstore.Key{Partition: latePartition(ws), Sort: execution})
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whether the run of execution %s is closed: %w", execution, err)
	}
	t := lateTeller{w: w, ws: ws, x: x}
	for _, note := range t.read(nil, rec) {
		if end, err := events.End(ctx, w.Records, ws, note.late.Run); err != nil || end == nil {
			return err // another process is closing the run
		}
		if _, err := t.settle(ctx, &note); err != nil {
			return err
		}
	}
	return nil
}

// TellAllLate is TellLate for all noted executions of all workspaces.
func TellAllLate(ctx context.Context, w *States, x reaper) error {
	names, err := w.List(ctx)
	if err != nil {
		return err
	}
	for _, ws := range names {
		if err := TellLateOf(ctx, w, ws, x); err != nil {
			return err
		}
	}
	return nil
}

// LateNoteError reports the damaged note of an execution that went on without its run: its end may be missing in the
// journal of the workspace.
type LateNoteError struct {
	Workspace, Execution string
	Err                  error
}

func (e *LateNoteError) Error() string {
	return fmt.Sprintf("workspace %s: the note of execution %s, which went on without its run, cannot be read, "+
		"so its history may lack the end; see: e3 verify: %v",
		e.Workspace, e.Execution, e.Err)
}

// Unwrap returns the damage.
func (e *LateNoteError) Unwrap() error { return e.Err }

func warn(w *States, err error) {
	if w.Warn != nil {
		w.Warn(err)
	}
}

// A lateNote is the record of a note and its decoded content.
type lateNote struct {
	rec  refstore.Record
	late lateExecution
}

// read adds the note in a record, unless the record cannot be decoded.
func (t *lateTeller) read(notes []lateNote, rec refstore.Record) []lateNote {
	l := lateExecution{Execution: rec.Key.Sort}
	if err := json.Unmarshal(rec.Value, &l); err != nil {
		warn(t.w, &LateNoteError{Workspace: t.ws, Execution: rec.Key.Sort, Err: err})
		return notes
	}
	if len(notes) == 0 || l.After < t.after {
		t.after = l.After
	}
	return append(notes, lateNote{rec: rec, late: l})
}

// settle tells the end of a noted execution, and removes the note if nothing more can follow.
func (t *lateTeller) settle(ctx context.Context, note *lateNote) (left int, err error) {
	if left, err = t.tell(ctx, &note.late); err != nil || left > 0 {
		return left, err
	}
	err = t.w.Records.Delete(ctx, note.rec.Key, note.rec.Version)
	if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
		return 0, fmt.Errorf("executions that went on: %w", err)
	}
	return 0, nil
}

// A lateTeller tells of the executions of a workspace that went on.
type lateTeller struct {
	w     *States
	ws    string
	x     reaper
	said  said                    // what the journal says of executions; nil: not read yet
	after int64                   // how far the journal was read; before the first read, where to begin
	jobs  map[string][]JobAttempt // by run
}

// tell tells of an execution, and of later executions of its job. It returns 1 while one of them goes on or may yet
// begin: then the note stays, and the next call finds in the journal what was told.
func (t *lateTeller) tell(ctx context.Context, l *lateExecution) (left int, err error) {
	for {
		attempts, err := t.attempts(ctx, l)
		if err != nil {
			return 0, err
		}
		if l.Retried > 0 {
			if over, err := retried(ctx, t.w, t.ws, l, attempts); err != nil || !over {
				return 1, err
			}
		}
		over, err := t.end(ctx, l)
		if err != nil {
			return 0, err
		}
		if !over {
			return 1, nil
		}
		next := following(attempts, l.Task, l.Execution, l.Attempt)
		if next == nil {
			if isDue(attempts, l.Task) {
				return 1, nil
			}
			return 0, nil
		}
		*l = lateExecution{
			Execution: next.Execution, Run: l.Run, Task: next.Task, Key: next.Key, Attempt: next.Number, Worker: next.Worker,
		}
	}
}

// following returns the attempt after an execution of a task; nil if there is none. The execution is the attempt of
// that number, or precedes it (lateExecution.Awaited). The attempts are in order, without attempts that a worker gave
// back.
func following(attempts []JobAttempt, task, execution string, number int64) *JobAttempt {
	at := slices.IndexFunc(attempts, func(a JobAttempt) bool { return a.Task == task && a.Execution == execution })
	for i := range attempts {
		if a := &attempts[i]; a.Task == task && !a.queued() && (at >= 0 && i > at || at < 0 && a.Number >= number) {
			return a
		}
	}
	return nil
}

// attempts returns the attempts of the run of an execution that a worker has made. They are read before the
// execution.
func (t *lateTeller) attempts(ctx context.Context, l *lateExecution) ([]JobAttempt, error) {
	if l.Worker == "" && !l.Awaited {
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
	if t.said == nil {
		if err := t.readJournal(ctx); err != nil {
			return false, err
		}
	}
	if l.Told || t.said.end(l.Execution) {
		return true, nil
	}
	l.Started = l.Started || t.said.start(l.Execution)
	list, over, err := t.w.lateEvents(ctx, t.ws, l, t.x)
	if err != nil || !over {
		return false, err
	}
	for i := range list {
		t.said.add(&list[i])
	}
	return true, tellOnce(ctx, t.w, t.ws, t.after, list)
}

// tellOnce appends events of executions to the journal, each once, however many processes do so. The first after
// events of the journal contain none of them.
func tellOnce(ctx context.Context, w *States, ws string, after int64, list []events.Event) error {
	for _, e := range list {
		same := func(old *events.Event) bool { return old.Execution == e.Execution && old.Type == e.Type }
		if err := events.AppendJournalOnce(ctx, w.Records, ws, w.Now, after, e, same); err != nil {
			return err
		}
	}
	return nil
}

// readJournal finds the executions whose start or end is already in the journal: a process may have died before it
// removed their notes. It reads from the place at which the first of them was noted.
func (t *lateTeller) readJournal(ctx context.Context) error {
	t.said = said{}
	for e, err := range events.ReadJournal(ctx, t.w.Records, t.ws, t.after) {
		if err != nil && !errors.As(err, new(*events.JournalError)) {
			t.said = nil
			return err
		}
		if err == nil {
			t.after = e.Seq
			t.said.add(&e)
		}
	}
	return nil
}

// lateEvents returns the events of an execution's end. over is false while it goes on.
func (w *States) lateEvents(
	ctx context.Context, ws string, l *lateExecution, x reaper,
) (list []events.Event, over bool, err error) {
	key, ok := executions.ParseKey(l.Key)
	if !ok {
		return nil, true, nil
	}
	e, err := ended(ctx, key, l.Execution, x)
	if errors.Is(err, executions.ErrNotFound) {
		attempts, fault := w.attempts(ctx, ws, l.Run)
		if isOpen(attempts, l) || fault != nil {
			return nil, false, fault
		}
		if e, err = ended(ctx, key, l.Execution, x); errors.Is(err, executions.ErrNotFound) && isGivenBack(attempts, l) {
			return nil, true, nil // otherwise the record may have come meanwhile
		}
	}
	by := l.Worker
	if by == "" && e != nil && e.Detail != nil { // a run that was killed early names its process only here
		by = e.Detail.Worker
	}
	at := func(typ events.Type, when time.Time) events.Event {
		return events.Event{
			Type: typ, Time: when, Task: l.Task, Execution: l.Execution, Worker: by,
			Data: &events.Data{Run: l.Run, Key: l.Key, Attempt: l.Attempt},
		}
	}
	switch {
	case isNoAnswer(err):
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
	return append(list, end), true, nil
}

// ended returns an execution, closed if it is dead.
func ended(ctx context.Context, key executions.Key, id string, x reaper) (*executions.Execution, error) {
	if _, err := x.CloseIfDead(ctx, key, id); err != nil {
		return nil, err
	}
	return x.Get(ctx, key, id)
}

// outcome sets the result of an execution in its end event. All of it comes from the record, so every process writes
// the same.
func outcome(end *events.Event, e *executions.Execution) {
	end.Type, end.Time = events.TaskFailed, e.CompletedAt
	end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	if e.State == record.Success {
		end.Type, end.Data.Output = events.TaskCompleted, e.OutputHash
		return
	}
	end.Data.Message, end.Data.ExitCode = e.Message, e.ExitCode
	if e.Detail != nil && e.Detail.Reason != "" {
		end.Data.Reason = e.Detail.Reason
	}
}

// isOpen reports whether an execution that is not on record has a job that has not ended: then the worker is about to
// record the execution.
func isOpen(attempts []JobAttempt, l *lateExecution) bool {
	return slices.ContainsFunc(attempts, func(a JobAttempt) bool {
		return a.Execution == l.Execution && a.Open && !a.Lost
	})
}

// TellLeft appends to the journal how executions have ended that a dead process had begun for a run, if a process of
// another machine has closed the run without knowing of them. It tells nothing of a run without an end: the process
// that closes the run does.
func (w *States) TellLeft(ctx context.Context, ws, run string, x reaper) error {
	end, err := events.End(ctx, w.Records, ws, run)
	if err != nil || end == nil {
		return err
	}
	left, err := x.BegunFor(ctx, ws, run)
	if err != nil || len(left) == 0 {
		return err
	}
	told := said{}
	if err := readEvents(ctx, w, ws, run, told.add); err != nil {
		return err
	}
	for i := range left {
		if id := left[i].ExecutionID; !told.end(id) {
			if err := tellInJournal(ctx, w, ws, run, &left[i], told.start(id), x); err != nil {
				return fmt.Errorf("tell of execution %s of run %s: %w", left[i].ExecutionID, run, err)
			}
		}
	}
	return x.DropBegun(ctx, ws, run)
}

// tellInJournal appends the events of an execution to the journal, each once, however many processes do so.
func tellInJournal(ctx context.Context, w *States, ws, run string, l *executions.Begun, started bool, x reaper) error {
	list, _, err := w.lateEvents(ctx, ws, &lateExecution{
		Execution: l.ExecutionID, Run: run, Task: l.Task, Key: l.Key, Attempt: l.Attempt, Started: started,
	}, x)
	if err != nil {
		return err
	}
	return tellOnce(ctx, w, ws, 0, list)
}
