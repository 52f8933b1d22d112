package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"e3/internal/format/zipfile"
	"e3/internal/reach"
	"e3/objectstore"
)

// incomingObjects is the object store as an import will leave it, with the repository's objects and the zip's. It
// stores nothing. The closure marks the objects that it meets, so that takeObjects stores no others. Each object of
// the zip takes 44 bytes of memory.
type incomingObjects struct {
	Objects
	m      *importer
	places []place         // by hash
	fates  []atomic.Uint32 // of the places
}

// place is the position of an object in the directory of the zip.
type place struct {
	hash     objectstore.Hash
	position int64
}

// Fates of an object of the zip.
const (
	unmet  uint32 = iota // no reference has led to it
	held                 // it is here with the same size, and protected from collections
	fresh                // it is new here
	stored               // it was new here, and takeObjects has reached it
)

func (m *importer) incomingObjects() (*incomingObjects, error) {
	o := &incomingObjects{Objects: m.repo.Objects, m: m, places: make([]place, 0, m.res.Objects)}
	err := m.eachObject(func(e objectEntry) error {
		o.places = append(o.places, place{e.hash, e.entry.Position})
		return nil
	})
	slices.SortFunc(o.places, func(a, b place) int { return a.hash.Compare(b.hash) })
	o.places = slices.CompactFunc(o.places, func(a, b place) bool { return a.hash == b.hash })
	o.fates = make([]atomic.Uint32, len(o.places))
	return o, err
}

// find returns the index of an object of the zip.
func (o *incomingObjects) find(h objectstore.Hash) (int, bool) {
	return slices.BinarySearchFunc(o.places, h, func(p place, h objectstore.Hash) int { return p.hash.Compare(h) })
}

// at returns the entry of an object of the zip.
func (o *incomingObjects) at(i int) (zipfile.Entry, error) {
	e, err := o.m.zip.At(o.places[i].position)
	if err != nil {
		return e, err
	}
	if n, err := parseName(e.Name); err != nil || n.part != objectPart || n.object != o.places[i].hash {
		return e, refused("", "%w", errChanged)
	}
	return e, nil
}

// present returns the size of an object that the closure has met, and decides its fate.
func (o *incomingObjects) present(ctx context.Context, r reach.Ref) (int64, error) {
	size, err := o.meet(ctx, r.Hash)
	if err == nil {
		err = bounded(r, size)
	}
	return size, err
}

func (o *incomingObjects) meet(ctx context.Context, h objectstore.Hash) (int64, error) {
	i, found := o.find(h)
	if !found {
		there, err := o.protect(ctx, h)
		if err == nil && !there {
			err = fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
		}
		if err != nil {
			return 0, err
		}
		return o.Objects.Stat(ctx, h)
	}
	e, err := o.at(i)
	if err != nil || o.fates[i].Load() != unmet {
		return e.Size, err
	}
	fate := fresh
	size, err := o.Objects.Stat(ctx, h)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return 0, err
	}
	if err == nil && size == e.Size {
		there, err := o.protect(ctx, h)
		if err != nil {
			return 0, err
		}
		if there {
			fate = held
		}
	}
	o.fates[i].CompareAndSwap(unmet, fate)
	return e.Size, nil
}

// protect protects an object from collections, and reports whether it is here. A dry run writes nothing.
func (o *incomingObjects) protect(ctx context.Context, h objectstore.Hash) (bool, error) {
	if !o.m.opts.DryRun {
		return o.Objects.Refresh(ctx, h)
	}
	_, err := o.Objects.Stat(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// fresh returns the entry of an object that is new here; false for any other object.
func (o *incomingObjects) fresh(ctx context.Context, h objectstore.Hash) (e zipfile.Entry, is bool, err error) {
	i, found := o.find(h)
	if !found || o.fates[i].Load() == held {
		return e, false, nil
	}
	if e, err = o.at(i); err != nil || o.fates[i].Load() != unmet {
		return e, err == nil, err
	}
	size, err := o.Objects.Stat(ctx, h)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return e, false, err
	}
	return e, err != nil || size != e.Size, nil
}

// Open implements objectstore.Store.
func (o *incomingObjects) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	e, is, err := o.fresh(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", h, err)
	}
	if !is {
		return o.Objects.Open(ctx, h)
	}
	r, err := o.m.open(e)
	if err != nil {
		return nil, err
	}
	return objectstore.Checking(h, r, e.Size), nil
}

// Stat returns the size that an object has after the import.
func (o *incomingObjects) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	e, is, err := o.fresh(ctx, h)
	switch {
	case err != nil:
		return 0, err
	case is:
		return e.Size, nil
	}
	return o.Objects.Stat(ctx, h)
}

// structure reads an object that refers to others.
func (o *incomingObjects) structure(ctx context.Context, hash string) ([]byte, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	if _, err := o.present(ctx, reach.Ref{Kind: reach.Package, Hash: h}); err != nil {
		return nil, err
	}
	return objectstore.ReadAll(ctx, o, h, maxStructure)
}

// store reports, once for each object of the zip, whether to store it.
func (o *incomingObjects) store(h objectstore.Hash) bool {
	i, found := o.find(h)
	return found && o.fates[i].CompareAndSwap(fresh, stored)
}

// count returns how many objects are new here, and to how many no reference has led.
func (o *incomingObjects) count() (added, left int) {
	for i := range o.fates {
		switch o.fates[i].Load() {
		case stored:
			added++
		case unmet:
			left++
		}
	}
	return added, left
}
