package reach

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// ExecutionRoots enumerates the objects that every execution names: its task object, its output, and the inputs that
// e3 has made (TaskShape.Inputs). These inputs may be missing.
func (s *Stores) ExecutionRoots(ctx context.Context, sink Sink) error {
	g, ctx := errgroup.WithContext(ctx)
	type underKey struct {
		task   *TaskRoots
		inputs objectstore.Hash
	}
	tasks, keys := make(chan objectstore.Hash, 64), make(chan underKey, 64)
	var listing sync.WaitGroup // of the goroutines that send keys
	listing.Add(s.workers())
	for range s.workers() {
		g.Go(func() error {
			defer listing.Done()
			for task := range tasks {
				t := s.TaskRoots(task, sink)
				for inputs, err := range s.Executions.Inputs(ctx, task) {
					if err != nil {
						return err
					}
					select {
					case keys <- underKey{t, inputs}:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
			return nil
		})
		g.Go(func() error {
			for k := range keys {
				if err := k.task.key(ctx, k.inputs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		listing.Wait()
		close(keys)
		return nil
	})
	g.Go(func() error {
		defer close(tasks)
		for task, err := range s.Executions.Tasks(ctx) {
			if err != nil {
				return err
			}
			select {
			case tasks <- task:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// TaskRoots returns what enumerates the roots of a task's executions for a caller that lists them.
func (s *Stores) TaskRoots(task objectstore.Hash, sink Sink) *TaskRoots {
	return &TaskRoots{stores: s, sink: sink, hash: task}
}

// TaskRoots is a task whose executions are enumerated, by several goroutines.
type TaskRoots struct {
	stores *Stores
	sink   Sink
	hash   objectstore.Hash

	reading sync.Mutex
	found   bool // the shape is known
	shape   TaskShape
}

// key enumerates the executions under a key.
func (t *TaskRoots) key(ctx context.Context, inputs objectstore.Hash) error {
	key := executions.Key{Task: t.hash, Inputs: inputs}
	for e, err := range t.stores.Executions.Statuses(ctx, key) {
		if err := t.Execution(ctx, key, e, err); err != nil {
			return err
		}
	}
	return nil
}

// Execution enumerates the objects that an execution names. An execution with an unreadable record is never a hit, so
// it keeps only its task.
func (t *TaskRoots) Execution(ctx context.Context, key executions.Key, e *executions.Execution, err error) error {
	var unreadable *executions.RecordError
	if err != nil && !errors.As(err, &unreadable) {
		return err
	}
	if err := t.read(ctx, Root{Owner: Owner{Kind: ATask, Key: executions.Key{Task: t.hash}, Role: "task object"}}); err != nil {
		return err
	}
	owner := Owner{Kind: AnExecution, Key: key}
	malformed := func(err error) error {
		return t.sink.RecordFault(&Fault{Owner: owner, Err: &RecordError{Record: "executions/" + key.String() + "/" + owner.ID, Err: err}})
	}
	if unreadable != nil {
		owner.ID = unreadable.ExecutionID
		return malformed(unreadable.Err)
	}
	owner.ID = e.ExecutionID
	if e.State == record.Success {
		h, err := objectstore.ParseHash(e.OutputHash)
		if err != nil {
			return malformed(err)
		}
		owner.Role = "output"
		if err := t.sink.Root(Root{Ref: Ref{t.shape.Output, h}, Owner: owner}); err != nil {
			return err
		}
	}
	owner.Role = "input"
	failed := error(nil)
	err = t.shape.Inputs(e.InputHashes, func(_ int, r Ref) error {
		failed = t.sink.Root(Root{Ref: r, Weak: true, Owner: owner})
		return failed
	})
	if err != nil && failed == nil {
		return malformed(err)
	}
	return err
}

// read makes the task object a root, with r's owner, and finds out which kinds of data its executions name, once.
func (t *TaskRoots) read(ctx context.Context, r Root) error {
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.found {
		return nil
	}
	var err error
	if t.shape, err = TaskShapeOf(ctx, t.stores.Objects, t.hash); err != nil {
		return err
	}
	t.found = true
	r.Ref, r.followed = Ref{Task, t.hash}, t.shape.leaf
	return t.sink.Root(r)
}
