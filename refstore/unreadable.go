package refstore

import (
	"context"
	"errors"
	"iter"
)

// Unreadable is a store that replaces the error of a damaged record by a value that does not decode. It is for
// readers that refuse such a value already, report it, and go on with others. Do not use it where a value is taken as
// it is.
type Unreadable struct{ Store }

// Get implements [Store].
func (u Unreadable) Get(ctx context.Context, key Key, fields ...string) (Record, error) {
	return unreadable(u.Store.Get(ctx, key, fields...))
}

// List implements [Store].
func (u Unreadable) List(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for rec, err := range u.Store.List(ctx, q) {
			if !yield(unreadable(rec, err)) {
				return
			}
		}
	}
}

func unreadable(rec Record, err error) (Record, error) {
	if errors.Is(err, ErrDamaged) {
		rec.Value, rec.Fields, err = []byte(err.Error()), nil, nil
	}
	return rec, err
}
