package approval

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"e3/refstore"
)

// An older e3 keeps blocks for one run of a task: they have no key, and end with the run. This version reads them,
// decides those of a running older e3, and closes those of dead runs. They are not migrated, because they do not say
// which content they were decided on.

// ListOld yields the blocks that an older e3 has made for a run, as List does.
func (b *Blocks) ListOld(ctx context.Context, ws, run string) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for rec, err := range b.list(ctx, oldPartition(ws), run+"/") {
			var found Block
			if err == nil {
				found, err = read(rec)
			}
			if !yield(found, err) || err != nil && !errors.Is(err, ErrMalformed) {
				return
			}
		}
	}
}

// CloseOld closes the pending blocks that an older e3 has made for a run that has ended. Decisions stay.
func (b *Blocks) CloseOld(ctx context.Context, ws, run string) error {
	for rec, err := range b.list(ctx, oldPartition(ws), run+"/") {
		for err == nil {
			var found Block
			if found, err = Decode(rec); err != nil || found.Status != Pending {
				err = nil // it does not wait, or cannot be read
				break
			}
			found.Status, found.At = Closed, b.clock()
			var moved bool
			if _, moved, err = b.put(ctx, &found, rec.Version); err != nil || moved {
				break
			}
			if rec, err = b.records.Get(ctx, rec.Key); errors.Is(err, refstore.ErrNotFound) {
				err = nil
				break
			}
		}
		if err != nil {
			return fmt.Errorf("close the blocks of run %s: %w", run, err)
		}
	}
	return nil
}

// RemoveOld removes the blocks that an older e3 has made for runs before a run. The caller holds the workspace, so none
// of these runs is at work.
func (b *Blocks) RemoveOld(ctx context.Context, ws, before string) error {
	if err := b.remove(ctx, oldPartition(ws), before+"/"); err != nil {
		return fmt.Errorf("remove the blocks of workspace %s: %w", ws, err)
	}
	return nil
}
