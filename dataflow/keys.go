package dataflow

import (
	"cmp"
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Keys finds the keys under which a package's tasks were looked up in a run on the given inputs, without running
// anything. visit is called once for each task, after all that it reads, for several tasks at a time. key is nil if
// it cannot be known: an input has no value, or the output of a producer is unknown or gone. visit returns the task's
// output, nil if it is not known; a fan-in leaves it out then, if it can. Nothing is stored. lookups is the number of
// concurrent visits; 0: the number of processors.
func Keys(ctx context.Context, g *Graph, objects objectstore.Store, inputs record.Node, lookups int, visit func(i int32, key *executions.Key) (*Produced, error)) error {
	r := newReader(ctx, g, objects, unstored{Store: objects}, &Options{Inputs: inputs})
	known := make([]bool, g.Len())
	return each(ctx, g, lookups, func(_ context.Context, i int32) error {
		made, err := visit(i, r.key(i, known))
		if made != nil {
			r.results[i], known[i] = TaskResult{Output: made.Output, Size: made.Size}, true
		} else {
			r.results[i].State = Failed // it may be left out
		}
		return err
	})
}

// each calls fn once for each task, after all that it reads, for several tasks at a time, until one call fails.
func each(ctx context.Context, g *Graph, lookups int, fn func(ctx context.Context, i int32) error) error {
	for _, level := range g.Levels() {
		eg, ctx := errgroup.WithContext(ctx)
		eg.SetLimit(cmp.Or(lookups, runtime.GOMAXPROCS(0)))
		for _, i := range level {
			eg.Go(func() error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return fn(ctx, i)
			})
		}
		if err := eg.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// key returns the key of a task whose producers have been visited.
func (r *reader) key(i int32, known []bool) *executions.Key {
	for _, d := range r.g.Dependencies(i) {
		if !known[d] && !(r.isGone(d) && r.g.Tolerates(i, d)) {
			return nil
		}
	}
	if tooFew(r, i) >= 0 {
		return nil
	}
	inputs, _, err := r.resolve(i)
	if err != nil {
		return nil
	}
	key := executions.NewKey(r.g.Hashes[i], inputs)
	return &key
}

// unstored is a store whose puts only compute hashes, or go elsewhere.
type unstored struct {
	objectstore.Store
	elsewhere objectstore.Store // nil: nowhere
}

func (s unstored) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	if s.elsewhere != nil {
		return objectstore.PutBytes(ctx, s.elsewhere, b)
	}
	return objectstore.Sum(b), nil
}
