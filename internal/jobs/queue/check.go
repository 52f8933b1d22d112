package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/refstore"
)

// Partitions returns where the records of all queues are, for who checks them.
func (rd *Reader) Partitions(ctx context.Context) ([]string, error) {
	queues, err := rd.names(ctx)
	if err != nil {
		return nil, err
	}
	partitions := []string{Names}
	for _, queue := range queues {
		for _, what := range []string{"jobs", "ready", "delayed", "finished", "cancel", "holders", "turns"} {
			partitions = append(partitions, partition(queue, what))
		}
		for r, err := range rd.store.List(ctx, refstore.Query{Partition: partition(queue, "finished"), KeysOnly: true}) {
			if err != nil {
				return nil, fmt.Errorf("list the runs of queue %s: %w", queue, err)
			}
			if validRun(r.Key.Sort) == nil {
				partitions = append(partitions, finishedPartition(queue, r.Key.Sort))
			}
		}
	}
	return partitions, nil
}

// Check says what is wrong with a record of one of the [Reader.Partitions]: ErrMalformed. Any that is may be removed: a run that waits for a
// job enqueues it again, and all the others are made again where they are missed.
func Check(r refstore.Record) error {
	if r.Key.Partition == Names {
		return nil // the name is all
	}
	_, what, _ := strings.Cut(strings.TrimPrefix(r.Key.Partition, Kind+"/"), "/")
	var err error
	switch what {
	case "ready", "delayed":
		_, err = decodeEntry(r)
	case "finished", "turns":
		err = decode(r.Value, new(turnRecord))
	case "cancel":
		if err = validID(r.Key.Sort); err == nil {
			err = decode(r.Value, new(cancelRecord))
		}
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
