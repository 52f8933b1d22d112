package dataflow

import (
	"context"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Hits finds the executions that would answer a run on the given inputs, without running anything. visit is called
// for each, by several goroutines at a time. A task that reads from a task without an answer is skipped, because its
// key is not known. Nothing is stored. lookups is as for Keys.
func Hits(ctx context.Context, g *Graph, objects objectstore.Store, x *executions.Store, inputs record.Node, lookups int, visit func(i int32, key executions.Key, hit *executions.Hit) error) error {
	return Keys(ctx, g, objects, inputs, lookups, func(i int32, key *executions.Key) (*Produced, error) {
		if key == nil {
			return nil, nil
		}
		a, err := x.Lookup(ctx, *key)
		if err != nil || a.Hit == nil {
			return nil, err
		}
		return &Produced{Output: a.Hit.Output, Size: a.Hit.Size}, visit(i, *key, a.Hit)
	})
}
