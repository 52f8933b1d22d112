package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/events"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// Cleaner removes workspaces, and runs and events that are no longer needed.
type Cleaner struct {
	states    *States
	approvals *Approvals
}

// cleanEvery is how often starts clean up old events.
const cleanEvery = 24 * time.Hour

// stampKey is the key of the record that holds the time of the last search for old events.
func stampKey() refstore.Key { return refstore.Key{Partition: "INDEX/state", Sort: "events-cleaned"} }

// CleanEvents removes the events of runs that ended before a time, of one workspace or, with "", of all. It keeps the
// events of the run that each workspace's state names, of unfinished runs, and of imported runs that still have a
// record. It also removes the parts of journals that end before that time. It returns the runs, also with an error.
func (w *Cleaner) CleanEvents(ctx context.Context, ws string, before time.Time, dryRun bool) ([]events.CleanedRun, error) {
	cleaned, err := events.Clean(ctx, w.states.Records, events.CleanOptions{Workspace: ws, Before: before, Keep: w.showsEvents, DryRun: dryRun})
	if err != nil || dryRun {
		return cleaned, err
	}
	journals := []string{ws}
	if ws == "" {
		if journals, err = events.Journals(ctx, w.states.Records); err != nil {
			return cleaned, err
		}
	}
	for _, name := range journals {
		if err := events.CleanJournal(ctx, w.states.Records, name, before); err != nil {
			return cleaned, err
		}
	}
	return cleaned, nil
}

// showsEvents tells whether the events of a run must stay: it is a workspace's current run, or a recorded imported one.
func (w *Cleaner) showsEvents(ctx context.Context, run events.RunRef) (bool, error) {
	s, err := w.states.State(ctx, run.Workspace)
	if err == nil && s.CurrentRunID == run.Run {
		return true, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	rec, err := w.states.Runs.Stored(ctx, run.Workspace, run.Run)
	if err == nil && runview.Imported(rec) {
		return true, nil
	}
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return false, err
	}
	shown, err := w.states.Runs.Stored(ctx, run.Workspace, "")
	if errors.Is(err, runview.ErrNoRun) {
		return false, nil
	}
	return err == nil && shown.Key.Sort == run.Run, err
}

// AgeNow is the time from which ages are counted: this machine's clock or, where machines share the repository and it
// is earlier, the store's clock. By a clock that is ahead everything would be old.
func (w *States) AgeNow(ctx context.Context) (time.Time, error) {
	now := w.Now()
	clock, ok := w.Locks.(refstore.SessionClock)
	if !ok {
		return now, nil
	}
	there, err := clock.SessionNow(ctx)
	if err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	if there.Before(now) {
		return there, nil
	}
	return now, nil
}

// Retire removes old events and surplus old imported runs, once a day. All other calls of the day read one small
// record. retention says how long events are kept; 0: for ever.
//
// No single clock is trusted: Retire removes only what was already too old at the last search, by any machine, at
// least a day before. So a single start with a clock that is ahead removes nothing.
func (w *Cleaner) Retire(ctx context.Context, retention func(context.Context) (time.Duration, error)) ([]events.CleanedRun, error) {
	now := w.states.Now()
	rec, err := w.states.Derived.Get(ctx, stampKey())
	if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged) {
		return nil, fmt.Errorf("clean old events: %w", err)
	}
	// A future time comes from a wrong clock; an invalid text has no meaning.
	last, bad := time.Parse(time.RFC3339, string(rec.Value))
	known := bad == nil && !last.After(now)
	if known && now.Sub(last) < cleanEvery {
		return nil, nil
	}
	if now, err = w.states.AgeNow(ctx); err != nil {
		return nil, fmt.Errorf("clean old events: %w", err)
	}
	rec = refstore.Record{Key: stampKey(), Value: []byte(now.UTC().Format(time.RFC3339)), Version: rec.Version}
	if _, err := w.states.Derived.Put(ctx, rec); errors.Is(err, refstore.ErrConflict) {
		return nil, nil // another process cleans up
	} else if err != nil {
		return nil, fmt.Errorf("clean old events: %w", err)
	}
	keep, err := retention(ctx)
	if err != nil || keep == 0 || !known {
		return nil, err
	}
	if now.Before(last) {
		last = now
	}
	if _, err := w.RetireImported(ctx, last.Add(-keep), false); err != nil {
		return nil, err
	}
	return w.CleanEvents(ctx, "", last.Add(-keep), false)
}
