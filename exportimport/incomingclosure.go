package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
)

// closure checks that all objects to which the new records will refer are here or in the zip. It marks them, and
// protects objects that are here from collections.
func (m *importer) closure(ctx context.Context) (err error) {
	if m.content, err = m.incomingObjects(); err != nil {
		return err
	}
	store := m.content
	s := &snapshot{workspace: m.stateOf, run: m.run, state: record.WorkspaceState{
		PackageName: m.pkg.Name, PackageVersion: m.pkg.Version, PackageHash: m.pkg.Hash}}
	g := &gatherer{objects: store, tasks: &tasks{objects: store}, s: s, present: store.present, size: store.Stat}
	damaged := false
	g.damaged = func(ctx context.Context, h objectstore.Hash) bool {
		if !damaged { // the first damaged object suffices: takeObjects reads it, and refuses the zip
			_, err := objectstore.Copy(ctx, io.Discard, store, h)
			damaged = err != nil
		}
		return damaged
	}
	g.each = func(ctx context.Context, yield func(*taken) error) error {
		return m.eachExecution(ctx, func(in *incoming) error {
			if in.Status.State == record.Running {
				return nil
			}
			t, err := in.taken()
			if err != nil {
				return refused("", "execution %s: %w", in.id, err)
			}
			t.inputs = in.Status.InputHashes
			return yield(t)
		})
	}
	g.inputs = func(_ context.Context, t *taken) ([]string, error) { return t.inputs, nil }
	data, err := store.structure(ctx, m.pkg.Hash)
	if err != nil {
		return lacking("package "+m.pkg.String(), err)
	}
	if s.pkg, err = record.DecodePackageWithin(data, maxPackageMemory); err != nil && !errors.Is(err, record.ErrType) {
		return refused("", "package %s: %w", m.pkg, err)
	}
	if s.pkg != nil {
		if _, err := graph.New(s.pkg); err != nil {
			return refused("", "%w", err)
		}
	}
	if m.state != nil {
		s.state = *m.state
		if s.pkg != nil {
			if err := m.tree(ctx, store, s); err != nil {
				return err
			}
		}
	} else {
		s.workspace = ""
	}
	// Two at a time: the zip's author decides how large the objects in memory are.
	err = g.walk(ctx, reach.Options{Workers: 2})
	for _, input := range slices.Sorted(maps.Keys(g.lacking)) {
		m.note("the content of input %s is not in the zip; tasks that read it can be hits, and run once it is set", input)
	}
	if g.imageless.Load() {
		m.note("an image in which tasks run is not in the zip: if a task has to run, e3 image pull must have fetched it")
	}
	var missing *MissingError
	if errors.As(err, &missing) {
		return lacking(missing.What, missing.Err)
	}
	return err
}

func lacking(what string, err error) error {
	if unusable(err) {
		return refused("", "%s: %w", what, err)
	}
	return err
}

// tree reads the nodes of the exported workspace. They have exactly the datasets of its package.
func (m *importer) tree(ctx context.Context, o *incomingObjects, s *snapshot) error {
	top, err := m.node(ctx, o, s.state.RootHash, 2)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what string // of its datasets
		to   *record.Node
		n    int
		name func(int) string
	}{
		{"input", &s.inputs, len(s.pkg.Inputs), func(i int) string { return s.pkg.Inputs[i].Name }},
		{"task", &s.tasks, len(s.pkg.Tasks), func(i int) string { return s.pkg.Tasks[i].Name }},
	} {
		leaf, ok := top.Get(part.what + "s")
		if !ok || leaf.Kind != record.LeafNode {
			return refused("", "the tree of workspace %s has no %ss", m.stateOf, part.what)
		}
		if *part.to, err = m.node(ctx, o, leaf.Hash, part.n); err != nil {
			return err
		}
		for i := range part.n { // the names within a package differ
			if _, ok := part.to.Get(part.name(i)); !ok {
				return refused("", "the tree of workspace %s has no %s %q, its package has", m.stateOf, part.what, shorten(part.name(i)))
			}
		}
	}
	return nil
}

// node reads a node with a known number of entries.
func (m *importer) node(ctx context.Context, o *incomingObjects, hash string, want int) (record.Node, error) {
	data, err := o.structure(ctx, hash)
	if err != nil {
		return nil, lacking("the tree of workspace "+m.stateOf, err)
	}
	n, got := make(record.Node, 0, want), 0
	err = record.EachEntry(data, func(e *record.NodeEntry) {
		if got++; got <= want {
			n = append(n, *e)
		}
	})
	if err == nil && got != want {
		err = fmt.Errorf("node %.8s has %d entries, not %d", hash, got, want)
	}
	if err != nil {
		return nil, refused("", "the tree of workspace %s: %w", m.stateOf, err)
	}
	return n, nil
}
