package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// foresee does everything that an import does except the writes, so it reports the same results and refuses the same
// zips.
func (m *importer) foresee(ctx context.Context) error {
	if err := m.objects(ctx, m.foreseeObject); err != nil {
		return err
	}
	store, err := m.foreseen()
	if err != nil {
		return err
	}
	if err := m.closure(ctx, store); err != nil {
		return err
	}
	if m.run != nil {
		_, err := m.repo.Records.Get(ctx, runview.Key(m.runWorkspace(), m.run.RunID), runview.FieldProvenance, workspace.FieldEvents)
		if m.res.RunAdded = errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged); !m.res.RunAdded && err != nil {
			return err
		}
	}
	return m.eachExecution(ctx, func(in *incoming) error {
		out, err := m.repo.Curator.Decide(ctx, &in.Incoming)
		if err != nil {
			return err
		}
		retired, err := m.retiredThere(ctx, in, out)
		m.settle(in, out, retired)
		return err
	})
}

// foreseen is the object store as the import would leave it. It stores and protects nothing, and takes 40 bytes of
// memory for each object.
type foreseen struct {
	Objects
	m      *importer
	places []place // by hash
}

// place is the position of an object in the directory of the zip.
type place struct {
	hash     objectstore.Hash
	position int64
}

func (m *importer) foreseen() (*foreseen, error) {
	f := &foreseen{Objects: m.repo.Objects, m: m, places: make([]place, 0, m.res.Objects)}
	err := m.eachObject(func(o objectEntry) error {
		if !o.again {
			f.places = append(f.places, place{o.hash, o.entry.Position})
		}
		return nil
	})
	slices.SortFunc(f.places, func(a, b place) int { return a.hash.Compare(b.hash) })
	return f, err
}

// entry returns the entry of an object that an import would store, because the object is in the zip and not here with
// the same size.
func (f *foreseen) entry(ctx context.Context, h objectstore.Hash) (*objectEntry, error) {
	i, found := slices.BinarySearchFunc(f.places, h, func(p place, h objectstore.Hash) int { return p.hash.Compare(h) })
	if !found {
		return nil, nil
	}
	e, err := f.m.zip.At(f.places[i].position)
	if err != nil {
		return nil, err
	}
	if n, err := parseName(e.Name); err != nil || n.part != objectPart || n.object != h {
		return nil, refused("", "%w", errChanged)
	}
	size, err := f.Objects.Stat(ctx, h)
	switch {
	case err == nil && size == e.Size:
		return nil, nil
	case err != nil && !errors.Is(err, objectstore.ErrNotFound):
		return nil, err
	}
	return &objectEntry{entry: e, hash: h}, nil
}

// Open implements objectstore.Store.
func (f *foreseen) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	o, err := f.entry(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", h, err)
	}
	if o == nil {
		return f.Objects.Open(ctx, h)
	}
	r, err := f.m.open(o.entry)
	if err != nil {
		return nil, err
	}
	return objectstore.Checking(h, r, o.entry.Size), nil
}

// Stat returns the size that an object would have.
func (f *foreseen) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	o, err := f.entry(ctx, h)
	switch {
	case err != nil:
		return 0, err
	case o != nil:
		return o.entry.Size, nil
	}
	return f.Objects.Stat(ctx, h)
}

// Refresh reports whether an object would exist.
func (f *foreseen) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	_, err := f.Stat(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
