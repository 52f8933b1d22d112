package plan

import (
	"context"

	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Next holds the package and the inputs that the next start of a workspace would use. Nothing is stored for it.
type Next struct {
	Workspace   string
	Package     *record.Package
	PackageHash string
	Inputs      record.Node
	Outputs     record.Node // what the workspace holds now
	File        string      // the package file that the workspace follows; "": none
	Edited      bool        // the file differs from the deployed package
	Faults      []error     // why the package file or its inputs cannot be deployed
	// Objects reads the objects of the repository, and those that the start would store before its lookups, as far as
	// they fit in memory: task objects, values and directory objects. Puts are kept in memory too.
	Objects Objects
	Planner Planner
}

// Objects is a store that writes nothing to the repository.
type Objects interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// A Result is the cached result of a task; without an execution it has none, or its inputs are not known yet.
type Result struct {
	ExecutionID string
	Produced
}

// A Planner plans the next start of a workspace. It executes nothing and stores nothing.
type Planner interface {
	// Plan plans the tasks that a filter selects, as one core would run them. It uses the deployed package and inputs
	// if the package file or its inputs cannot be read.
	Plan(ctx context.Context, filter string) (*Plan, error)
	// Results finds the cached results of the package's tasks, by index. Tasks that the workspace's proof covers are not looked up: as for a
	// start, a record that is removed by hand is not missed.
	Results(ctx context.Context) ([]Result, error)
	// Reads returns the hashes of all inputs of a task: see dataflow.Reads.
	Reads(ctx context.Context, g *graph.Graph, i int32, made func(d int32) (Produced, bool)) ([]objectstore.Hash, bool, error)
}
