package workspace

import (
	"context"
	"errors"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// watchInterval is how often WatchRun checks whether a process is alive, since its death sends no notice.
const watchInterval = 500 * time.Millisecond

// WatchRun calls gone once the run's process is gone and its events have no end. A follower of the run's events passes
// gone; events with an end stop the follower by themselves. WatchRun returns after it has called gone, when the run has
// ended, or with the context.
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
