package exportimport

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/zipfile"
	"e3/objectstore"
)

// objectEntry is an object in the zip.
type objectEntry struct {
	entry zipfile.Entry
	hash  objectstore.Hash
	again bool // it has occurred before
}

// objects calls do for each object of the zip, several at a time, and counts the new ones. It reads all bytes of the
// zip, so that a damaged object is refused even if the repository has an intact copy.
func (m *importer) objects(ctx context.Context, do func(context.Context, *objectEntry) (isNew bool, err error)) error {
	workers := m.opts.Workers
	if workers <= 0 {
		workers = max(runtime.GOMAXPROCS(0), m.repo.Workspaces.Lookups)
	}
	var added atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	entries := make(chan objectEntry, 16*workers)
	for range workers {
		g.Go(func() error {
			for o := range entries {
				isNew, err := do(ctx, &o)
				if err != nil {
					return err
				}
				if isNew {
					added.Add(1)
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(entries)
		return m.eachObject(func(o objectEntry) error {
			select {
			case entries <- o:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	err := g.Wait()
	m.res.ObjectsAdded = int(added.Load())
	return err
}

// eachObject yields the objects in the order of the zip.
func (m *importer) eachObject(yield func(objectEntry) error) error {
	var seen objectstore.HashSet
	for e, err := range m.zip.Entries() {
		if err != nil {
			return err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != objectPart {
			continue
		}
		if err := yield(objectEntry{e, n.object, !seen.Add(n.object)}); err != nil {
			return err
		}
	}
	return nil
}

// storeObject stores an object, which must hash to its name. An object that is here with the same size is only
// protected from collections.
func (m *importer) storeObject(ctx context.Context, o *objectEntry) (isNew bool, err error) {
	there := o.again
	if !there {
		if there, err = m.refresh(ctx, o); err != nil {
			return false, err
		}
	}
	if there {
		return false, m.readObject(o, hashed)
	}
	return true, m.readObject(o, func(r io.Reader) (objectstore.Info, error) { return m.repo.Objects.Put(ctx, r) })
}

// refresh reports whether an object is here with the same size as in the zip, and protects it if so.
func (m *importer) refresh(ctx context.Context, o *objectEntry) (bool, error) {
	size, err := m.repo.Objects.Stat(ctx, o.hash)
	if errors.Is(err, objectstore.ErrNotFound) || err == nil && size != o.entry.Size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return m.repo.Objects.Refresh(ctx, o.hash)
}

// foreseeObject reads an object like storeObject, and stores nothing.
func (m *importer) foreseeObject(ctx context.Context, o *objectEntry) (isNew bool, err error) {
	if !o.again {
		_, err := m.repo.Objects.Stat(ctx, o.hash)
		if isNew = errors.Is(err, objectstore.ErrNotFound); err != nil && !isNew {
			return false, err
		}
	}
	return isNew, m.readObject(o, hashed)
}

// readObject reads an object to its end, and compares its hash with its name.
func (m *importer) readObject(o *objectEntry, read func(io.Reader) (objectstore.Info, error)) error {
	r, err := m.open(o.entry)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := read(&countingReader{r, m.advance})
	if err != nil {
		return err
	}
	if info.Hash != o.hash {
		return refused(o.entry.Name, "%w", &objectstore.CorruptError{Want: o.hash, Got: info.Hash, Size: info.Size})
	}
	return nil
}

// hashed reads content to its end.
func hashed(r io.Reader) (objectstore.Info, error) {
	h := objectstore.NewHasher()
	n, err := io.Copy(h, r)
	return objectstore.Info{Hash: h.Hash(), Size: n}, err
}

// advance adds to the bytes of objects that are done, and reports them.
func (m *importer) advance(n int64) {
	if sum := m.done.Add(n); m.opts.Progress != nil {
		m.opts.Progress(sum, m.stored)
	}
}

// A countingReader reports the bytes as they are read.
type countingReader struct {
	r     io.Reader
	count func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(int64(n))
	return n, err
}
