package images

import (
	"context"
	"io"

	"e3/internal/format/image"
	"e3/objectstore"
)

// Progress tells how much of an image's layers has been read. It leaves out layers that the repository has.
type Progress struct {
	Layer, Layers int   // the layer being read, counted from 1, and the number of layers
	Bytes, Total  int64 // bytes read, and bytes of all layers in stored form
}

// A Watch is called before an image is fetched from a registry (remote) or read from this machine. progress, which may be nil,
// is called by one goroutine while layers are read. end is called once, after success or failure.
type Watch func(reference string, remote bool) (progress func(Progress), end func())

// follow calls the Watch, if there is one.
func (r *Resolver) follow(ref *image.Reference) (progress func(Progress), end func()) {
	end = func() {}
	if r.Watch != nil {
		progress, end = r.Watch(ref.Text, ref.Source == image.Registry)
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	return progress, end
}

// missing are the layers that the repository lacks, each once.
func (r *Resolver) missing(ctx context.Context, m *image.Manifest) (list []image.Descriptor, bytes int64, err error) {
	seen := map[objectstore.Hash]bool{}
	for _, d := range m.Layers {
		h, err := d.Hash()
		if err != nil {
			return nil, 0, err
		}
		if seen[h] {
			continue
		}
		seen[h] = true
		there, err := r.Objects.Refresh(ctx, h)
		if err != nil {
			return nil, 0, err
		}
		if !there {
			list, bytes = append(list, d), bytes+d.Size
		}
	}
	return list, bytes, nil
}

// layers stores the layers that the repository lacks.
func (r *Resolver) layers(ctx context.Context, src Source, m *image.Manifest, progress func(Progress)) error {
	list, total, err := r.missing(ctx, m)
	if err != nil {
		return err
	}
	p := Progress{Layers: len(list), Total: total}
	for i, d := range list {
		p.Layer = i + 1
		progress(p)
		if err := r.layer(ctx, src, d, func(n int) {
			p.Bytes += int64(n)
			progress(p)
		}); err != nil {
			return err
		}
	}
	return nil
}

// countingReader tells how many bytes were read.
type countingReader struct {
	io.Reader
	count func(int)
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.count(n)
	return n, err
}
