package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"e3/internal/events"
	"e3/refstore"
)

// Changes that a person makes to the jobs of a workspace are told in its journal. A job that is queued again may be
// executed long after its run was closed. So it is noted first, like an execution that goes on without its run.

// A JobChange is a person's change to the job of a task.
type JobChange struct {
	Type           events.Type
	Run, Task, Key string
	Attempt        int64
	By, Why        string
	Priority       *int64 // of events.JobReprioritised
}

// TellJobChanges appends a person's changes to jobs of a workspace to its journal.
func TellJobChanges(ctx context.Context, w *States, ws string, list []JobChange) error {
	told := make([]events.Event, len(list))
	for i, c := range list {
		told[i] = events.Event{Type: c.Type, Task: c.Task, Data: &events.Data{
			Run: c.Run, Key: c.Key, Attempt: c.Attempt, By: c.By, Message: c.Why, Priority: c.Priority,
		}}
	}
	if _, err := events.AppendJournal(ctx, w.Records, ws, w.Now, told...); err != nil {
		return fmt.Errorf("tell what became of jobs of workspace %s: %w", ws, err)
	}
	return nil
}

// A Retry is a failed job that a person queues again.
type Retry struct {
	Run, Task, Key string
	Attempt        int64  // the next one
	After          string // the job's latest execution, "" if it had none
	Number         int64  // how often it was queued again, this time included
	By             string
	At             time.Time
}

// retryGrace bounds the time between the note of a retry and the retry itself.
const retryGrace = time.Hour

// A RetryNote says that a job is about to be queued again.
type RetryNote struct {
	w    *States
	ws   string
	late lateExecution
}

// NoteRetry notes a job before it is queued again, so that the journal tells of the retry and its consequences
// whichever process dies.
func NoteRetry(ctx context.Context, w *States, ws string, r *Retry) (*RetryNote, error) {
	sum := sha256.Sum256([]byte(r.Run + "\x00" + r.Task + "\x00" + strconv.FormatInt(r.Number, 10)))
	n := &RetryNote{w, ws, lateExecution{
		Run: r.Run, Task: r.Task, Key: r.Key, Execution: max(r.After, noExecution) + "." + hex.EncodeToString(sum[:8]), Attempt: r.Attempt,
		Started: true, Told: true, Awaited: true, Retried: r.Number, By: r.By, At: r.At.UTC().Format(time.RFC3339Nano),
	}}
	if err := n.Drop(ctx); err != nil { // of a retry that did not happen
		return nil, err
	}
	return n, w.noteLate(ctx, ws, &n.late)
}

// Drop removes the note, if the job could not be queued again.
func (n *RetryNote) Drop(ctx context.Context) error {
	key := refstore.Key{Partition: latePartition(n.ws), Sort: n.late.Execution}
	rec, err := n.w.Records.Get(ctx, key)
	if err == nil {
		err = n.w.Records.Delete(ctx, key, rec.Version)
	}
	if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("note of a retry: %w", err)
	}
	return nil
}

// Tell tells that the job was queued again.
func (n *RetryNote) Tell(ctx context.Context) error { return tellRetried(ctx, n.w, n.ws, &n.late) }

// tellRetried appends to the journal that a job was queued again, once, whatever number of processes do so.
func tellRetried(ctx context.Context, w *States, ws string, l *lateExecution) error {
	at, err := time.Parse(time.RFC3339Nano, l.At)
	if err != nil {
		at = time.Time{}
	}
	e := events.Event{Type: events.JobRetried, Task: l.Task, Time: at, Data: &events.Data{
		Run: l.Run, Key: l.Key, Attempt: l.Attempt, By: l.By, At: l.At,
	}}
	return events.AppendJournalOnce(ctx, w.Records, ws, w.Now, l.After, e, func(old *events.Event) bool {
		return old.Type == e.Type && old.Task == e.Task && old.Facts().Run == l.Run && old.Facts().At == l.At
	})
}

// retried tells of a noted retry once it has happened; it returns false while it may yet happen.
func retried(ctx context.Context, w *States, ws string, l *lateExecution, attempts []JobAttempt) (over bool, err error) {
	if slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Task == l.Task && a.Retried >= l.Retried }) {
		return true, tellRetried(ctx, w, ws, l)
	}
	at, err := time.Parse(time.RFC3339Nano, l.At)
	return err != nil || w.Now().Sub(at) > retryGrace, nil
}

// endsRetry reports whether the note of a retry can go when its run is closed, which notes anew what follows. If the
// retry has happened, endsRetry tells of it; a retry that may yet happen keeps its note.
func endsRetry(ctx context.Context, w *States, ws string, l *lateExecution) (over bool, err error) {
	attempts, err := w.attempts(ctx, ws, l.Run)
	if err != nil {
		return false, err
	}
	return retried(ctx, w, ws, l, attempts)
}

// TellLateOf is TellLate for all noted executions of a workspace.
func TellLateOf(ctx context.Context, w *States, ws string, x reaper) error {
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: latePartition(ws), KeysOnly: true}) {
		if err == nil {
			err = TellLate(ctx, w, ws, rec.Key.Sort, x)
		}
		if err != nil && !errors.Is(err, refstore.ErrDamaged) { // a start reports damage
			return err
		}
	}
	return nil
}
