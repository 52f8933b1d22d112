package images

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/image"
	"e3/objectstore"
)

// Image is an image to which a reference leads.
type Image struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest,omitempty"` // of the manifest for this platform
	Was       string `json:"was,omitempty"`    // pinned before an update
	Whole     bool   `json:"here"`             // the repository has all parts of the image
	Layers    int    `json:"layers,omitempty"`
	Size      int64  `json:"size,omitempty"`  // compressed size
	Fault     string `json:"fault,omitempty"` // why it is not known
}

// Digest writes the hash of a manifest as registries do.
func Digest(hash string) string { return "sha256:" + hash }

// List tells which images the repository has, without fetching one.
func (r *Resolver) List(ctx context.Context, base string, refs []string) ([]Image, error) {
	list := make([]Image, 0, len(refs))
	for _, text := range refs {
		l := Image{Reference: text}
		h, err := r.resolve(ctx, base, text, true)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil {
			err = r.describe(ctx, h, &l)
		}
		if err != nil {
			l.Fault = err.Error()
		}
		list = append(list, l)
	}
	return list, nil
}

// describe fills in the facts of a manifest.
func (r *Resolver) describe(ctx context.Context, h objectstore.Hash, l *Image) error {
	l.Digest = Digest(h.String())
	whole, err := r.whole(ctx, h)
	if err != nil || !whole {
		return err
	}
	data, err := objectstore.ReadAll(ctx, r.Objects, h, image.MaxManifest)
	if err != nil {
		return err
	}
	m, err := image.DecodeManifest(data)
	if err != nil {
		return err
	}
	l.Whole, l.Layers, l.Size = true, len(m.Layers), m.Config.Size+int64(len(data))
	for _, d := range m.Layers {
		l.Size += d.Size
	}
	return nil
}

// Fetch makes images whole in the repository, and pins new names. The list has all images that were fetched before an
// error.
func (r *Resolver) Fetch(ctx context.Context, base string, refs []string) ([]Image, error) {
	return r.each(ctx, refs, func(text string, l *Image) (objectstore.Hash, error) { return r.resolve(ctx, base, text, false) })
}

// Update finds out what the names of images mean now, fetches these images, and pins them. It leaves out references
// that are not names with a tag: they always mean the same image, or follow their file.
func (r *Resolver) Update(ctx context.Context, base string, refs []string) ([]Image, error) {
	var tagged []string
	for _, text := range refs {
		if ref, err := image.ParseReference(text); err == nil && ref.Source == image.Registry && ref.Digest == "" {
			tagged = append(tagged, text)
		}
	}
	return r.each(ctx, tagged, func(text string, l *Image) (objectstore.Hash, error) {
		ref, err := image.ParseReference(text)
		if err != nil {
			return objectstore.Hash{}, err
		}
		lock, err := ReadLock(base)
		if err != nil {
			return objectstore.Hash{}, err
		}
		before, known := lock.Get(text, Platform())
		if known {
			l.Was = Digest(before.String())
		}
		h, err := r.Pull(ctx, &ref, objectstore.Hash{})
		if err == nil && h != before {
			// Other platforms get the new image when they resolve the name for the first time.
			err = updateLock(base, func(l *image.Lock) {
				l.Drop(text)
				l.Set(text, Platform(), h)
			})
		}
		return h, err
	})
}

func (r *Resolver) each(ctx context.Context, refs []string, do func(string, *Image) (objectstore.Hash, error)) ([]Image, error) {
	list := []Image{}
	for _, text := range refs {
		l := Image{Reference: text}
		h, err := do(text, &l)
		if err == nil {
			err = r.describe(ctx, h, &l)
		}
		if err == nil && !l.Whole {
			err = errors.New("it was removed meanwhile; try again")
		}
		if err != nil {
			return list, fmt.Errorf("image %s: %w", text, err)
		}
		list = append(list, l)
	}
	return list, nil
}
