package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// A Generation tells whether answers that were true once may have changed. Derived
// speed-ups remember its value and are believed only while it stands.
//
// What is proven is always of one form: "the latest success of this key is E, with
// output O". A first success under a key disturbs no such proof, so ordinary runs leave the
// generation alone and workspaces do not slow each other down. What can disturb one
// — a second success under a key, an import, a retired or removed execution,
// a deleted object — happens between Begin and its end.
type Generation struct {
	records refstore.Store
	locks   refstore.Locker
}

// NewGeneration returns the repository's generation.
func NewGeneration(records refstore.Store, locks refstore.Locker) *Generation {
	return &Generation{records: records, locks: locks}
}

var generationKey = refstore.Key{Partition: "INDEX/state", Sort: "generation"}

const generationLock = "generation"

// Begin opens a batch that may disturb proofs. The generation changes before it returns,
// and while the batch is open nobody can make a proof; the lock that says so is
// released by end or by the death of the process.
func (g *Generation) Begin(ctx context.Context) (end func(), err error) {
	lock, err := g.lock(ctx, refstore.Shared)
	if err != nil {
		return nil, err
	}
	if err := g.change(ctx); err != nil {
		lock.Unlock()
		return nil, err
	}
	return func() { lock.Unlock() }, nil
}

func (g *Generation) change(ctx context.Context) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("change generation: %w", err)
	}
	for {
		old, err := g.records.Get(ctx, generationKey)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("change generation: %w", err)
		}
		_, err = g.records.Put(ctx, refstore.Record{Key: generationKey, Value: []byte(id.String() + "\n"), Version: old.Version})
		if err == nil || !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// Read returns the generation's value. quiet is false while a batch is open: then the
// value must not be used for a proof.
func (g *Generation) Read(ctx context.Context) (value string, quiet bool, err error) {
	lock, err := g.locks.TryLock(ctx, generationLock, refstore.Exclusive, nil)
	var locked *refstore.LockedError
	switch {
	case errors.As(err, &locked):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read generation: %w", err)
	}
	defer lock.Unlock()
	rec, err := g.records.Get(ctx, generationKey)
	if errors.Is(err, refstore.ErrNotFound) {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read generation: %w", err)
	}
	return string(rec.Value), true, nil
}

// Peek is Read without any lock, for those who only look: what it returns as quiet was so
// at some moment of the call.
func (g *Generation) Peek(ctx context.Context) (value string, quiet bool, err error) {
	get := func() (string, error) {
		rec, err := g.records.Get(ctx, generationKey)
		if errors.Is(err, refstore.ErrNotFound) {
			return "", nil
		}
		return string(rec.Value), err
	}
	before, err := get()
	if err != nil {
		return "", false, fmt.Errorf("read generation: %w", err)
	}
	_, held, err := g.locks.Holder(ctx, generationLock)
	if err != nil || held {
		return "", false, err
	}
	after, err := get()
	return after, err == nil && before == after, err
}

// lock takes the generation's lock. Readers hold it for microseconds, so that waiting is short.
func (g *Generation) lock(ctx context.Context, mode refstore.Mode) (refstore.Lock, error) {
	for {
		lock, err := g.locks.TryLock(ctx, generationLock, mode, nil)
		var locked *refstore.LockedError
		if err == nil || !errors.As(err, &locked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
