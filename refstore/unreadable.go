package refstore

import (
	"context"
	"errors"
	"iter"
)

// Unreadable is a store in which a record that is damaged has a value that nothing decodes, in place of the error. It is for readers that refuse
// such a value already, tell of it, and go on with others. A value must not be taken as it is there.
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
