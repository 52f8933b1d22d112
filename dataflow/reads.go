package dataflow

import (
	"context"

	"e3/internal/format/record"
	"e3/objectstore"
)

// Reads returns the hashes of everything that a task reads, in declared order: they are part of its key. made returns
// the outputs of its producers; the result is false if one is not known. The directory of a fan-in is put into
// objects.
func Reads(ctx context.Context, g *Graph, objects objectstore.Store, inputs record.Node, i int32, made func(d int32) (Produced, bool)) ([]objectstore.Hash, bool, error) {
	r := newReader(ctx, g, objects, objects, &Options{Inputs: inputs})
	for _, d := range g.Dependencies(i) {
		p, ok := made(d)
		if !ok {
			return nil, false, nil
		}
		r.results[d] = TaskResult{Output: p.Output, Size: p.Size}
	}
	hashes, _, err := r.resolve(i)
	return hashes, err == nil, err
}
