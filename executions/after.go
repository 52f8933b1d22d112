package executions

import (
	"context"
	"errors"
	"iter"
	"strings"

	"e3/objectstore"
	"e3/refstore"
)

// later is a store of records that finds the later executions of a task without a look at each of its keys.
type later interface {
	// ExecutionsAfter yields the keys of a task's executions with greater ids, in no order. Some of the records may be
	// gone or not there yet.
	ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error]
}

// After yields the executions of a task with ids greater than id, in no order. An execution that cannot be read comes
// with its RecordError and does not end the list. Unless the records are a later, it lists each key of the task.
func (s *Store) After(ctx context.Context, task objectstore.Hash, id string) iter.Seq2[*Execution, error] {
	l, ok := s.records.(later)
	if !ok {
		return inOrder(ctx, s.parallel, s.Inputs(ctx, task), func(ctx context.Context, inputs objectstore.Hash) iter.Seq2[*Execution, error] {
			k := Key{Task: task, Inputs: inputs}
			return s.list(ctx, refstore.Query{Partition: partition(k), After: id, Fields: sideFields}, k)
		})
	}
	return inOrder(ctx, s.parallel, l.ExecutionsAfter(ctx, task.String(), id), func(ctx context.Context, key refstore.Key) iter.Seq2[*Execution, error] {
		return func(yield func(*Execution, error) bool) {
			k, ok := ParseKey(strings.TrimPrefix(key.Partition, "EXECUTION/"))
			if !ok {
				return
			}
			if e, err := s.Get(ctx, k, key.Sort); !errors.Is(err, ErrNotFound) {
				yield(e, err)
			}
		}
	})
}
