package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/objectstore"
	"e3/refstore"
)

// A Victim is an execution to be pruned, in the version that was judged.
type Victim struct {
	Inputs      objectstore.Hash
	ExecutionID string
	OutputHash  string // of a success

	version refstore.Version
}

// Victim returns e as an execution to be pruned.
func (e *Execution) Victim() Victim {
	return Victim{Inputs: e.Key.Inputs, ExecutionID: e.ExecutionID, OutputHash: e.OutputHash, version: e.version}
}

// pruneWindow is how far ahead a tombstone is dated until its execution is removed. Until then a process may still
// find the execution; a collection spares the outputs of executions that were pruned after such a process began. If
// pruning is interrupted, the tombstone keeps this date.
const pruneWindow = time.Hour

// Prune removes executions of a task, with their logs, and returns how many. Tombstones come first, dated no earlier
// than the removal; the generation is open meanwhile. An execution stays if it has changed since it became a victim, is
// pinned, runs, or is claimed by another process. Prunes of one task wait for each other. Nothing is synced: after a
// loss of power some executions may be back.
func (c *Curator) Prune(ctx context.Context, task objectstore.Hash, victims []Victim, by, reason string) (n int, err error) {
	return c.pruneTask(ctx, task, victims, by, reason, false)
}

// Remove prunes one execution, even if it is pinned. It returns false if another process has changed, removed or
// claimed it.
func (c *Curator) Remove(ctx context.Context, task objectstore.Hash, v Victim, by, reason string) (bool, error) {
	n, err := c.pruneTask(ctx, task, []Victim{v}, by, reason, true)
	return n == 1, err
}

// Bury gives executions of a task that are not on record the tombstones that they lack. An execution that is on
// record stays.
func (c *Curator) Bury(ctx context.Context, task objectstore.Hash, lost []Victim, by, reason string) error {
	_, err := c.pruneTask(ctx, task, lost, by, reason, true)
	return err
}

func (c *Curator) pruneTask(ctx context.Context, task objectstore.Hash, victims []Victim, by, reason string, evenPinned bool) (n int, err error) {
	if len(victims) == 0 {
		return 0, nil
	}
	claim, err := c.claims.TryClaim(ctx, pruneClaim(task), nil)
	for pause := c.polling("which removes executions of task " + task.String()); errors.Is(err, refstore.ErrClaimed); {
		if err := pause.wait(ctx); err != nil {
			return 0, err
		}
		claim, err = c.claims.TryClaim(ctx, pruneClaim(task), nil)
	}
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
		if err := c.putTombstones(ctx, task, newTombstones(victims, at.Add(pruneWindow), by, reason), nil); err != nil {
			return n, err
		}
		marked := c.now()
		var gone []Victim
		spared := map[string]bool{}
		for len(victims) > 0 && err == nil && c.now().Sub(marked) < pruneWindow/2 { // later victims get a new date
			v := victims[0]
			switch err = c.prune(ctx, Key{Task: task, Inputs: v.Inputs}, &v, evenPinned); {
			case err == nil:
				n++
				gone = append(gone, v)
			case errors.Is(err, refstore.ErrNotFound): // another process has pruned it
				gone, err = append(gone, v), nil
			case errors.Is(err, errSpared):
				spared[v.ExecutionID], err = true, nil
			default:
				err = fmt.Errorf("prune execution %s: %w", v.ExecutionID, err)
				continue // it may be gone, so its tombstone stays
			}
			victims = victims[1:]
		}
		after, stop := c.bound(context.WithoutCancel(ctx))
		at, clockErr := c.sessionNow(after)
		if clockErr == nil {
			clockErr = c.putTombstones(after, task, newTombstones(gone, at, by, reason), spared)
		}
		stop()
		if err = errors.Join(err, clockErr); err != nil {
			return n, err
		}
	}
	return n, nil
}

// sessionNow is the time by the clock that dates sessions. Where all machines share that clock, it also dates
// tombstones, because a collector compares the two.
func (c *Curator) sessionNow(ctx context.Context) (time.Time, error) {
	if clock, ok := c.claims.(refstore.SessionClock); ok {
		return clock.SessionNow(ctx)
	}
	return c.now(), nil
}

// errSpared says that a victim stays.
var errSpared = errors.New("it stays")

// prune deletes the record and its logs. With evenPinned, a pin does not spare it.
func (c *Curator) prune(ctx context.Context, k Key, v *Victim, evenPinned bool) error {
	claim, err := c.claims.TryClaim(ctx, executionClaim(v.ExecutionID), nil)
	if errors.Is(err, refstore.ErrClaimed) {
		return errSpared
	}
	if err != nil {
		return err
	}
	defer claim.Unlock()
	if !evenPinned {
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
	// Also if the record was gone: its pruner may have died before this step.
	if err := c.removeLogs(ctx, k, v.ExecutionID); err != nil {
		return err
	}
	return err
}
