package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/refstore"
)

// Partitions returns the partitions of all queues' records, for verification.
func (rd *Reader) Partitions(ctx context.Context) ([]string, error) {
	queues, err := rd.names(ctx)
	if err != nil {
		return nil, err
	}
	partitions := []string{Names}
	for _, queue := range queues {
		for _, what := range []string{"jobs", "delayed", "finished", "cancel", "holders", "turns"} {
			partitions = append(partitions, partition(queue, what))
		}
		partitions = append(partitions, rd.readyPartitions(queue)...)
		if rd.store.sharded {
			partitions = append(partitions, shardsOf(partition(queue, "jobs"))...)
		}
		for r, err := range rd.store.List(ctx, refstore.Query{Partition: partition(queue, "finished"), KeysOnly: true}) {
			if err != nil {
				return nil, fmt.Errorf("list the runs of queue %s: %w", queue, err)
			}
			if validRun(r.Key.Sort) != nil {
				continue
			}
			partitions = append(partitions, finishedPartition(queue, r.Key.Sort), toldPartition(queue, r.Key.Sort))
			if rd.store.sharded {
				partitions = append(partitions, shardsOf(finishedPartition(queue, r.Key.Sort))...)
			}
		}
	}
	return partitions, nil
}

// Check returns the fault of a record of one of the [Reader.Partitions]: ErrMalformed. A malformed record may be
// removed: a waiting run enqueues its job again, and every other record is derived.
func Check(r refstore.Record) error {
	if r.Key.Partition == Names {
		if string(r.Value) != NameRecord {
			return fmt.Errorf("record %q is %w", r.Key, ErrMalformed)
		}
		return nil
	}
	if _, ok := markedShard(r.Key); ok && strings.HasSuffix(r.Key.Partition, "/ready") {
		if err := decode(r.Value, new(turnRecord)); err != nil {
			return fmt.Errorf("record %q is %w: %w", r.Key, ErrMalformed, err)
		}
		return nil
	}
	r.Key = logical(r.Key)
	_, what, _ := strings.Cut(strings.TrimPrefix(r.Key.Partition, Kind+"/"), "/")
	what, shard, _ := strings.Cut(what, "/")
	if shard != "" && what == "finished" {
		what = "jobs"
	}
	var err error
	switch what {
	case "ready", "delayed":
		if isAlias(r) { // its job may have changed since
			err = checkAlias(r)
		} else {
			_, err = decodeEntry(r)
		}
	case "finished", "turns":
		err = decode(r.Value, new(turnRecord))
	case "cancel":
		if err = validID(r.Key.Sort); err == nil {
			err = decode(r.Value, new(cancelRecord))
		}
	case "told":
		err = decode(r.Value, new(toldRecord))
	case "holders":
		err = decode(r.Value, new(holderRecord))
	default:
		_, err = decodeJob(r)
	}
	if err != nil && !errors.Is(err, ErrMalformed) {
		err = fmt.Errorf("record %q is %w: %w", r.Key, ErrMalformed, err)
	}
	return err
}
