package approval

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Resolution is a person's decision.
type Resolution struct {
	Approve bool
	By      string // user@host
	Note    string // why, for later readers
}

func (r *Resolution) status() Status {
	if r.Approve {
		return Approved
	}
	return Rejected
}

// Resolve decides about a listed block. changed is false if the same decision was already made. Errors are ErrNotFound
// if it no longer exists, and *ResolvedError.
func (b *Blocks) Resolve(ctx context.Context, block *Block, r Resolution) (resolved Block, changed bool, err error) {
	return b.decide(ctx, block, func(now *Block) (bool, error) {
		switch {
		case now.Status == r.status():
			return false, nil
		case now.Status != Pending:
			return false, &ResolvedError{*now}
		}
		now.Status = r.status()
		return true, nil
	}, r.By, r.Note)
}

// Withdraw takes a decision back, an approval or a rejection as r says: the block is pending again. changed is false if
// it is already pending. Errors are ErrNotFound if it no longer exists, and *ResolvedError if the block was decided
// otherwise or a run has acted on the decision.
func (b *Blocks) Withdraw(ctx context.Context, block *Block, r Resolution) (withdrawn Block, changed bool, err error) {
	return b.decide(ctx, block, func(now *Block) (bool, error) {
		switch {
		case now.Status == Pending:
			return false, nil
		case now.Status != r.status() || now.Status == Approved && !now.Acted.IsZero():
			return false, &ResolvedError{*now}
		}
		now.Status = Pending
		return true, nil
	}, r.By, r.Note)
}

// decide applies a person's change to the latest state of a block. change tells whether there is any. It first records
// a change that is missing in the journal, so that the journal has the changes in their order.
func (b *Blocks) decide(ctx context.Context, block *Block, change func(*Block) (bool, error), by, note string) (Block, bool, error) {
	fail := func(err error) (Block, bool, error) {
		return Block{}, false, fmt.Errorf("decide about task %s: %w", block.Task, err)
	}
	for {
		now, version, err := b.get(ctx, block.key())
		switch {
		case errors.Is(err, ErrNotFound), err == nil && now.ID != block.ID:
			return Block{}, false, ErrNotFound
		case err != nil:
			return fail(err)
		}
		if now.Untold > 0 {
			var ok bool
			if version, ok, err = b.tell(ctx, &now, version); err != nil {
				return fail(err)
			} else if !ok {
				continue
			}
		}
		changed, err := change(&now)
		if err != nil || !changed {
			return now, false, err
		}
		now.By, now.Note = shorten(by, maxBy), shorten(note, MaxNote)
		now.Acted = time.Time{}
		_, changed, err = b.change(ctx, &now, version)
		if err != nil {
			return fail(err)
		}
		if changed {
			return now, true, nil
		}
	}
}
