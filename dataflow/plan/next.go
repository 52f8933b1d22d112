package plan

import (
	"context"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Next is what the next start of a workspace would run on, without anything being stored.
type Next struct {
	Workspace   string
	Package     *record.Package
	PackageHash string
	Inputs      record.Node
	Outputs     record.Node // what the workspace holds now
	File        string      // the package file that it follows, "" without one
	Edited      bool        // the file says something else than what is deployed
	Faults      []error     // why the package file or its inputs cannot be taken in
	// Objects reads the objects of the repository, and those that the start would store before it looks anything up,
	// as far as they fit in memory: task objects, values and directory objects do. Puts are kept in memory too.
	Objects Objects
	Planner Planner
}

// Objects is a store that writes nothing to the repository.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// A Planner tells what that start would do. Nothing is executed and nothing is stored.
type Planner interface {
	// Plan plans the tasks that a filter selects, as one core would run them. It uses what is deployed where the package
	// file or its inputs cannot be taken in.
	Plan(ctx context.Context, filter string) (*Plan, error)
	// Keys finds the keys under which the tasks would be looked up: see dataflow.Keys.
	Keys(ctx context.Context, g *graph.Graph, visit func(i int32, key *executions.Key) (*Produced, error)) error
	// Reads returns the hash of everything that a task reads: see dataflow.Reads.
	Reads(ctx context.Context, g *graph.Graph, i int32, made func(d int32) (Produced, bool)) ([]objectstore.Hash, bool, error)
}
