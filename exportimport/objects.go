package exportimport

import (
	"context"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/zipfile"
	"e3/objectstore"
)

// takeObjects stores the objects of the zip that the closure has met, several at a time, unless this is a dry run. It
// reads all bytes of the zip, so that a damaged object is refused even if the repository has an intact copy, or if
// nothing refers to it.
func (m *importer) takeObjects(ctx context.Context) error {
	workers := m.opts.Workers
	if workers <= 0 {
		workers = max(runtime.GOMAXPROCS(0), m.repo.Workspaces.Lookups)
	}
	g, ctx := errgroup.WithContext(ctx)
	entries := make(chan objectEntry, 16*workers)
	for range workers {
		g.Go(func() error {
			for o := range entries {
				if err := m.takeObject(ctx, &o); err != nil {
					return err
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
	if err := g.Wait(); err != nil {
		return err
	}
	m.res.ObjectsAdded, m.res.ObjectsLeft = m.content.count()
	if m.res.ObjectsLeft > 0 {
		m.note("%d objects are left out: nothing in the zip refers to them", m.res.ObjectsLeft)
	}
	return nil
}

// objectEntry is an object in the zip.
type objectEntry struct {
	entry zipfile.Entry
	hash  objectstore.Hash
}

// eachObject yields the objects in the order of the zip.
func (m *importer) eachObject(yield func(objectEntry) error) error {
	for e, err := range m.zip.Entries() {
		if err != nil {
			return err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != objectPart {
			continue
		}
		if err := yield(objectEntry{e, n.object}); err != nil {
			return err
		}
	}
	return nil
}

// takeObject reads an object to its end, and stores it if it is new here. It must hash to its name.
func (m *importer) takeObject(ctx context.Context, o *objectEntry) error {
	read := hashed
	if m.content.store(o.hash) && !m.opts.DryRun {
		read = func(r io.Reader) (objectstore.Info, error) { return m.repo.Objects.Put(ctx, r) }
	}
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

// advance adds n to the bytes of objects that are done, and reports the sum.
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
