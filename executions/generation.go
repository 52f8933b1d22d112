package executions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// A Generation tells whether answers that were true once may have changed. A speed-up that relies on an earlier
// answer remembers the generation's value, and is valid only while the value is the same.
//
// A proof always has one form: "the latest success of this key is E, with output O". A first success under a key
// disturbs no such proof, so ordinary runs leave the generation alone and workspaces do not slow each other down.
// Changes that can disturb one happen between Begin and its end: a second success under a key, an import, a rejected or
// removed execution, a deleted object.
type Generation struct {
	records refstore.Store
	locks   refstore.Locker
}

// NewGeneration returns the repository's generation.
func NewGeneration(records refstore.Store, locks refstore.Locker) *Generation {
	return &Generation{records: records, locks: locks}
}

// GenerationPartition is where the generation lies. A process that has lost its lease may still write there: a new
// value only ends proofs, and a process that wakes up within a batch must write one (see Begin).
const GenerationPartition = "INDEX/state"

var generationKey = refstore.Key{Partition: GenerationPartition, Sort: "generation"}

const generationLock = "generation"

// Begin opens a batch that may disturb proofs. The generation changes before Begin returns, and no process can make a
// proof while the batch is open. The batch holds a shared lock; end, or the death of the process, releases it.
//
// A lease may be lost while the batch is open. Other processes then presume the batch ended and may make proofs,
// which the later writes of this process would falsify. So end changes the generation again unless the lock was held
// all the time.
func (g *Generation) Begin(ctx context.Context) (end func(), err error) {
	lock, err := g.locks.TryLock(ctx, generationLock, refstore.Shared, nil) // nobody holds it alone
	if err != nil {
		return nil, fmt.Errorf("change generation: %w", err)
	}
	if err := g.change(ctx); err != nil {
		lock.Unlock()
		return nil, err
	}
	return sync.OnceFunc(func() {
		g.changeIfLapsed(ctx, lock)
		lock.Unlock()
	}), nil
}

// settleTime bounds the wait for a store that does not answer at the end of a batch.
const settleTime = 30 * time.Second

func (g *Generation) changeIfLapsed(ctx context.Context, lock refstore.Lock) {
	leased, ok := g.locks.(refstore.Leased)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	lapsing, ok := lock.(refstore.Lapsing)
	if leased.Confirm(ctx) != nil || ok && lapsing.Lapsed() {
		_ = g.change(ctx) // a store that cannot be reached has not received the batch's last writes either
	}
}

func (g *Generation) change(ctx context.Context) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("change generation: %w", err)
	}
	for {
		old, err := g.records.Get(ctx, generationKey)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged) {
			return fmt.Errorf("change generation: %w", err)
		}
		_, err = g.records.Put(ctx, refstore.Record{Key: generationKey, Value: []byte(id.String() + "\n"), Version: old.Version})
		if err == nil || !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) { // in doubt: a repeated change is harmless
			return err
		}
	}
}

// Read returns the generation's value. quiet is false while a batch is open: then the value must not be used for a
// proof.
//
// It takes no lock: a reader could not, and a lock would delay batches. Callers need one instant at which the value
// was current and no batch was open, because a batch changes the value before it disturbs anything. That instant is
// the look at the lock: it shows an open batch, and equal reads before and after it show that the value was current.
//
// A damaged value is replaced, which voids every proof.
func (g *Generation) Read(ctx context.Context) (value string, quiet bool, err error) {
	value, quiet, err = g.peek(ctx)
	if !errors.Is(err, refstore.ErrDamaged) {
		return value, quiet, err
	}
	if err := g.change(ctx); err != nil {
		return "", false, err
	}
	return g.peek(ctx)
}

// Peek is Read for readers that change nothing: a damaged value is not quiet. Where locks are leases, a dead holder counts until
// its death is known.
func (g *Generation) Peek(ctx context.Context) (value string, quiet bool, err error) {
	value, quiet, err = g.peek(ctx)
	if errors.Is(err, refstore.ErrDamaged) {
		return "", false, nil
	}
	return value, quiet, err
}

func (g *Generation) peek(ctx context.Context) (value string, quiet bool, err error) {
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
	if err != nil {
		return "", false, fmt.Errorf("read generation: %w", err)
	}
	if held {
		return "", false, nil
	}
	after, err := get()
	if err != nil {
		return "", false, fmt.Errorf("read generation: %w", err)
	}
	return after, before == after, nil
}
