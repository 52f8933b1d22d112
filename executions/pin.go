package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

const pins = "PIN" // the partition

func pinKey(id string) refstore.Key { return refstore.Key{Partition: pins, Sort: id} }

// Pin is a recorded pin.
type Pin struct {
	ExecutionID string
	Key         Key
	record.Pin
}

// Pins yields the pins in the order of their executions' ids. A pin that cannot be read comes with its id and an
// error that wraps ErrMalformed, and does not end the list; any other error does.
func (s *Store) Pins(ctx context.Context) iter.Seq2[Pin, error] {
	return func(yield func(Pin, error) bool) {
		for rec, err := range s.records.List(ctx, refstore.Query{Partition: pins}) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				yield(Pin{}, err)
				return
			}
			if !yield(decodePin(rec, err)) {
				return
			}
		}
	}
}

// decodePin decodes a pin, or returns the error of reading it.
func decodePin(rec refstore.Record, err error) (Pin, error) {
	p := Pin{ExecutionID: rec.Key.Sort}
	var value *record.Pin
	if err == nil {
		value, err = record.DecodePin(rec.Value)
	}
	if err == nil {
		p.Pin = *value
		p.Key.Task, err = objectstore.ParseHash(value.Task)
	}
	if err == nil {
		p.Key.Inputs, err = objectstore.ParseHash(value.Inputs)
	}
	if err != nil {
		err = fmt.Errorf("pin of execution %s: %w: %w", rec.Key.Sort, ErrMalformed, err)
	}
	return p, err
}

// Pin keeps an execution from being pruned until Unpin. It returns false if the execution is already pinned with this
// note or, if note is empty, with any note. The pin survives power loss if the store supports that.
func (c *Curator) Pin(ctx context.Context, k Key, id, by, note string) (changed bool, err error) {
	claim, err := c.hold(ctx, k, id) // pruning holds the same claim
	switch {
	case err == nil:
		defer claim.Unlock()
	case !errors.Is(err, errAlive): // a running execution is not pruned
		return false, err
	}
	if _, err := c.Get(ctx, k, id); err != nil {
		return false, err
	}
	pin := record.Pin{Task: k.Task.String(), Inputs: k.Inputs.String(), By: by, At: c.now(), Note: note}
	put, _ := c.durably()
	for {
		rec, err := c.records.Get(ctx, pinKey(id))
		switch {
		case err == nil:
			if old, err := decodePin(rec, nil); err == nil && old.Key == k && (note == "" || note == old.Note) {
				return false, nil
			}
		case !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged):
			return false, err
		}
		_, err = put(ctx, refstore.Record{Key: pinKey(id), Value: pin.Encode(), Version: rec.Version})
		if !errors.Is(err, refstore.ErrConflict) {
			return err == nil, err
		}
	}
}

// Unpin removes a pin. It returns false if there is none.
func (c *Curator) Unpin(ctx context.Context, id string) (changed bool, err error) {
	for {
		rec, err := c.records.Get(ctx, pinKey(id))
		if err == nil || errors.Is(err, refstore.ErrDamaged) {
			err = c.records.Delete(ctx, rec.Key, rec.Version)
		}
		switch {
		case errors.Is(err, refstore.ErrNotFound):
			return false, nil
		case !errors.Is(err, refstore.ErrConflict):
			return err == nil, err
		}
	}
}
