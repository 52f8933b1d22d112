package dataflow

import (
	"context"
	"fmt"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// know finds the key under which a task is looked up. nil means early cut-off: the inputs are the same as in the
// baseline, so no lookup is needed.
func (r *reader) know(i int32, after string, force bool) (*looked, error) {
	if r.proof != nil && r.proof.same[i] && !force && after == "" {
		if same, err := r.sameInputs(i); same || err != nil {
			return nil, err
		}
	}
	inputs, size, err := r.resolve(i)
	return &looked{inputs: inputs, size: size}, err
}

func (r *reader) load(ctx context.Context, h objectstore.Hash) (*record.Task, error) {
	return executions.LoadTask(ctx, r.objects, h)
}

// resolve returns the hash of everything that the task reads, in declared order, and the size of its file inputs.
func (r *reader) resolve(i int32) ([]objectstore.Hash, int64, error) {
	wires := r.g.Package.Tasks[i].Wiring
	hashes := make([]objectstore.Hash, len(wires))
	var size int64
	for j := range wires {
		w := &wires[j]
		var e tree.Entry
		var err error
		switch w.Kind {
		case record.WireInput:
			e, err = r.inputPart(w.Name, w.Entry)
		case record.WireOutput:
			e, err = r.output(w.Name, w.Entry)
		default:
			e.Hash, e.Size, err = r.gathered(r.dirs, wires, j)
		}
		if err != nil {
			return nil, 0, err
		}
		hashes[j] = e.Hash
		size += e.Size
	}
	return hashes, size, nil
}

// NoValue is the advice that follows "has no value" of an input: how to give it a value.
func NoValue(workspace, input string) string {
	if variable, ok := record.VariableOf(input); ok {
		return fmt.Sprintf(" yet; a start takes it from the environment: %s=<value> e3 start <repo> %s", variable, workspace)
	}
	if program, ok := record.ToolOf(input); ok {
		return fmt.Sprintf(" yet; a start reads the program %s: e3 start <repo> %s", program, workspace)
	}
	return fmt.Sprintf("; set it with: e3 set <repo> %s.%s <value>", workspace, input)
}

func (r *reader) input(name string) (tree.Entry, error) {
	leaf, ok := r.opts.Inputs.Get(name)
	if !ok || leaf.Kind == record.LeafUnassigned {
		return tree.Entry{}, fmt.Errorf("input %s has no value%s", name, NoValue(r.opts.Workspace, name))
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	return tree.Entry{Hash: h, Size: leaf.Size}, err
}

// output returns a producer's dataset, or one entry of it. Only what is read enters the key.
func (r *reader) output(task, entry string) (tree.Entry, error) {
	d, _ := r.g.Find(task) // graph.New has checked the name
	made := &r.results[d]
	e := tree.Entry{Kind: tree.KindFile, Hash: made.Output, Size: made.Size}
	switch r.g.Package.Tasks[d].Output {
	case record.KindDir:
		e.Kind = tree.KindDir
	case record.KindExecutable:
		e.Executable = true
	}
	if entry == "" {
		return e, nil
	}
	return r.entry(task, made.Output, entry)
}

func (r *reader) entry(task string, dir objectstore.Hash, name string) (tree.Entry, error) {
	e, ok, err := r.below(dir, name)
	if err != nil {
		return tree.Entry{}, fmt.Errorf("output of %s: %w", task, err)
	}
	if !ok {
		return tree.Entry{}, fmt.Errorf("output of %s has no entry %q", task, name)
	}
	return e, nil
}

func (r *reader) tree(h objectstore.Hash) (tree.Entries, error) {
	if t, ok := r.trees.Load(h); ok {
		return t.(tree.Entries), nil
	}
	t, err := tree.Read(r.ctx, r.folders, h)
	if err != nil {
		return nil, err
	}
	r.trees.Store(h, t)
	return t, nil
}

// gather stores the fan-in directories that a task is about to read, and their manifests. A hit needs neither: the
// execution that answers names them.
func (r *reader) gather(i int32) error {
	wires := r.g.Package.Tasks[i].Wiring
	for j := range wires {
		if isGathered(&wires[j]) {
			if _, _, err := r.gathered(r.objects, wires, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// isGathered tells whether e3 makes what a wire holds: the directory of a fan-in, or its manifest.
func isGathered(w *record.Wire) bool {
	return w.Kind == record.WireFanIn || w.Kind == record.WireManifest
}

// gathered stores the directory or manifest that e3 makes for a wire. size is 0 for a directory.
func (r *reader) gathered(into objectstore.Store, wires []record.Wire, j int) (h objectstore.Hash, size int64, err error) {
	if wires[j].Kind == record.WireManifest {
		return r.manifest(into, &wires[j-1])
	}
	h, err = r.fanIn(into, r.members(&wires[j]))
	return h, 0, err
}

// fanIn stores the directory that gathers one entry from each of many tasks.
func (r *reader) fanIn(into objectstore.Store, items []record.FanItem) (objectstore.Hash, error) {
	entries := make(tree.Entries, len(items))
	for k, it := range items {
		e, err := r.item(&it)
		if err != nil {
			return objectstore.Hash{}, err
		}
		e.Name = it.Label
		entries[k] = e
	}
	return tree.Nest(r.ctx, into, entries)
}

// sameInputs tells whether the task reads exactly what it read in the baseline.
func (r *reader) sameInputs(i int32) (bool, error) {
	for _, w := range r.g.Package.Tasks[i].Wiring {
		same := true
		var err error
		switch w.Kind {
		case record.WireInput:
			was, _ := r.proof.base.Inputs.Get(w.Name)
			is, _ := r.opts.Inputs.Get(w.Name)
			same = was.Kind == is.Kind && was.Hash == is.Hash && is.Hash != "" || w.Entry != "" && r.samePart(was, is, w.Entry)
		case record.WireOutput:
			same, err = r.sameOutput(w.Name, w.Entry)
		case record.WireFanIn:
			for k := 0; k < len(w.Items) && same && err == nil; k++ {
				if it := &w.Items[k]; it.Input == "" {
					if r.lacks(*it) {
						same = r.proof.lacks(r.g, it.Task)
					} else {
						same, err = r.sameOutput(it.Task, it.Entry)
					}
				} else {
					was, _ := r.proof.base.Inputs.Get(it.Input)
					is, _ := r.opts.Inputs.Get(it.Input)
					same = r.samePart(was, is, it.Entry)
				}
			}
		}
		if !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// sameOutput tells whether a dataset, or one entry of it, is the same as in the baseline: its content, and what a
// fan-in keeps beside it.
func (r *reader) sameOutput(task, entry string) (bool, error) {
	d, _ := r.g.Find(task)
	was, is := r.proof.outputs[d], leafOf(r.g, d, r.results[d].Output, r.results[d].Size)
	switch {
	case was.Hash == is.Hash:
		return was.Kind == is.Kind && was.Executable == is.Executable, nil
	case entry == "" || was.Kind != record.LeafDir || is.Kind != record.LeafDir:
		return false, nil
	}
	h, err := objectstore.ParseHash(was.Hash)
	if err != nil {
		return false, err
	}
	before, err := r.entry(task, h, entry)
	if err != nil {
		return false, nil // what was read then is gone: look the task up
	}
	now, err := r.entry(task, r.results[d].Output, entry)
	return err == nil && before == now, err
}
