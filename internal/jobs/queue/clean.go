package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/refstore"
)

// Clean removes jobs that finished before a time, from all queues, and returns how many.
func (k *Keeper) Clean(ctx context.Context, before time.Time) (int, error) {
	queues, err := k.names(ctx)
	n := 0
	for _, queue := range queues {
		if err == nil {
			var some int
			some, err = k.clean(ctx, queue, before)
			n += some
		}
	}
	if err != nil {
		return n, fmt.Errorf("remove finished jobs: %w", err)
	}
	return n, nil
}

func (k *Keeper) clean(ctx context.Context, queue string, before time.Time) (n int, err error) {
	for r, err := range k.store.List(ctx, refstore.Query{Partition: partition(queue, "finished")}) {
		if err != nil {
			return n, err
		}
		var run turnRecord
		if decode(r.Value, &run) != nil || validRun(r.Key.Sort) != nil || !run.At.Time().Before(before) {
			continue // a job that finished before a time was enqueued before it
		}
		remaining, gone, err := k.cleanRun(ctx, queue, r.Key.Sort, before)
		n += gone
		if err == nil && !remaining {
			for told, bad := range k.store.List(ctx, refstore.Query{Partition: toldPartition(queue, r.Key.Sort)}) {
				if err = bad; err == nil {
					err = k.drop(ctx, told.Key, told.Version)
				}
			}
			err = errors.Join(err, k.drop(ctx, r.Key, r.Version))
		}
		if err != nil {
			return n, err
		}
	}
	// A crash may have left entries among the dead.
	for r, err := range k.store.List(ctx, refstore.Query{Partition: partition(queue, "dead"), KeysOnly: true}) {
		if err == nil && validID(r.Key.Sort) == nil {
			err = k.undead(ctx, queue, r.Key.Sort)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			return n, err
		}
	}
	return n, nil
}

// cleanRun removes a run's old finished jobs, and tells whether the run has others left.
func (k *Keeper) cleanRun(ctx context.Context, queue, run string, before time.Time) (remaining bool, n int, err error) {
	for range k.jobs(ctx, queue, run+".") {
		remaining = true // or unreadable jobs
		break
	}
	for s, err := range k.finished(ctx, queue, run) {
		switch {
		case errors.Is(err, ErrMalformed):
			remaining = true // a repair removes it
		case err != nil:
			return true, n, err
		case !s.Finished.Time().Before(before):
			remaining = true
		default:
			if err := k.forget(ctx, s); err != nil {
				return true, n, err
			}
			n++
		}
	}
	return remaining, n, nil
}
