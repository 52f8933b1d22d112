package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/objectstore"
	"e3/refstore"
)

// A Victim is an execution that is to be pruned, as it was when that was decided.
type Victim struct {
	Inputs      objectstore.Hash
	ExecutionID string
	OutputHash  string // of a success

	version refstore.Version
}

// Victim returns e as one that is to be pruned.
func (e *Execution) Victim() Victim {
	return Victim{Inputs: e.Key.Inputs, ExecutionID: e.ExecutionID, OutputHash: e.OutputHash, version: e.version}
}

// pruneWindow is how far ahead a tombstone is dated until its execution is gone: somebody may find the execution until
// then, and what went since he began is spared. If pruning is cut off the date stays.
const pruneWindow = time.Hour

// Prune takes executions of a task off the record, with their logs, and returns how many. Tombstones come first, and are dated no earlier
// than the moment at which the execution went; the generation is open meanwhile. An execution stays that has changed since it
// became a victim, that is pinned, that runs, or that somebody changes. Who prunes the same task is waited for. Nothing is
// synced: after a loss of power some may be back.
func (c *Curator) Prune(ctx context.Context, task objectstore.Hash, victims []Victim, by, reason string) (n int, err error) {
	return c.takeOut(ctx, task, victims, by, reason, false)
}

// Remove is Prune of one execution that must not stay: a pin does not keep it. It returns false if somebody has changed or
// removed it, or holds it.
func (c *Curator) Remove(ctx context.Context, task objectstore.Hash, v Victim, by, reason string) (bool, error) {
	n, err := c.takeOut(ctx, task, []Victim{v}, by, reason, true)
	return n == 1, err
}

func (c *Curator) takeOut(ctx context.Context, task objectstore.Hash, victims []Victim, by, reason string, pinned bool) (n int, err error) {
	if len(victims) == 0 {
		return 0, nil
	}
	claim, _, err := c.await(ctx, func() (refstore.Lock, error) { return c.claims.TryClaim(ctx, pruneClaim(task), nil) })
	if err != nil {
		return 0, err
	}
	defer claim.Unlock()
	end, err := c.generation.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	for len(victims) > 0 && err == nil {
		at, err := c.sessionNow(ctx)
		if err != nil {
			return n, err
		}
		if err := c.mark(ctx, task, newTombstones(victims, at.Add(pruneWindow), by, reason), nil); err != nil {
			return n, err
		}
		marked := c.now()
		var gone []Victim
		spared := map[string]bool{}
		for len(victims) > 0 && err == nil && c.now().Sub(marked) < pruneWindow/2 { // or else they are dated anew
			v := victims[0]
			switch err = c.prune(ctx, Key{Task: task, Inputs: v.Inputs}, &v, pinned); {
			case err == nil:
				n++
				gone = append(gone, v)
			case errors.Is(err, refstore.ErrNotFound): // another has pruned it
				gone, err = append(gone, v), nil
			case errors.Is(err, errSpared):
				spared[v.ExecutionID], err = true, nil
			default:
				err = fmt.Errorf("prune execution %s: %w", v.ExecutionID, err)
				continue // whether it is gone is not known: its tombstone stays
			}
			victims = victims[1:]
		}
		after, stop := c.bound(context.WithoutCancel(ctx))
		at, clockErr := c.sessionNow(after)
		if clockErr == nil {
			clockErr = c.mark(after, task, newTombstones(gone, at, by, reason), spared)
		}
		stop()
		if err = errors.Join(err, clockErr); err != nil {
			return n, err
		}
	}
	return n, nil
}

// sessionNow is the time by the clock by which sessions begin. Tombstones are dated by it where it is one for all machines: a
// collector compares the two.
func (c *Curator) sessionNow(ctx context.Context) (time.Time, error) {
	if clock, ok := c.claims.(refstore.SessionClock); ok {
		return clock.SessionNow(ctx)
	}
	return c.now(), nil
}

// errSpared says that a victim must stay.
var errSpared = errors.New("it stays")

// prune deletes the record and its logs. pinned tells whether a pin is no reason to spare it.
func (c *Curator) prune(ctx context.Context, k Key, v *Victim, pinned bool) error {
	claim, err := c.claims.TryClaim(ctx, executionClaim(v.ExecutionID), nil)
	if errors.Is(err, refstore.ErrClaimed) {
		return errSpared
	}
	if err != nil {
		return err
	}
	defer claim.Unlock()
	if !pinned {
		_, err = c.records.Get(ctx, pinKey(v.ExecutionID))
		switch {
		case err == nil, errors.Is(err, refstore.ErrDamaged):
			return errSpared
		case !errors.Is(err, refstore.ErrNotFound):
			return err
		}
	}
	err = c.records.Delete(ctx, recordKey(k, v.ExecutionID), v.version)
	if errors.Is(err, refstore.ErrConflict) {
		return errSpared
	}
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return err
	}
	if left := c.removeLogs(ctx, k, v.ExecutionID); left != nil { // of one that was gone, as well: who pruned it may not have come to them
		return left
	}
	return err
}
