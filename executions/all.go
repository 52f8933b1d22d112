package executions

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"e3/objectstore"
	"e3/refstore"
)

// All yields every execution of the repository with its side fields: task by task, key by key, the latest of a key
// first. An execution that cannot be read comes with its RecordError and does not end the list; any other error does.
// Where each read is a request, several keys are read at a time, ahead of the caller.
func (s *Store) All(ctx context.Context) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		for e, err := range inOrder(ctx, s.parallel, s.Keys(ctx), s.List) {
			if !yield(e, err) || err != nil && !errors.Is(err, ErrMalformed) {
				return
			}
		}
	}
}

// Keys yields every key that has had an execution, task by task. An error ends it.
func (s *Store) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return inOrder(ctx, s.parallel, s.Tasks(ctx), s.keysOf)
}

// keysOf yields every key that a task has had an execution of.
func (s *Store) keysOf(ctx context.Context, task objectstore.Hash) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		for inputs, err := range s.Inputs(ctx, task) {
			if !yield(Key{Task: task, Inputs: inputs}, err) || err != nil {
				return
			}
		}
	}
}

// ahead is the size of the buffer of each list that is read ahead of the caller.
const ahead = 16

// inOrder yields the results of each for every element of in, in order, while up to n elements are read at a time. An
// error of in comes in its place and is the last. All goroutines have ended when it returns.
func inOrder[In, Out any](ctx context.Context, n int, in iter.Seq2[In, error], each func(context.Context, In) iter.Seq2[Out, error]) iter.Seq2[Out, error] {
	if n <= 1 {
		return oneByOne(ctx, in, each)
	}
	type answer struct {
		out Out
		err error
	}
	return func(yield func(Out, error) bool) {
		var work sync.WaitGroup
		defer work.Wait()
		inner, stop := context.WithCancel(ctx)
		defer stop()
		lanes := make(chan chan answer, n-1)
		work.Go(func() {
			defer close(lanes)
			for v, err := range in {
				lane := make(chan answer, ahead)
				if err != nil {
					lane <- answer{err: err}
					close(lane)
				}
				select {
				case lanes <- lane:
				case <-inner.Done():
					return
				}
				if err != nil {
					return
				}
				work.Go(func() {
					defer close(lane)
					for out, err := range each(inner, v) {
						select {
						case lane <- answer{out, err}:
						case <-inner.Done():
							return
						}
					}
				})
			}
		})
		for lane := range lanes {
			for a := range lane {
				if !yield(a.out, a.err) {
					return
				}
			}
		}
		if ctx.Err() != nil { // a reader may have ended silently
			var none Out
			yield(none, context.Cause(ctx))
		}
	}
}

func oneByOne[In, Out any](ctx context.Context, in iter.Seq2[In, error], each func(context.Context, In) iter.Seq2[Out, error]) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		for v, err := range in {
			if err != nil {
				var none Out
				yield(none, err)
				return
			}
			for out, err := range each(ctx, v) {
				if !yield(out, err) {
					return
				}
			}
		}
	}
}

// Missing returns the ids that have no record under any inputs of the task. It lists the task's keys and reads no
// record.
func (s *Store) Missing(ctx context.Context, task objectstore.Hash, ids []string) ([]string, error) {
	missing := make(map[string]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	for inputs, err := range s.Inputs(ctx, task) {
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		for rec, err := range s.records.List(ctx, refstore.Query{Partition: partition(Key{Task: task, Inputs: inputs}), KeysOnly: true}) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				return nil, err
			}
			delete(missing, rec.Key.Sort)
		}
	}
	return slices.Sorted(maps.Keys(missing)), nil
}

// later is a store of records that finds the later executions of a task without a look at each of its keys.
type later interface {
	// ExecutionsAfter yields the keys of a task's executions with greater ids, in no order. Some of the records may be
	// gone or not there yet.
	ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error]
}

// After yields the executions of a task with ids greater than id, in no order. An execution that cannot be read comes
// with its RecordError and does not end the list. Where the store of records is no later, After lists each key of the
// task.
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
