package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/refstore"
)

// A Keeper maintains queues on behalf of all processes: it makes jobs of lost workers claimable again, delivers
// cancellations, repairs indexes, and removes old finished jobs. Only one of the tending processes at a time does the
// work that reads a whole queue.
type Keeper struct {
	*records
	held  *held
	index *index

	mu      sync.Mutex
	turns   map[refstore.Key]sighting
	rosters map[string]roster // by queue
}

// Tend runs maintenance until ctx ends or the session is lost (refstore.ErrLost). It makes orphans of the jobs of lost
// workers, completes what crashes have interrupted, removes old finished jobs, and delivers cancellations to this
// process's leases. If this process has no jobs at the end, it removes its holder records. fault receives failures,
// which are retried.
func (k *Keeper) Tend(ctx context.Context, queues []string, fault func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer k.held.leave(ctx)
	told, err := k.toldToCancel(ctx, queues)
	if err != nil {
		return err
	}
	reap := reapPace
	if k.watcher == nil {
		reap = reapPacePolled
	}
	reaps, looks, repairs := newPacer(reap), newPacer(k.o.MostPace), newPacer(repairPace)
	defer reaps.Stop()
	defer looks.Stop()
	defer repairs.Stop()
	do := func(f func(queue string) error) {
		for _, queue := range queues {
			if err := f(queue); err != nil && ctx.Err() == nil {
				fault(err)
			}
		}
	}
	looked := k.o.Now() // last look for requests to cancel
	do(func(queue string) error { return errors.Join(k.Reap(ctx, queue), k.Repair(ctx, queue)) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.held.members.Lost():
			return k.held.lost(ctx)
		case <-told:
			do(func(queue string) error { return k.cancels(ctx, queue) })
		case <-looks.C:
			if now := k.o.Now(); k.watcher != nil || k.held.busy() || now.Sub(looked) >= idleCancels {
				looked = now
				do(func(queue string) error { return k.cancels(ctx, queue) })
			}
			looks.Reset()
		case <-reaps.C:
			do(func(queue string) error { return k.Reap(ctx, queue) })
			reaps.Reset()
		case <-repairs.C:
			do(func(queue string) error { return k.upkeep(ctx, queue) })
			if repairs.pace = repairPace; k.watcher == nil && k.index.work.age(k.o.Now()) > repairPace {
				repairs.pace = idleRepair
			}
			repairs.Reset()
		}
	}
}

// FollowCancels is the part of [Keeper.Tend] that this process's own jobs need, if other processes tend the queues. It
// delivers cancellations to this process's leases in any queue; in these queues at once, if the store notifies. It ends
// like Tend.
func (k *Keeper) FollowCancels(ctx context.Context, queues []string, fault func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer k.held.leave(ctx)
	told, err := k.toldToCancel(ctx, queues)
	if err != nil {
		return err
	}
	looks := newPacer(k.o.MostPace)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.held.members.Lost():
			return k.held.lost(ctx)
		case <-told:
		case <-looks.C:
			looks.Reset()
		}
		if err := k.ownCancels(ctx); err != nil && ctx.Err() == nil {
			fault(err)
		}
	}
}

// toldToCancel returns a channel that receives when there may be a cancellation in these queues; it never does if the
// store does not notify.
func (k *Keeper) toldToCancel(ctx context.Context, queues []string) (<-chan struct{}, error) {
	told := make(chan struct{}, 1)
	for _, queue := range queues {
		if err := ValidName(queue); err != nil {
			return nil, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
		}
		c, err := k.notified(ctx, partition(queue, "cancel"))
		if err != nil {
			return nil, fmt.Errorf("watch queue %s: %w", queue, err)
		}
		if c != nil {
			go func() {
				for range c {
					signal(told)
				}
			}()
		}
	}
	return told, nil
}

// upkeep repairs and cleans a queue, if it is this process's turn.
func (k *Keeper) upkeep(ctx context.Context, queue string) error {
	mine, err := k.turn(ctx, queue, "repair", repairPace)
	if err == nil && mine {
		err = k.Repair(ctx, queue)
	}
	old, cleanErr := k.turn(ctx, queue, "clean", cleanPace)
	if cleanErr == nil && old {
		_, cleanErr = k.clean(ctx, queue, k.o.Now().Add(-k.o.Keep))
	}
	return errors.Join(err, cleanErr)
}

// turn tells whether this process is to do periodic work that only one process does: the turn's record has not
// changed for every, by this process's clock.
func (k *Keeper) turn(ctx context.Context, queue, work string, every time.Duration) (bool, error) {
	key := turnKey(queue, work)
	r, err := k.store.Get(ctx, key)
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return false, err
	}
	now := k.o.Now()
	k.mu.Lock()
	seen, ok := k.turns[key]
	if !ok || seen.version != r.Version {
		k.turns[key] = sighting{r.Version, now}
	}
	k.mu.Unlock()
	if r.Version != refstore.Absent && (!ok || seen.version != r.Version || now.Sub(seen.at) < every) {
		return false, nil
	}
	v, err := k.store.Put(ctx, refstore.Record{Key: key, Value: encode(turnRecord{At: TimeOf(now)}), Version: r.Version})
	if errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt) {
		return false, nil
	}
	if err == nil {
		k.mu.Lock()
		k.turns[key] = sighting{v, now}
		k.mu.Unlock()
	}
	return err == nil, err
}
