package workspace

import (
	"context"
	"errors"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// watchInterval is how often WatchRun looks whether a process still lives, which sends no notice.
const watchInterval = 500 * time.Millisecond

// WatchRun calls gone, which a follower of the run's events gives it, once the run has lost its process and its events have
// no end. Events with an end stop the follower themselves. It returns when it has called gone, when the run has ended, or with
// the context.
func (w *States) WatchRun(ctx context.Context, ws, run string, gone func()) {
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

// mayWrite tells whether a run's process may still write. That of a run on record as ended may be at its last steps.
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
