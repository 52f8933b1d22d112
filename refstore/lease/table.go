package lease

import (
	"context"
	"errors"
	"time"

	"e3/refstore"
)

// A table is the store that holds the records of sessions, locks and claims, and the clock that dates them.
type table struct {
	store refstore.Store
	o     Options
}

// read gets a record that may be absent.
func (t *table) read(ctx context.Context, key refstore.Key) (refstore.Record, error) {
	r, err := t.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return refstore.Record{Key: key}, nil
	}
	return r, err
}

// creator is a store that retries a request without an answer, and reports it: late says that an earlier try of the
// creation may still arrive, and recreate the record after its deletion.
type creator interface {
	Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error)
}

// put writes the record of a hold. late is as in creator.
func (t *table) put(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	if s, ok := t.store.(creator); ok && r.Version == refstore.Absent {
		return s.Create(ctx, r)
	}
	v, err = t.store.Put(ctx, r)
	return v, false, err
}

// remove deletes a record that no other process writes, and returns whether it existed.
func (t *table) remove(ctx context.Context, key refstore.Key) (was bool, err error) {
	there, err := t.read(ctx, key)
	if err != nil || there.Version == refstore.Absent {
		return false, err
	}
	return true, t.store.Delete(ctx, key, there.Version)
}

// now reads the objects' clock; its errors name the clock.
func (t *table) now(ctx context.Context) (time.Time, error) { return t.o.Clock(ctx) }
