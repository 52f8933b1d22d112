package runview

import (
	"context"
	"errors"
	"iter"
	"slices"

	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/parallel"
	"e3/refstore"
)

// List reports every run of a workspace that has a record or events, own or imported, without its tasks: the latest
// first. A run that has not ended has no summary. The workspace need not exist. It reads the first and the last line of
// the events of each run.
func (v *Runs) List(ctx context.Context, ws string) iter.Seq2[*Report, error] {
	return func(yield func(*Report, error) bool) {
		ids, recorded, err := v.IDs(ctx, ws)
		if _, missing := v.Workspaces.State(ctx, ws); missing != nil && (err != nil || len(ids) == 0 || !errors.Is(missing, human.ErrNotFound)) {
			err = missing
		}
		if err != nil {
			yield(nil, err)
			return
		}
		slices.Reverse(ids)
		for batch := firstBatch; len(ids) > 0; batch = min(2*batch, lastBatch) {
			n := min(batch, len(ids))
			rows := make([]*Report, n)
			err := parallel.AtMost(ctx, v.Lookups, n, func(ctx context.Context, k int) (err error) {
				rows[k], err = v.row(ctx, ws, ids[k], recorded[ids[k]])
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range rows {
				if r != nil && !yield(r, nil) { // nil: it was removed meanwhile
					return
				}
			}
			ids = ids[n:]
		}
	}
}

// firstBatch and lastBatch are the numbers of runs that are read at a time. The first batch is small, so that output
// begins early.
const (
	firstBatch = 16
	lastBatch  = 1024
)

// row reports a run without its tasks, nil if it is gone.
func (v *Runs) row(ctx context.Context, ws, id string, recorded bool) (*Report, error) {
	if !recorded {
		r, found, err := v.headFromEvents(ctx, ws, id)
		if err != nil || !found {
			return nil, err
		}
		return r, nil
	}
	r, err := v.summary(ctx, ws, id)
	if err != nil {
		return nil, ignoreGone(err)
	}
	if r.unrecorded {
		return r, nil // and yielded already
	}
	started, err := events.First(ctx, v.Records, ws, id)
	if err != nil {
		return nil, err
	}
	if started == nil {
		started = r.bounds.First
	}
	r.tell(started, r.bounds.Last)
	return r, nil
}

func ignoreGone(err error) error {
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	return err
}
