package executions

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/refstore"
)

// A claim is what an attempt has of its execution in the stores: the lock that shows that it is alive, and the version
// of its record. A process that gives the execution up changes that version, so that a late record conflicts.
type claim struct {
	*assignment
	adopted   bool          // a dead process began the execution
	announced bool          // it is on record as running
	lock      refstore.Lock // nil: it is not announced, or another process checks it
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

// hold takes the execution's lock. That of an adopted execution may still be held by a process that checks it, or by its
// first process, which is asleep and presumed dead. Then only the job shows that the execution is alive.
func (c *claim) hold(ctx context.Context) error {
	lock, err := c.x.claims.TryClaim(ctx, executionClaim(c.id), nil)
	if c.adopted && errors.Is(err, refstore.ErrClaimed) {
		return nil
	}
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

// replaces makes a record the next version of the execution's.
func (c *claim) replaces(rec refstore.Record) refstore.Record {
	rec.Key, rec.Version = recordKey(c.key, c.id), c.version
	return rec
}

// recordError explains why the record could not be written. Where claims are leases, or another worker can take the
// job over, a conflict means that this process was presumed dead.
func (c *claim) recordError(err error) error {
	if (c.x.leased != nil || c.req.Job.Ref != "") && errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("execution %s was given up by another process, so its result does not count: %w: %w", c.id, refstore.ErrLost, err)
	}
	return fmt.Errorf("record execution %s: %w", c.id, err)
}

// givenUp returns this execution as another process has recorded its end, while this process still holds its lease, or
// has it again; nil if none has.
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
