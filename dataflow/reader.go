package dataflow

import (
	"context"
	"sync"

	"e3/objectstore"
)

// A reader finds what tasks read, from the results of upstream tasks. Settled results never change, so code beside
// the scheduler can read them: to run a settled task again, the scheduler continues with a copy.
type reader struct {
	ctx     context.Context
	g       *Graph
	objects objectstore.Store
	dirs    objectstore.Store // stores the directories of fan-ins, or computes their hashes
	folders objectstore.Store // source of directories: objects, in a plan with what a start would store
	opts    *Options
	proof   *proof          // nil without a baseline
	marked  map[string]bool // inputs whose content may be missing
	trees   *sync.Map
	present *sync.Map // by name of a marked input: a func() error that checks it

	results []TaskResult
}

func newReader(ctx context.Context, g *Graph, objects, dirs objectstore.Store, opts *Options) *reader {
	return &reader{
		ctx: ctx, g: g, objects: objects, dirs: dirs, folders: objects, opts: opts, trees: &sync.Map{}, present: &sync.Map{}, results: make([]TaskResult, g.Len()),
	}
}

// view returns a copy of the reader in its present state.
func (r *reader) view() *reader {
	v := *r
	return &v
}
