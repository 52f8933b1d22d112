package dataflow

import (
	"cmp"
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/record"
	"e3/objectstore"
)

// Produced is the dataset that a task has left.
type Produced struct {
	Output objectstore.Hash
	Size   int64 // of the output object
}

// Keys finds the keys under which a package's tasks were looked up in a run on the given inputs,
// without running anything. visit is called once for each task, after all that it reads and for several
// tasks at a time; key is nil where it cannot be known: an input without a value, or a
// producer whose output is unknown or gone. visit returns what the task produced, nil if that is
// not known. Nothing is stored. As many are visited at a time as lookups says; 0: as there are processors.
func Keys(ctx context.Context, g *Graph, objects objectstore.Store, inputs record.Node, lookups int, visit func(i int32, key *executions.Key) (*Produced, error)) error {
	s := &scheduler{ctx: ctx, g: g, objects: objects, dirs: unstored{Store: objects}, opts: &Options{Inputs: inputs}, results: make([]TaskResult, g.Len())}
	known := make([]bool, g.Len())
	return g.visit(ctx, lookups, func(_ context.Context, i int32) error {
		made, err := visit(i, s.key(i, known))
		if made != nil {
			s.results[i], known[i] = TaskResult{Output: made.Output, Size: made.Size}, true
		}
		return err
	})
}

// visit calls fn once for each task, after all that it reads, for several tasks at a time, until one fails.
func (g *Graph) visit(ctx context.Context, lookups int, fn func(ctx context.Context, i int32) error) error {
	for _, level := range g.levels() {
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
func (s *scheduler) key(i int32, known []bool) *executions.Key {
	for _, d := range s.g.deps[i] {
		if !known[d] {
			return nil
		}
	}
	inputs, _, err := s.resolve(i)
	if err != nil {
		return nil
	}
	key := executions.NewKey(s.g.Hashes[i], inputs)
	return &key
}

// levels groups the tasks such that each reads only tasks of earlier groups.
func (g *Graph) levels() [][]int32 {
	depth := make([]int, g.Len())
	var levels [][]int32
	for _, i := range g.topo {
		for _, d := range g.deps[i] {
			depth[i] = max(depth[i], depth[d]+1)
		}
		if depth[i] == len(levels) {
			levels = append(levels, nil)
		}
		levels[depth[i]] = append(levels[depth[i]], i)
	}
	return levels
}

// unstored is a store whose puts only name the bytes, or go elsewhere.
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
