package executions

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/refstore"
)

// durable is a store that can make writes survive power loss.
type durable interface {
	PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error)
	Sync(ctx context.Context) error
}

// durably returns a put whose record survives power loss, and a sync that makes earlier writes survive it, as far as
// the store supports that.
func (c *Curator) durably() (put func(context.Context, refstore.Record) (refstore.Version, error), sync func(context.Context) error) {
	if s, ok := c.records.(durable); ok {
		return s.PutSync, s.Sync
	}
	return c.records.Put, func(context.Context) error { return nil }
}

// Reject rejects a success, or takes its rejection back (mark.Rejected is false). A rejected success is not an answer.
// Reject returns false if there is nothing to change; author and reason do not count. The change survives power loss if
// the store supports that.
func (c *Curator) Reject(ctx context.Context, k Key, id string, mark *record.Rejection) (changed bool, err error) {
	for {
		e, err := c.Get(ctx, k, id)
		if err != nil {
			return false, err
		}
		switch {
		case e.State != record.Success:
			return false, fmt.Errorf("execution %s is %s: only a success can be rejected", id, e.State)
		case e.Rejected() == mark.Rejected:
			return false, nil
		}
		err = c.reject(ctx, e, mark)
		if !errors.Is(err, refstore.ErrConflict) {
			return err == nil, err
		}
	}
}

func (c *Curator) reject(ctx context.Context, e *Execution, mark *record.Rejection) error {
	end, err := c.generation.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	put, sync := c.durably() // the sync covers the generation too
	_, err = put(ctx, refstore.Record{
		Key: recordKey(e.Key, e.ExecutionID), Value: e.Status.Encode(), Version: e.version,
		Fields: []refstore.Field{{Name: fieldRejected, Value: mark.Encode()}},
	})
	if err == nil {
		err = sync(ctx)
	}
	if err != nil {
		return fmt.Errorf("reject execution %s: %w", e.ExecutionID, err)
	}
	return nil
}

// Discard removes an execution whose record cannot be read. It returns false if there is none, or if it can be read.
// If only a side field is torn, the execution may have answered a request, so a tombstone replaces the record as
// after pruning.
func (c *Curator) Discard(ctx context.Context, k Key, id, by string) (bool, error) {
	rec, err := c.records.Get(ctx, recordKey(k, id), sideFields...)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	_, bad := decodeFound(k, rec, err)
	if unreadable := (*RecordError)(nil); bad == nil || !errors.As(bad, &unreadable) {
		return false, bad
	}
	v := Victim{Inputs: k.Inputs, ExecutionID: id, version: rec.Version}
	if status, err := record.DecodeStatus(rec.Value); err == nil && status.State == record.Success {
		v.OutputHash = status.OutputHash
	}
	return c.Remove(ctx, k.Task, v, by, "its record could not be read")
}

// SuspendedFor tells whether an execution was suspended by its command in a run of workspace ws here. It is false for
// imported and for unreadable executions.
func (s *Store) SuspendedFor(ctx context.Context, k Key, id, ws string) (bool, error) {
	e, err := s.Get(ctx, k, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrMalformed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	imported := e.Metadata != nil || e.Provenance != nil
	return !imported && e.State == record.Failed && e.Detail != nil && Reason(e.Detail.Reason) == ReasonSuspended && e.Detail.Workspace == ws, nil
}
