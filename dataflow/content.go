package dataflow

import (
	"errors"
	"fmt"
	"sync"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// contents checks that the inputs that a task is about to read exist, if exports may leave them out. All other inputs
// are known to exist before a run begins.
func (r *reader) contents(i int32) error {
	if len(r.marked) == 0 {
		return nil
	}
	var err error
	inputParts(r.g.Package.Tasks[i].Wiring, func(name, _ string) bool {
		if r.marked[name] {
			once, _ := r.present.LoadOrStore(name, sync.OnceValue(func() error { return r.content(name) }))
			err = once.(func() error)()
		}
		return err == nil
	})
	return err
}

// marked returns the inputs whose content an export may leave out.
func marked(pkg *record.Package) map[string]bool {
	var names map[string]bool
	for i := range pkg.Inputs {
		if in := &pkg.Inputs[i]; in.NoExport {
			if names == nil {
				names = map[string]bool{}
			}
			names[in.Name] = true
		}
	}
	return names
}

// content checks that an input's object exists; for a directory also every object below it.
func (r *reader) content(name string) error {
	leaf, _ := r.opts.Inputs.Get(name)
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return fmt.Errorf("input %s: %w", name, err)
	}
	lacking := &LackingError{Workspace: r.opts.Workspace, Input: name, Kind: leaf.Kind}
	look := []objectstore.Hash{h}
	flush := func() error {
		gone, err := r.objects.Missing(r.ctx, look)
		look = look[:0]
		if err == nil && len(gone) > 0 {
			return lacking
		}
		return err
	}
	if leaf.Kind != record.LeafDir {
		return flush()
	}
	look = look[:0]
	err = tree.Walk(r.ctx, r.objects, h, func(_ string, e tree.Entry) error {
		if e.Kind != tree.KindFile {
			return nil
		}
		const batch = 1024
		if look = append(look, e.Hash); len(look) < batch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if errors.Is(err, objectstore.ErrNotFound) {
		return lacking
	}
	return err
}
