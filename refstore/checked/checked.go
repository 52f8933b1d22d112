// Package checked adds checksums to records, so that damage is detected: reading a damaged record returns an error that
// wraps [refstore.ErrDamaged] and names the record (doc/design.md, "Sums"). It decorates any record store. seal.go
// defines the bytes; kind.go defines the place of the sum in each kind of record.
package checked

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"e3/refstore"
)

// Records are records with sums. Every writer to the backend must go through this package.
type Records struct {
	store refstore.Durable
	// atomic means that value and fields are written together: no reader sees only some of them, even after a crash.
	atomic bool
}

var _ refstore.Durable = (*Records)(nil)

// New returns the records of a backend, which writes value and fields of a record together if atomic is set.
func New(store refstore.Durable, atomic bool) *Records { return &Records{store, atomic} }

// Get implements [refstore.Store].
func (r *Records) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if r.apart(key.Partition) && key.Partition == settings {
		return r.getListed(ctx, key, fields)
	}
	return r.get(ctx, key, fields)
}

func (r *Records) get(ctx context.Context, key refstore.Key, fields []string) (refstore.Record, error) {
	k := kindOf(key.Partition)
	last, settled := refstore.Absent, false
	for {
		rec, err := r.store.Get(ctx, key, k.ask(fields)...)
		if errors.Is(err, refstore.ErrNotFound) && r.apart(key.Partition) {
			gone, again, failed := r.missed(ctx, key)
			switch {
			case failed != nil:
				return refstore.Record{}, failed
			case gone:
				return damaged(refstore.Record{Key: key}, errGone)
			case again:
				continue
			}
		}
		if err != nil {
			return rec, err
		}
		out, bad := k.open(rec, fields)
		if bad == nil {
			return out, nil
		}
		if out, ok := openElsewhere(rec, settled); ok {
			return out, nil
		}
		// A record that changes twice during the read may show a value and fields that do not match, once.
		if rec.Version == last && (settled || !r.settle(ctx, key)) {
			return damaged(out, bad)
		}
		settled = rec.Version == last
		last = rec.Version
	}
}

// settle waits for a write in place that may be in progress. It reports whether it is worth reading the record again.
func (r *Records) settle(ctx context.Context, key refstore.Key) bool {
	s, ok := r.store.(interface {
		Settle(ctx context.Context, key refstore.Key) error
	})
	return ok && s.Settle(ctx, key) == nil
}

// damaged returns the intact parts of a record, and an error with the reason why the rest is missing.
func damaged(rec refstore.Record, why error) (refstore.Record, error) {
	return rec, fmt.Errorf("record %q is %w: %w", rec.Key, refstore.ErrDamaged, why)
}

// Put implements [refstore.Store].
func (r *Records) Put(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	return r.put(ctx, rec, r.store.Put)
}

// PutSync is Put, durable when it returns.
func (r *Records) PutSync(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	return r.put(ctx, rec, r.store.PutSync)
}

func (r *Records) put(ctx context.Context, rec refstore.Record, put func(context.Context, refstore.Record) (refstore.Version, error)) (refstore.Version, error) {
	if rec.Validate() != nil {
		return put(ctx, rec) // the caller's read reports the damage
	}
	k := kindOf(rec.Key.Partition)
	old, err := r.replaced(ctx, k, rec)
	if err != nil {
		return refstore.Absent, err
	}
	sealed := k.close(rec, old)
	if !r.atomic && k == own && witnessed(rec.Key.Partition) {
		sealed.Fields = append(sealed.Fields, refstore.Field{Name: refstore.WitnessField, Value: enclose(rec.Key, refstore.WitnessField, nil, seal{bare: true})})
	}
	v, err := put(ctx, sealed)
	if err == nil && rec.Version == refstore.Absent && r.apart(rec.Key.Partition) {
		err = r.attest(ctx, rec.Key)
	}
	return v, err
}

// replaced reads the record that a put replaces, if the new seal depends on it; otherwise nil.
func (r *Records) replaced(ctx context.Context, k kind, rec refstore.Record) (*refstore.Record, error) {
	if !k.sealed() || rec.Version == refstore.Absent {
		return nil, nil
	}
	if _, given := rec.Field(k.sealField()); r.atomic && (given || k == beside && !carries(rec.Key.Partition)) {
		return nil, nil
	}
	ask := []string{k.sealField()}
	if k == within {
		ask = []string{"output", fieldDetail}
	}
	old, err := r.store.Get(ctx, rec.Key, ask...)
	if errors.Is(err, refstore.ErrNotFound) || err == nil && old.Version != rec.Version {
		return nil, fmt.Errorf("put %q: %w", rec.Key, refstore.ErrConflict)
	}
	if errors.Is(err, refstore.ErrDamaged) { // a damaged record is replaced
		return nil, nil
	}
	return &old, err
}

// Delete implements [refstore.Store].
func (r *Records) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if r.apart(key.Partition) {
		return r.deleteApart(ctx, key, v)
	}
	return r.store.Delete(ctx, key, v)
}

// List implements [refstore.Store].
func (r *Records) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if r.apart(q.Partition) {
		return r.listApart(ctx, q)
	}
	k := kindOf(q.Partition)
	if k == plain || q.KeysOnly {
		return r.store.List(ctx, q)
	}
	ask := q
	ask.Fields = k.ask(q.Fields)
	return func(yield func(refstore.Record, error) bool) {
		for rec, err := range r.store.List(ctx, ask) {
			if err == nil {
				var bad error
				read := rec
				if rec, bad = k.open(read, q.Fields); bad != nil {
					if out, ok := openElsewhere(read, false); ok {
						rec = out
					} else {
						rec, err = r.Get(ctx, rec.Key, q.Fields...)
					}
				}
			}
			if errors.Is(err, refstore.ErrNotFound) {
				continue // deleted meanwhile
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}
