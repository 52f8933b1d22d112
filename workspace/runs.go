package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// A run's record lies under the workspace in which the run was made. An imported run also has its provenance. It is
// history: this package does not extend it, close it or clean it up. Removing the workspace removes it.

// RemoveRuns removes runs that were imported under a name without a workspace, and returns how many. It returns
// ErrNotFound if there are none, ErrExists if there is such a workspace.
func (w *Cleaner) RemoveRuns(ctx context.Context, ws string) (int, error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Removal, nil)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	_, missing := w.states.State(ctx, ws)
	switch {
	case missing == nil:
		return 0, fmt.Errorf("workspace %s: %w", ws, ErrExists)
	case !errors.Is(missing, ErrNotFound):
		return 0, missing
	}
	n, err := w.forgetRuns(ctx, ws)
	if err == nil && n == 0 {
		err = missing
	}
	return n, lock.explain(ctx, err)
}

// oldRun is the record of a run that had ended when the lock was taken.
type oldRun struct {
	id      string
	version refstore.Version // Absent if the record was not read
	goes    bool             // it was read and was not imported, so it may be deleted
}

// deleteRuns removes the workspace's own old run records, except the named ones: history lives in events and executions
// (seed 003, "Run Cleanup"). It returns the others. Records that appeared after the list was made are not this holder's
// to delete: a holder that was presumed dead wrote them late, or a successor did.
func (w *Cleaner) deleteRuns(ctx context.Context, ws string, old []oldRun, keep ...string) ([]oldRun, error) {
	var kept []oldRun
	for _, o := range old {
		if slices.Contains(keep, o.id) {
			kept = append(kept, o)
			continue
		}
		err := w.deleteRun(ctx, ws, &o)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return nil, fmt.Errorf("clean up run records: %w", err)
		}
	}
	return kept, nil
}

func (w *Cleaner) deleteRun(ctx context.Context, ws string, o *oldRun) error {
	for {
		if !o.goes {
			rec, err := w.states.Records.Get(ctx, runview.Key(ws, o.id), runview.FieldProvenance)
			if errors.Is(err, refstore.ErrDamaged) {
				return nil // verify reports it
			}
			if err != nil || runview.Imported(rec) {
				return err
			}
			o.version, o.goes = rec.Version, true
		}
		err := w.states.Records.Delete(ctx, runview.Key(ws, o.id), o.version)
		if !errors.Is(err, refstore.ErrConflict) {
			return err
		}
		if err := w.states.confirm(ctx, ws); err != nil {
			return err
		}
		o.goes = false
	}
}

// deleteAllRuns also removes imported runs.
func (w *Cleaner) deleteAllRuns(ctx context.Context, ws string) error {
	_, err := w.forgetRuns(ctx, ws)
	return err
}

// forgetRuns removes all run records and returns how many there were.
func (w *Cleaner) forgetRuns(ctx context.Context, ws string) (n int, err error) {
	for rec, err := range w.states.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err == nil {
			err = refstore.Forget(ctx, w.states.Records, w.states.Locks, rec.Key)
		}
		if err != nil {
			return n, fmt.Errorf("clean up run records: %w", err)
		}
		n++
	}
	return n, nil
}

// FieldEvents is the field of a run's record with the bounds of its events (events.Bounds), for runs made here and
// for imported runs. It lies beside the sum, so it costs no file.
const FieldEvents = runview.FieldEvents

// watchInterval is how often WatchRun checks whether a process is alive, since its death sends no notice.
const watchInterval = 500 * time.Millisecond

// WatchRun calls gone once the run's process is gone and its events have no end. A follower of the run's events
// passes gone; events with an end stop the follower by themselves. WatchRun returns at once, and watches until it has
// called gone, the run has ended, or ctx is done.
func (w *States) WatchRun(ctx context.Context, ws, run string, gone func()) {
	go w.watchRun(ctx, ws, run, gone)
}

func (w *States) watchRun(ctx context.Context, ws, run string, gone func()) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.mayWrite(ctx, ws, run) {
			continue
		}
		if ended, err := events.Ended(ctx, w.Records, ws, run); err != nil || !ended {
			gone()
		}
		return
	}
}

// Unmade are the tasks that the latest run of a workspace could not make, by name: they failed, or were skipped
// because another had. Their outputs in the workspace are of an earlier run. There are none if the run had values of
// its own, as it sets no outputs, or if the workspace has changed since it ended, as by a run that is at work. Where
// every task succeeded, that costs the workspace's state and the last of the run's events.
func (w *States) Unmade(ctx context.Context, ws string) (map[string]*runview.TaskReport, error) {
	s, err := w.State(ctx, ws)
	if err != nil || s.CurrentRunID == "" {
		return nil, err
	}
	end, err := events.End(ctx, w.Records, ws, s.CurrentRunID)
	if err != nil || end == nil || end.Data == nil || end.Data.Summary == nil || s.RootUpdatedAt.After(end.Time) {
		return nil, ctx.Err() // what cannot be read says nothing
	}
	if sum := end.Data.Summary; sum.Failed+sum.Skipped == 0 {
		return nil, nil
	}
	rep, err := w.Runs.Report(ctx, ws, s.CurrentRunID)
	if err != nil || len(rep.Set) > 0 {
		return nil, ctx.Err()
	}
	found := make(map[string]*runview.TaskReport)
	for i := range rep.Tasks {
		switch t := &rep.Tasks[i]; t.State {
		case runview.TaskFailed, runview.TaskError, runview.TaskSkipped:
			found[t.Task] = t
		}
	}
	return found, nil
}

// mayWrite tells whether a run's process may still write. A run recorded as ended may still have its last steps to do.
func (w *States) mayWrite(ctx context.Context, ws, run string) bool {
	r, err := w.Runs.Summary(ctx, ws)
	switch {
	case errors.Is(err, ErrNotFound) || errors.Is(err, runview.ErrNoRun) || err == nil && r.RunID != run:
		return false
	case err != nil:
		return true // unknown
	case r.State == record.RunRunning:
		return r.Live
	}
	busy, err := w.Busy(ctx, ws)
	return err != nil || busy != nil
}
