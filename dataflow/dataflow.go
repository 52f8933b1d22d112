// Package dataflow runs the tasks of a package in the order of their wiring: as soon as a task's inputs are known, it
// is answered from the cache or executed.
package dataflow

import (
	"slices"

	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Graph is the graph of a package's tasks.
type Graph = graph.Graph

// leafOf is the workspace's entry for the output of a task.
func leafOf(g *Graph, i int32, h objectstore.Hash, size int64) record.Leaf {
	switch g.Package.Tasks[i].Output {
	case record.KindDir:
		return record.Leaf{Kind: record.LeafDir, Hash: h.String()}
	case record.KindExecutable:
		return record.Leaf{Kind: record.LeafFile, Hash: h.String(), Size: size, Executable: true}
	}
	return record.Leaf{Kind: record.LeafFile, Hash: h.String(), Size: size}
}

// waits tells whether any task may have to wait for a person.
func waits(g *Graph) bool {
	return slices.ContainsFunc(g.Package.Tasks, func(t record.PackageTask) bool { return mayWait(&t.Policy) })
}

// mayWait tells whether a task of this policy may have to wait for a person.
func mayWait(p *record.Policy) bool { return p.Approve || p.Suspend != 0 }
