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

// Results finds the answers of a run with these options, without running anything, by index of the graph: a task that would
// run, or whose inputs are not known, has no ExecutionID. Tasks that the baseline proves are not looked up. Nothing is stored. Of the
// options, only Inputs, Baseline and Lookups matter.
func Results(ctx context.Context, g *Graph, objects objectstore.Store, x Lookup, opts *Options) ([]TaskResult, error) {
	r := newReader(ctx, g, objects, unstored{Store: objects}, opts)
	if opts.Baseline != nil {
		r.proof = prove(g, opts.Baseline, opts.Inputs)
	}
	known := make([]bool, g.Len())
	err := each(ctx, g, opts.Lookups, func(ctx context.Context, i int32) error {
		found, err := r.find(ctx, i, known, x)
		if known[i] = found.ExecutionID != ""; !known[i] {
			found.State = Failed // it may be left out
		}
		r.results[i] = found
		return err
	})
	return r.results, err
}

// find finds the answer of a task whose producers have been visited.
func (r *reader) find(ctx context.Context, i int32, known []bool, x Lookup) (none TaskResult, err error) {
	if r.proof != nil && !r.proof.dirty[i] {
		return r.proof.result(i), nil
	}
	key := r.key(i, known)
	if key == nil {
		return none, nil
	}
	if r.proof != nil && r.proof.same[i] {
		if same, err := r.sameInputs(i); err == nil && same {
			return r.proof.result(i), nil
		}
	}
	a, err := x.Lookup(ctx, *key)
	if err != nil || a.Hit == nil {
		return none, err
	}
	return TaskResult{State: Cached, ExecutionID: a.Hit.ExecutionID, Output: a.Hit.Output, Size: a.Hit.Size}, nil
}
