package workspace

import (
	"context"
	"errors"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/refstore"
)

// Runs tells of every run of a workspace that has a record or events, own or imported, without their tasks: the latest first.
// Of one that has not ended it tells no summary. The workspace need not be here. It reads the first and the last line of the
// events of each run.
func (w *Workspaces) Runs(ctx context.Context, ws string) iter.Seq2[*RunReport, error] {
	return func(yield func(*RunReport, error) bool) {
		ids, recorded, err := w.runIDs(ctx, ws)
		if _, missing := w.State(ctx, ws); missing != nil && (err != nil || len(ids) == 0 || !errors.Is(missing, ErrNotFound)) {
			err = missing
		}
		if err != nil {
			yield(nil, err)
			return
		}
		slices.Reverse(ids)
		for batch := firstBatch; len(ids) > 0; batch = min(2*batch, lastBatch) {
			n := min(batch, len(ids))
			rows := make([]*RunReport, n)
			err := w.each(ctx, n, func(ctx context.Context, k int) (err error) {
				rows[k], err = w.row(ctx, ws, ids[k], recorded[ids[k]])
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range rows {
				if r != nil && !yield(r, nil) { // nil was removed meanwhile
					return
				}
			}
			ids = ids[n:]
		}
	}
}

// firstBatch and lastBatch are how many runs are read at a time: few before anybody has seen the first.
const (
	firstBatch = 16
	lastBatch  = 1024
)

// row tells a run without its tasks, nil if it is gone.
func (w *Workspaces) row(ctx context.Context, ws, id string, recorded bool) (*RunReport, error) {
	if !recorded {
		r, found, err := w.headFromEvents(ctx, ws, id)
		if err != nil || !found {
			return nil, err
		}
		return r, nil
	}
	r, err := w.summary(ctx, ws, id)
	if err != nil {
		return nil, ignoreGone(err)
	}
	if r.unrecorded {
		return r, nil // and told already
	}
	started, err := events.First(ctx, w.Records, ws, id)
	if err != nil {
		return nil, err
	}
	var end *events.Event
	if r.State == record.RunCancelled {
		if end, err = events.End(ctx, w.Records, ws, id); err != nil {
			return nil, err
		}
	}
	r.tell(started, end)
	return r, nil
}

// each calls do for 0 to n-1, in no order, until one fails: as many at a time as the records are looked up.
func (w *Workspaces) each(ctx context.Context, n int, do func(ctx context.Context, k int) error) error {
	if w.Lookups == 0 {
		return parallel.Each(ctx, n, do)
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(w.Lookups)
	for k := 0; k < n && inner.Err() == nil; k++ {
		g.Go(func() error { return do(inner, k) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func ignoreGone(err error) error {
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	return err
}
