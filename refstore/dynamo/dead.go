package dynamo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/refstore"
)

// sweepers is the number of items of a kind that are checked at a time.
const sweepers = 8

// sweep checks the enumeration items of a partition key. An item without anything to enumerate gets a date if it has
// none. An item is removed if its date is minDying before the beginning of every live session. left is the number of
// remaining items.
func (s *Store) sweep(ctx context.Context, pk string, before time.Time, nothing func(ctx context.Context, sk string) (bool, error), remove func(ctx context.Context, k itemKey, since int64) (bool, error)) (left int64, err error) {
	var gone atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(sweepers)
	for item, err := range s.table.query(ctx, pk, refstore.Query{}, attrDying, nil) {
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		left++
		k, dated := itemKey{pk, item.sk}, item.attributes[attrDying] != nil
		d := s.table.decode(k, item.attributes)
		since := d.number(attrDying)
		if d.err != nil {
			g.Go(func() error { return d.err })
			break
		}
		if dated && before.Sub(time.UnixMilli(since)) < minDying {
			continue
		}
		g.Go(func() error {
			none, err := nothing(ctx, k.sk)
			if err != nil || !none {
				return err
			}
			if !dated {
				return s.dying(ctx, k)
			}
			removed, err := remove(ctx, k, since)
			if removed {
				gone.Add(1)
			}
			return err
		})
	}
	err = g.Wait()
	return left - gone.Load(), err
}

// removeDead deletes enumeration items that have had nothing to enumerate for long enough, and logs of executions
// without a record. It takes a read for each item, and for each task.
func (s *Store) removeDead(ctx context.Context, before time.Time) (removed int, err error) {
	var count atomic.Int64
	bury := func(ctx context.Context, k itemKey, since int64) (bool, error) {
		gone, err := s.deleteDying(ctx, k, since)
		if gone {
			count.Add(1)
		}
		return gone, err
	}
	// The session that sends the logs also writes the record, at the latest when the command ends.
	unrecorded := func(ctx context.Context, partition string) (bool, error) {
		execution, ok := loggedBy(partition)
		if !ok {
			return false, nil
		}
		item, err := s.table.getItem(ctx, s.table.recordKey(execution), attrVersion, nil)
		return item == nil, err
	}
	removeLogs := func(ctx context.Context, k itemKey, _ int64) (bool, error) {
		err := s.removeStreams(ctx, k.sk)
		if err == nil {
			count.Add(1)
		}
		return err == nil, err
	}
	unused := func(ctx context.Context, task string) (bool, error) {
		inputs := s.table.pk("", kindInputs+"/"+task)
		left, err := s.sweep(ctx, inputs, before, func(ctx context.Context, sk string) (bool, error) {
			return s.table.empty(ctx, s.table.pk("", "EXECUTION/"+task+"/"+sk))
		}, bury)
		if err != nil || left > 0 {
			return false, err
		}
		return s.table.empty(ctx, inputs)
	}
	// The events of a workspace may outlive the records of its runs.
	unrun := func(ctx context.Context, workspace string) (bool, error) {
		none, err := s.table.empty(ctx, s.table.pk("", "DATAFLOW/"+workspace))
		if err != nil || !none {
			return false, err
		}
		return s.table.empty(ctx, s.table.pk(streamPrefix, "EVENTS/"+workspace))
	}
	for _, kind := range []struct {
		pks     []string
		nothing func(context.Context, string) (bool, error)
		remove  func(context.Context, itemKey, int64) (bool, error)
	}{
		{[]string{s.table.pk(partitionPrefix, "LOG")}, unrecorded, removeLogs},
		{s.table.pks(kindTasks), unused, bury},
		{s.table.pks(kindRuns), unrun, bury},
	} {
		for _, pk := range kind.pks {
			if _, err := s.sweep(ctx, pk, before, kind.nothing, kind.remove); err != nil {
				return int(count.Load()), fmt.Errorf("remove what stands for nothing: %w", err)
			}
		}
	}
	return int(count.Load()), nil
}
