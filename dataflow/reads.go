package dataflow

import (
	"context"

	"e3/internal/record"
	"e3/objectstore"
)

// Reads returns the hash of everything that a task reads, in declared order: its part of the key. made tells what those have
// produced that it reads from; false where that is not known. The directory of a fan-in is put into objects.
func Reads(ctx context.Context, g *Graph, objects objectstore.Store, inputs record.Node, i int32, made func(d int32) (Produced, bool)) ([]objectstore.Hash, bool, error) {
	s := &scheduler{ctx: ctx, g: g, objects: objects, dirs: objects, opts: &Options{Inputs: inputs}, results: make([]TaskResult, g.Len())}
	for _, d := range g.deps[i] {
		p, ok := made(d)
		if !ok {
			return nil, false, nil
		}
		s.results[d] = TaskResult{Output: p.Output, Size: p.Size}
	}
	hashes, _, err := s.resolve(i)
	return hashes, err == nil, err
}
