package executions

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/refstore"
)

// keyClaim is the claim on a key, with the id of its execution.
type keyClaim struct {
	lock refstore.Lock
	id   string
}

// claimKey takes the claim on a key for a new execution, waiting for the holder. The new id is greater than after. The
// claim does not name an execution that is made elsewhere, because this process only waits for its job. When claimKey
// returns, no execution that a dead holder began can become a success.
func (x *Executor) claimKey(ctx context.Context, key Key, req *Request, after string) (f *keyClaim, waited bool, err error) {
	claim := key.claim()
	stop := func() {}
	for pause := x.polling(""); ; waited = true {
		if f, err = x.tryKey(ctx, claim, after); !errors.Is(err, refstore.ErrClaimed) {
			break
		}
		if !waited {
			stop = x.waits(ctx, req, Wait{Key: key})
		}
		if err = pause.wait(ctx); err != nil {
			waited = true
			break
		}
	}
	stop()
	if err != nil {
		return nil, waited, err
	}
	previous := f.lock.Previous()
	if previous == nil {
		return f, waited, nil
	}
	if err := x.fence(ctx, key, req.Inputs, previous); err != nil {
		// Releasing the claim would lose the ids in it. So it is kept for the next request in this process; when the
		// process ends, other processes find it unchanged.
		x.unfenced.Store(claim, f)
		return nil, waited, fmt.Errorf("take over from a process that lost its lease: %w", err)
	}
	return f, waited, nil
}

// tryKey is one try of claimKey.
func (x *Executor) tryKey(ctx context.Context, claim [32]byte, after string) (*keyClaim, error) {
	if x.leased != nil {
		if kept, ok := x.unfenced.LoadAndDelete(claim); ok {
			return kept.(*keyClaim), nil
		}
	}
	id, err := NewIDAfter(after) // anew for each try, so that the latest is the greatest
	if err != nil {
		return nil, err
	}
	var text []byte
	if x.opts.Remote == nil {
		text = []byte(id)
	}
	lock, err := x.claims.TryClaim(ctx, claim, text)
	return &keyClaim{lock: lock, id: id}, err
}

// mostReleasing bounds the claims that are released after their requests have returned.
const mostReleasing = 64

// release releases the claim on a key. After a success no process needs the claim any more, so where the release is a
// request, only the end of the session waits for it.
func (x *Executor) release(claim *keyClaim, succeeded bool) {
	if claim == nil { // it was not taken again
		return
	}
	if succeeded && x.leased != nil {
		select {
		case x.releasing <- struct{}{}:
			go func() {
				claim.lock.Unlock()
				<-x.releasing
			}()
			return
		default:
		}
	}
	claim.lock.Unlock()
}

// A claim is an attempt's hold on its execution in the stores: the lock that shows that the attempt is alive, and the
// version of the record. A process that gives the execution up changes that version, so that a late record conflicts.
type claim struct {
	*assignment
	announced bool          // the execution is on record as running
	lock      refstore.Lock // nil: not announced, or made for a job
	version   refstore.Version
}

// announce records a command that lives long enough to be seen. It leaves the execution unannounced if another process
// has given it up: its end will be that of another execution.
func (c *claim) announce(ctx context.Context, p process.ID) error {
	if err := c.hold(ctx); err != nil {
		return err
	}
	status := c.status(record.Running)
	status.PID, status.PIDStartTime, status.BootID = int64(p.PID), int64(p.StartTime), p.BootID
	var err error
	c.version, err = c.x.records.Put(ctx, refstore.Record{
		Key: recordKey(c.key, c.id), Value: status.Encode(), Fields: c.runningFields(),
	})
	if err == nil {
		c.announced = true
		return nil
	}
	if given, _ := c.givenUp(ctx); given != nil {
		c.abandon()
		return nil
	}
	return c.recordError(err)
}

// hold takes the execution's lock. An execution for a job needs none: the job, whose lease is its worker's, shows that it is
// alive.
func (c *claim) hold(ctx context.Context) error {
	if c.req.Job.Ref != "" {
		return nil
	}
	lock, err := c.x.claims.TryClaim(ctx, executionClaim(c.id), nil)
	if err != nil {
		return fmt.Errorf("claim execution %s: %w", c.id, err)
	}
	c.lock = lock
	return nil
}

// resume takes over an execution that is on record as running.
func (c *claim) resume(ctx context.Context, version refstore.Version) error {
	c.announced, c.version = true, version
	return c.hold(ctx)
}

// recordError explains why the record could not be written. Where claims are leases, or another worker can take the
// job over, a conflict means that this process was presumed dead.
func (c *claim) recordError(err error) error {
	if (c.x.leased != nil || c.req.Job.Ref != "") && errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("execution %s was given up by another process, so its result does not count: %w: %w", c.id, refstore.ErrLost, err)
	}
	return fmt.Errorf("record execution %s: %w", c.id, err)
}

// givenUp returns this execution if another process has recorded its end; nil if none has, or if this process does
// not hold its lease now.
func (c *claim) givenUp(ctx context.Context) (*Execution, error) {
	if c.x.leased == nil || c.req.Job.Ref != "" || c.x.leaseLoss(ctx) != nil {
		return nil, nil
	}
	rec, err := c.x.records.Get(ctx, recordKey(c.key, c.id))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := decode(c.key, rec)
	if err != nil || e.State != record.Error || !Stale(e.Message) {
		return nil, err
	}
	return e, c.x.leased.Confirm(ctx)
}

// release ends the claim at the end of the attempt.
func (c *claim) release() {
	if c.lock != nil {
		c.lock.Unlock()
	}
}

// abandon releases the claim on an execution that another process has given up. The attempt may go on under another id.
func (c *claim) abandon() {
	c.release()
	c.announced, c.lock, c.version = false, nil, refstore.Absent
}
