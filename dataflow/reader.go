package dataflow

import (
	"context"
	"sync"

	"e3/objectstore"
)

// A reader finds out what tasks read, from what those upstream have left. Its results do not change where they are settled, so that
// what runs beside the scheduler can read them: where a settled task is to be made again, the scheduler goes on with a copy.
type reader struct {
	ctx     context.Context
	g       *Graph
	objects objectstore.Store
	dirs    objectstore.Store // where the directories of fan-ins get their names
	opts    *Options
	proof   *proof          // nil without a baseline
	marked  map[string]bool // inputs whose content may not be here
	trees   *sync.Map
	present *sync.Map // by name of such an input, func() error that tells whether it is

	results []TaskResult
}

func newReader(ctx context.Context, g *Graph, objects, dirs objectstore.Store, opts *Options) *reader {
	return &reader{
		ctx: ctx, g: g, objects: objects, dirs: dirs, opts: opts, trees: &sync.Map{}, present: &sync.Map{}, results: make([]TaskResult, g.Len()),
	}
}

// view is the reader as it is now.
func (r *reader) view() *reader {
	v := *r
	return &v
}
