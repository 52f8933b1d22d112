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

// Where claims are leases, a holder may wake up after its lease has expired and write the record of its execution. So
// the claim on a key names the execution that its holder makes. A process that takes the claim over records that
// execution as an error, and the late record conflicts. This process may die first. So a claim that was never released
// names the executions of all its holders, one per line, and each new holder fences all of them.

// fence makes sure that no execution named in previous, one to a line, can become a success. Lines that are no ids
// are skipped.
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

// ending is the end to record for an execution whose process has recorded none.
type ending struct {
	reason  Reason
	message string
}

// giveUp records an execution as an error unless it has ended. how is nil if nothing is known but the loss of its
// process.
func (c *Curator) giveUp(ctx context.Context, key Key, inputs []objectstore.Hash, id string, how *ending) error {
	var ask []string
	if how != nil {
		ask = []string{fieldDetail}
	}
	ended := func(message string) *record.Status { // the end of an execution whose status is unknown
		now := c.now()
		return &record.Status{
			State: record.Error, ExecutionID: id, InputHashes: hexes(inputs), StartedAt: now, CompletedAt: now, Message: message,
		}
	}
	for {
		put := refstore.Record{Key: recordKey(key, id)}
		rec, err := c.records.Get(ctx, put.Key, ask...)
		switch {
		case errors.Is(err, refstore.ErrNotFound):
			put = how.end(put, ended("Process lost its lease and is taken for "+staleText), nil)
		case errors.Is(err, refstore.ErrDamaged): // the new record keeps nothing of it
			put.Version, put.Fields = rec.Version, []refstore.Field{{Name: fieldDetail, Value: (&record.Detail{}).Encode()}}
			put.Value = ended("its record was damaged while it ran, and is written anew").Encode()
		case err != nil:
			return err
		default:
			e, err := decode(key, rec)
			if err == nil && e.State != record.Running {
				return nil
			}
			put.Version = rec.Version
			if put.Value = rec.Value; err == nil { // a record that cannot be read stays as it is, under a new version
				put = how.end(put, c.stale(e.Status), e.Detail)
			}
		}
		if _, err = c.records.Put(ctx, put); !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// end completes a record with a status, and with the reason and message of the ending.
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

// bound returns a context that also ends, with the cause, when this process loses its lease. Without a lease it is
// ctx itself.
func (c *Curator) bound(ctx context.Context) (context.Context, func()) {
	if c.lessee == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if lost := c.leaseLoss(ctx); lost != nil { // at once, without waiting for the goroutine
		cancel(lost)
		return ctx, func() {}
	}
	go func() {
		select {
		case <-c.lessee.Lost():
			cancel(c.leaseLoss(context.Background()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// leaseLoss returns the loss of this process's lease, as far as it is known without a request; nil if the lease is
// held.
func (c *Curator) leaseLoss(ctx context.Context) error {
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
