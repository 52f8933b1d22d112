package compare

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
)

// maxValue bounds the size of a value object that is shown.
const maxValue = 64 << 10

// eitherOf reads objects from whichever of two stores has them.
type eitherOf struct {
	executions.Objects
	other executions.Objects
}

// both returns the objects of both sides.
func both(a, b executions.Objects) executions.Objects {
	if a == b {
		return a
	}
	return eitherOf{a, b}
}

// Open implements objectstore.Store.
func (e eitherOf) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	r, err := e.Objects.Open(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return e.other.Open(ctx, h)
	}
	return r, err
}

// Stat returns the size of an object.
func (e eitherOf) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	n, err := e.Objects.Stat(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return e.other.Stat(ctx, h)
	}
	return n, err
}

// datasets compares the inputs, or the outputs, of both sides.
func (c *comparison) datasets(was, is *datasets) (Datasets, error) {
	d := Datasets{Changes: []DatasetChange{}}
	known := func(string) bool { return true }
	if was.gone != "" || is.gone != "" {
		if was.hash == is.hash && was.hash != "" {
			d.Same = len(was.leaves)
			return d, nil
		}
		d.Unknown = join(was.gone, is.gone)
		// If a side does not know all its datasets, an unknown one need not be missing.
		known = func(name string) bool { return was.has(name) && is.has(name) }
	}
	names := map[string]bool{}
	for _, side := range []*datasets{was, is} {
		for name := range side.leaves {
			names[name] = true
		}
		for name := range side.open {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if c.ctx.Err() != nil {
			return d, context.Cause(c.ctx)
		}
		if !known(name) {
			continue
		}
		if was.open[name] && is.open[name] {
			continue // unknown on both sides
		}
		a, hadA := was.leaves[name]
		b, hasB := is.leaves[name]
		if hadA && hasB && sameLeaf(a, b) {
			d.Same++
			continue
		}
		if file, _, ok := record.ParamOf(name); ok && hadA && hasB && differs(was, is, file) {
			continue // its file says which values differ
		}
		change, err := c.dataset(name, was, is)
		if err != nil {
			return d, err
		}
		d.Changes = append(d.Changes, change)
	}
	return d, nil
}

// differs reports whether both sides have a dataset, with other content.
func differs(was, is *datasets, name string) bool {
	a, hadA := was.leaves[name]
	b, hasB := is.leaves[name]
	return hadA && hasB && !sameLeaf(a, b)
}

func (d *datasets) has(name string) bool {
	_, ok := d.leaves[name]
	return ok || d.open[name]
}

// join joins two explanations, which may be the same.
func join(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return min(a, b) + "; " + max(a, b) // independent of the order of sides
}

// sameLeaf reports whether two leaves have the same content; sizes follow from the hashes.
func sameLeaf(a, b record.Leaf) bool {
	return a.Kind == b.Kind && a.Hash == b.Hash && a.Executable == b.Executable
}

// dataset describes a dataset that differs between the sides.
func (c *comparison) dataset(name string, was, is *datasets) (DatasetChange, error) {
	d := DatasetChange{Name: name, Change: Changed}
	a, hadA := was.leaves[name]
	b, hasB := is.leaves[name]
	trees := hadA && hasB && a.Kind == record.LeafDir && b.Kind == record.LeafDir
	var err error
	switch {
	case was.open[name]:
		d.Was = &Dataset{Kind: "open", Open: true}
	case hadA:
		if d.Was, err = c.describe(a, !trees); err != nil {
			return d, err
		}
	default:
		d.Change = Added
	}
	switch {
	case is.open[name]:
		d.Is = &Dataset{Kind: "open", Open: true}
	case hasB:
		if d.Is, err = c.describe(b, !trees); err != nil {
			return d, err
		}
	default:
		d.Change = Removed
	}
	switch {
	case trees:
		d.Files, err = c.files(a.Hash, b.Hash)
	case hadA && hasB && a.Kind == record.LeafValue && b.Kind == record.LeafValue:
		d.Values, err = c.values(a, b)
	}
	return d, err
}

// values compares the values in two mappings; nil for what is no mapping, or cannot be read as one.
func (c *comparison) values(was, is record.Leaf) (*Values, error) {
	parts := [2]map[string]json.RawMessage{{}, {}}
	for k, leaf := range []record.Leaf{was, is} {
		text, err := []*side{c.was, c.is}[k].valueText(c.ctx, leaf)
		if err == nil && (len(text) == 0 || text[0] != '{') {
			return nil, nil
		}
		if err == nil {
			err = spread(parts[k], "", text)
		}
		if err != nil {
			return nil, context.Cause(c.ctx)
		}
	}
	return compareValues(parts[0], parts[1]), nil
}

// describe describes a dataset. It measures the content of a directory only if whole is true.
func (c *comparison) describe(l record.Leaf, whole bool) (*Dataset, error) {
	d := &Dataset{Kind: l.Kind.String(), Hash: l.Hash, Executable: l.Executable}
	h, err := objectstore.ParseHash(l.Hash)
	if err != nil {
		return d, nil // the reference implementation stores null without an object
	}
	switch l.Kind {
	case record.LeafFile:
		d.Size = &l.Size
	case record.LeafDir:
		if !whole {
			return d, nil
		}
		n, size, complete, err := c.weigh(h)
		if err != nil {
			return nil, err
		}
		if complete {
			d.Files, d.Size = &n, &size
		}
	default:
		return d, c.value(d, h)
	}
	return d, nil
}

// value reads a short value.
func (c *comparison) value(d *Dataset, h objectstore.Hash) error {
	size, err := c.objects.Stat(c.ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	d.Size = &size
	if size > maxValue {
		return nil
	}
	data, err := objectstore.ReadAll(c.ctx, c.objects, h, maxValue)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	v, err := value.Decode(data)
	if err != nil {
		return nil // a task of the reference implementation may output any bytes
	}
	text, err := v.JSONWithin(maxText)
	if err == nil && json.Valid(text) {
		d.Value = text
	}
	return nil
}
