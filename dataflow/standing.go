package dataflow

import (
	"context"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Standing is how a task's dataset relates to what a run would put in its place.
type Standing uint8

// The standings of datasets.
const (
	Absent  Standing = iota // the task has no output yet
	Stale                   // a run would look again: an input, the task or something upstream has changed
	Current                 // a run would leave it as it is
)

func (s Standing) String() string {
	switch s {
	case Stale:
		return "stale"
	case Current:
		return "current"
	}
	return "missing"
}

// Standings compares the datasets in outputs with what a run on the given inputs would produce, by index of the
// graph. Everything downstream of a stale dataset counts as stale; a run may still find it unchanged by early
// cut-off. Nothing is written if the Put of objects keeps nothing. lookups is as for Keys.
func Standings(ctx context.Context, g *Graph, objects objectstore.Store, x *executions.Store, inputs, outputs record.Node, lookups int) ([]Standing, error) {
	r := newReader(ctx, g, objects, objects, &Options{Inputs: inputs})
	standings := make([]Standing, g.Len())
	err := each(ctx, g, lookups, func(_ context.Context, i int32) error {
		leaf, _ := outputs.Get(g.Name(i))
		h, err := objectstore.ParseHash(leaf.Hash)
		if err != nil {
			return nil // unassigned
		}
		r.results[i] = TaskResult{Output: h, Size: leaf.Size}
		standings[i], err = r.standing(i, standings, x)
		return err
	})
	if err != nil {
		return nil, err
	}
	return standings, nil
}

// standing compares the output of task i with the answer for its present inputs.
func (r *reader) standing(i int32, known []Standing, x *executions.Store) (Standing, error) {
	for _, d := range r.g.Dependencies(i) {
		if known[d] != Current {
			return Stale, nil
		}
	}
	inputs, _, err := r.resolve(i)
	if err != nil {
		if r.ctx.Err() != nil {
			return Stale, context.Cause(r.ctx)
		}
		return Stale, nil // an input without a value, or a missing object: a run would report it
	}
	a, err := x.Lookup(r.ctx, executions.NewKey(r.g.Hashes[i], inputs))
	if err != nil || a.Hit == nil || a.Hit.Output != r.results[i].Output {
		return Stale, err
	}
	return Current, nil
}
