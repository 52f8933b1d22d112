package dataflow

import (
	"fmt"
	"strings"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// inputPart returns an input, or the entry at a path in its directory. Only what is read enters the key.
func (r *reader) inputPart(name, path string) (tree.Entry, error) {
	whole, err := r.input(name)
	if err != nil || path == "" {
		return whole, err
	}
	e, ok, err := r.below(whole.Hash, path)
	if err != nil {
		return tree.Entry{}, fmt.Errorf("input %s: %w", name, err)
	}
	if !ok {
		return tree.Entry{}, fmt.Errorf("input %s has no file %q any more; the next start sees what it has", name, path)
	}
	return e, nil
}

// item returns the content of one entry of a fan-in.
func (r *reader) item(it *record.FanItem) (tree.Entry, error) {
	if it.Input != "" {
		return r.inputPart(it.Input, it.Entry)
	}
	return r.output(it.Task, it.Entry)
}

// below finds the entry at a path in a directory.
func (r *reader) below(dir objectstore.Hash, path string) (e tree.Entry, ok bool, err error) {
	e = tree.Entry{Kind: tree.KindDir, Hash: dir}
	for name := range strings.SplitSeq(path, "/") {
		if e.Kind != tree.KindDir {
			return e, false, nil
		}
		entries, err := r.tree(e.Hash)
		if err != nil {
			return e, false, err
		}
		if e, ok = entries.Find(name); !ok {
			return e, false, nil
		}
	}
	return e, true, nil
}

// partToFind says where to look for lost objects of the entry at a path in a directory: in that entry, or in the
// whole directory if a folder on the way is lost. Zero: there is no such entry.
func (r *reader) partToFind(dir objectstore.Hash, path string) (h objectstore.Hash, isDir bool, err error) {
	e, ok, err := r.below(dir, path)
	if lost, err := objectstore.IsLost(err); lost || err != nil {
		return dir, true, err
	}
	if !ok {
		return objectstore.Hash{}, false, nil
	}
	return e.Hash, e.Kind == tree.KindDir, nil
}

// samePart tells whether two directories hold the same at a path. A directory that cannot be read is different.
func (r *reader) samePart(was, is record.Leaf, path string) bool {
	if was.Kind != record.LeafDir || is.Kind != record.LeafDir {
		return false
	}
	if was.Hash == is.Hash {
		return is.Hash != ""
	}
	var parts [2]tree.Entry
	for k, hash := range []string{was.Hash, is.Hash} {
		h, err := objectstore.ParseHash(hash)
		if err != nil {
			return false
		}
		e, ok, err := r.below(h, path)
		if err != nil || !ok {
			return false
		}
		parts[k] = e
	}
	return parts[0] == parts[1]
}

// inputParts yields the inputs that a task reads, and the paths that it reads in their directories.
func inputParts(wires []record.Wire, yield func(name, path string) bool) {
	for i := range wires {
		switch w := &wires[i]; w.Kind {
		case record.WireInput:
			if !yield(w.Name, w.Entry) {
				return
			}
		case record.WireFanIn:
			for k := range w.Items {
				if it := &w.Items[k]; it.Input != "" && !yield(it.Input, it.Entry) {
					return
				}
			}
		}
	}
}
