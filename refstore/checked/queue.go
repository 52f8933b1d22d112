package checked

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/refstore"
)

// files is what a backend in files does for queues, beside keeping records (queue.Files).
type files interface {
	Move(ctx context.Context, from refstore.Key, v refstore.Version, rec refstore.Record) (refstore.Version, error)
	Alias(ctx context.Context, key, alias refstore.Key) error
	PutUnaliased(ctx context.Context, rec refstore.Record, alias refstore.Key) (v refstore.Version, gone bool, err error)
	WatchNames(ctx context.Context, partition string) (
		c <-chan struct{}, made func() (sorts []string, all bool), err error,
	)
}

// Files does for queues what a backend in files does, for records with sums.
type Files struct{ files }

// NewFiles returns what a backend does for queues whose records have sums.
func NewFiles(backend files) Files { return Files{backend} }

// Move moves a record whose sum is in its value.
func (f Files) Move(
	ctx context.Context, from refstore.Key, v refstore.Version, rec refstore.Record,
) (refstore.Version, error) {
	for _, key := range []refstore.Key{from, rec.Key} {
		if kindOf(key.Partition).sealed() || witnessed(key.Partition) {
			return refstore.Absent, fmt.Errorf("move %q: %w", from, errors.ErrUnsupported)
		}
	}
	return f.files.Move(ctx, from, v, closed(rec))
}

// Alias makes an alias whose reader knows where its sum is from.
func (f Files) Alias(ctx context.Context, key, alias refstore.Key) error {
	if !readable(key, alias) {
		return fmt.Errorf("alias of %q: %w", key, errors.ErrUnsupported)
	}
	return f.files.Alias(ctx, key, alias)
}

// PutUnaliased replaces a record that has, or had, such an alias.
func (f Files) PutUnaliased(
	ctx context.Context, rec refstore.Record, alias refstore.Key,
) (v refstore.Version, gone bool, err error) {
	if !readable(rec.Key, alias) {
		return refstore.Absent, false, fmt.Errorf("put %q: %w", rec.Key, errors.ErrUnsupported)
	}
	return f.files.PutUnaliased(ctx, closed(rec), alias)
}

// readable reports whether a reader of an alias knows where the sum is from.
func readable(key, alias refstore.Key) bool {
	other, _, ok := elsewhere(alias)
	return ok && other == key
}

// closed is a record with its sum, unless the backend refuses it anyway.
func closed(rec refstore.Record) refstore.Record {
	if rec.Validate() != nil {
		return rec
	}
	return kindOf(rec.Key.Partition).close(rec, nil)
}

// batcher writes and reads many records in one request (queue.Batcher).
type batcher interface {
	ReadBatch(ctx context.Context, keys []refstore.Key) ([]refstore.Record, error)
	WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error
}

// Batch writes many records with sums in one request.
type Batch struct{ backend batcher }

// NewBatch returns the batches of a backend whose records have sums.
func NewBatch(backend batcher) Batch { return Batch{backend} }

// ReadBatch reads records whose sum is in their value, and leaves damaged ones out.
func (b Batch) ReadBatch(ctx context.Context, keys []refstore.Key) (records []refstore.Record, err error) {
	sums, err := b.backend.ReadBatch(ctx, keys)
	for _, rec := range sums {
		if open, bad := kindOf(rec.Key.Partition).open(rec, nil); bad == nil {
			records = append(records, open)
		}
	}
	return records, err
}

// WriteBatch writes records whose sum is in their value.
func (b Batch) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	sealed := make([]refstore.Record, len(puts))
	keys := slices.Clone(gone)
	for i, rec := range puts {
		sealed[i] = kindOf(rec.Key.Partition).close(rec, nil)
		keys = append(keys, rec.Key)
	}
	for _, key := range keys {
		if kindOf(key.Partition).sealed() || witnessed(key.Partition) {
			return fmt.Errorf("write %q among others: %w", key, errors.ErrUnsupported)
		}
	}
	return b.backend.WriteBatch(ctx, sealed, gone)
}
