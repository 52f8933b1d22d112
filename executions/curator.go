package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/record"
	"e3/refstore"
)

// A Curator changes what is on record otherwise than by executing: it closes what died, takes in, retires, pins and prunes. It is
// safe for concurrent use, by any number of processes on one repository.
//
// While it imports, prunes or pins an execution it holds the claim of it, as an e3 does whose execution runs.
type Curator struct {
	*Store
	claims     refstore.Locker
	generation *Generation
	now        func() time.Time
}

// NewCurator returns the curator of a store's executions.
func NewCurator(store *Store, locks refstore.Locker, now func() time.Time) *Curator {
	return &Curator{Store: store, claims: locks, generation: NewGeneration(store.records, locks), now: now}
}

// Begin opens the generation for a batch of imports (Generation.Begin).
func (c *Curator) Begin(ctx context.Context) (end func(), err error) { return c.generation.Begin(ctx) }

// errAlive says that the execution is somebody's who is at work on it.
var errAlive = errors.New("it is running")

// hold takes the claim of an execution. Another curator is waited for; of an execution that runs it
// returns errAlive.
func (c *Curator) hold(ctx context.Context, k Key, id string) (refstore.Lock, error) {
	const glances = 4 // who only asks whether it is alive holds the claim for an instant
	for try, pause := 1, time.Millisecond; ; try, pause = try+1, min(2*pause, 20*time.Millisecond) {
		lock, err := c.claims.TryClaim(executionClaim(id))
		if !errors.Is(err, refstore.ErrClaimed) {
			return lock, err
		}
		if try >= glances {
			here, err := c.look(ctx, k, id)
			if err != nil {
				return nil, err
			}
			if here.running() {
				return nil, errAlive
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// await takes a claim, waiting for its holder. Polling backs off to 20 ms: a claim is a kernel lock or a lease, and
// neither can call us.
func (c *Curator) await(ctx context.Context, claim [32]byte) (lock refstore.Lock, waited bool, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		lock, err := c.claims.TryClaim(claim)
		if err == nil || !errors.Is(err, refstore.ErrClaimed) {
			return lock, waited, err
		}
		waited = true
		select {
		case <-ctx.Done():
			return nil, waited, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// Alive tells whether somebody is at work on a running execution: its process
// holds the execution's claim for as long as it lives.
func (c *Curator) Alive(id string) (bool, error) {
	lock, err := c.claims.TryClaim(executionClaim(id))
	if errors.Is(err, refstore.ErrClaimed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	lock.Unlock()
	return false, nil
}

// Bury closes a running execution whose process is gone: it becomes an error, its logs
// stay (seed 003, "Crash Handling"). It returns false where somebody still works
// on it, or where it has ended in the meantime.
func (c *Curator) Bury(ctx context.Context, key Key, id string) (bool, error) {
	lock, err := c.claims.TryClaim(executionClaim(id))
	if errors.Is(err, refstore.ErrClaimed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	return c.bury(ctx, key, id)
}

// bury needs the execution's claim.
func (c *Curator) bury(ctx context.Context, key Key, id string) (bool, error) {
	rec, err := c.records.Get(ctx, recordKey(key, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e, err := decode(key, rec)
	if err != nil {
		return false, err
	}
	if e.State != record.Running {
		return false, nil
	}
	dead := e.Status
	dead.State = record.Error
	dead.Message = fmt.Sprintf("Process %d no longer running (stale execution)", e.PID)
	dead.CompletedAt = c.now()
	_, err = c.records.Put(ctx, refstore.Record{Key: recordKey(key, id), Value: dead.Encode(), Version: e.version})
	if errors.Is(err, refstore.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("close stale execution %s: %w", id, err)
	}
	return true, nil
}
