package executions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Where claims are leases, a holder may wake up after its lease has run out, and write what it has begun. The claim on a key names
// the execution that its holder makes: whoever takes it over from a dead one makes that execution an error, so that its
// record, when it comes, conflicts. A taker may die before it has done so. So a claim that was never released names everybody
// who has held it, one to a line, and each taker sees to all of them.

// flight is the claim on a key, and the execution that is made under it.
type flight struct {
	lock refstore.Lock
	id   string
}

// released is a lock that was given back already.
type released struct{ refstore.Lock }

func (released) Unlock() error { return nil }

// takeOff takes the claim on a key for a new execution, whose id is greater than after, waiting for its holder. One that is made elsewhere is not named in the claim:
// there is nothing of this process to make fail but the wait for its job. What dead holders have begun cannot become a
// success any more when it returns.
func (x *Executor) takeOff(ctx context.Context, key Key, inputs []objectstore.Hash, after string) (f *flight, waited bool, err error) {
	claim := key.claim()
	_, waited, err = x.await(ctx, func() (refstore.Lock, error) {
		if x.leased != nil {
			if kept, ok := x.unfenced.LoadAndDelete(claim); ok {
				f = kept.(*flight)
				return f.lock, nil
			}
		}
		id, err := NewIDAfter(after) // anew for each try: the latest is the greatest
		if err != nil {
			return nil, err
		}
		var text []byte
		if x.opts.Remote == nil {
			text = []byte(id)
		}
		lock, err := x.claims.TryClaim(ctx, claim, text)
		f = &flight{lock: lock, id: id}
		return lock, err
	})
	if err != nil {
		return nil, waited, err
	}
	previous := f.lock.Previous()
	if previous == nil {
		return f, waited, nil
	}
	if err := x.fence(ctx, key, inputs, previous); err != nil {
		// Released, the claim would forget whom it names. It is kept for the next in this process who asks, or until the process
		// ends, which leaves it to others as it is.
		x.unfenced.Store(claim, f)
		return nil, waited, fmt.Errorf("take over from a process that lost its lease: %w", err)
	}
	return f, waited, nil
}

// fence makes sure that no execution that is named in previous, one to a line, becomes a success from now on. Lines that are
// no ids are nobody's.
func (c *Curator) fence(ctx context.Context, key Key, inputs []objectstore.Hash, previous []byte) error {
	for id := range strings.SplitSeq(string(previous), "\n") {
		if _, err := ParseID(id); err != nil {
			continue
		}
		if err := c.giveUp(ctx, key, inputs, id, nil); err != nil {
			return fmt.Errorf("give up execution %s: %w", id, err)
		}
	}
	return nil
}

// ending is how an execution ends of which its process has not said it.
type ending struct {
	reason  Reason
	message string
}

// giveUp makes an execution an error unless it has ended. how is nil where nothing is known but that its process is gone.
func (c *Curator) giveUp(ctx context.Context, key Key, inputs []objectstore.Hash, id string, how *ending) error {
	var ask []string
	if how != nil {
		ask = []string{fieldDetail}
	}
	for {
		put := refstore.Record{Key: recordKey(key, id)}
		rec, err := c.records.Get(ctx, put.Key, ask...)
		switch {
		case errors.Is(err, refstore.ErrNotFound):
			now := c.now()
			put = how.end(put, &record.Status{
				State: record.Error, ExecutionID: id, InputHashes: hexes(inputs), StartedAt: now, CompletedAt: now,
				Message: "Process lost its lease and is taken for no longer running (stale execution)",
			}, nil)
		case errors.Is(err, refstore.ErrDamaged): // nothing of it is kept
			now := c.now()
			put.Version, put.Fields = rec.Version, []refstore.Field{{Name: fieldDetail, Value: (&record.Detail{}).Encode()}}
			put.Value = (&record.Status{
				State: record.Error, ExecutionID: id, InputHashes: hexes(inputs), StartedAt: now, CompletedAt: now,
				Message: "its record was damaged while it ran, and is written anew",
			}).Encode()
		case err != nil:
			return err
		default:
			e, err := decode(key, rec)
			if err == nil && e.State != record.Running {
				return nil
			}
			put.Version = rec.Version
			if put.Value = rec.Value; err == nil { // one that cannot be read stays as it is, under another version
				put = how.end(put, c.stale(e.Status), e.Detail)
			}
		}
		if _, err = c.records.Put(ctx, put); !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// end completes a record with a status, and what is known beyond it.
func (how *ending) end(rec refstore.Record, status *record.Status, detail *record.Detail) refstore.Record {
	if how != nil {
		status.Message = how.message
		if detail == nil {
			detail = &record.Detail{}
		}
		detail.Reason = string(how.reason)
		rec.Fields = []refstore.Field{{Name: fieldDetail, Value: detail.Encode()}}
	}
	rec.Value = status.Encode()
	return rec
}

func hexes(hashes []objectstore.Hash) []string {
	list := make([]string, len(hashes))
	for i, h := range hashes {
		list[i] = h.String()
	}
	return list
}

// bound returns a context that ends besides, with the cause, when this process loses its lease. Where it needs none it is ctx
// itself.
func (c *Curator) bound(ctx context.Context) (context.Context, func()) {
	if c.lessee == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if lost := c.lost(ctx); lost != nil { // now, not when a goroutine has its turn
		cancel(lost)
		return ctx, func() {}
	}
	go func() {
		select {
		case <-c.lessee.Lost():
			cancel(c.lost(context.Background()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// lost tells whether this process has lost its lease, as far as it knows by itself.
func (c *Curator) lost(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, refstore.ErrLost) {
		return cause
	}
	if c.lessee == nil {
		return nil
	}
	if err := c.lessee.Held(); errors.Is(err, refstore.ErrLost) {
		return err
	}
	return nil
}
