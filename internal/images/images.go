// Package images brings images into a repository: from a registry, a folder in the OCI layout, or an archive. Manifest,
// configuration and layers become objects; their names in the image, SHA-256, are also names of objects.
package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"e3/internal/format/digest"
	"e3/internal/format/image"
	"e3/objectstore"
)

// Objects are the objects of a repository.
type Objects interface {
	objectstore.Store
	// Refresh protects an object from running collections, as a put would, and reports whether it exists.
	Refresh(ctx context.Context, h objectstore.Hash) (bool, error)
}

// A Resolver finds the images to which references of package files lead, on this machine's platform.
type Resolver struct {
	Objects  Objects
	Registry Registry // nil: no image comes from a registry
	Watch    Watch    // nil: no progress is reported
}

// A Registry serves images by their names.
type Registry interface {
	// Open returns the source of an image, by a name with a tag, or with a digest ("sha256:…").
	Open(ctx context.Context, name, digest string) (Source, error)
}

// A Source has the parts of an image.
type Source interface {
	// Top returns the manifest of the image, or an index.
	Top(ctx context.Context) ([]byte, error)
	// Blob returns the content that a descriptor of the source names. The bytes are not checked yet.
	Blob(ctx context.Context, d image.Descriptor) (io.ReadCloser, error)
	Close() error
}

// ErrDry is wrapped if an image is not known without fetching it, and nothing may be written.
var ErrDry = errors.New("it has not been fetched yet; e3 image pull does that, and so does a start")

// Platform is the platform of this machine.
func Platform() image.Platform { return image.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Resolve implements workspace.Images.
func (r *Resolver) Resolve(ctx context.Context, base string, refs []string, dry bool) (map[string]string, string, error) {
	hashes := map[string]string{}
	for _, text := range refs {
		h, err := r.resolve(ctx, base, text, dry)
		if err != nil {
			return nil, "", fmt.Errorf("image %s: %w", text, err)
		}
		hashes[text] = h.String()
	}
	return hashes, state(base, slices.Sorted(maps.Keys(hashes))), nil
}

func (r *Resolver) resolve(ctx context.Context, base, text string, dry bool) (objectstore.Hash, error) {
	ref, err := image.ParseReference(text)
	if err != nil {
		return objectstore.Hash{}, err
	}
	switch ref.Source {
	case image.Stored:
		whole, err := r.whole(ctx, ref.Hash)
		if err == nil && !whole {
			err = fmt.Errorf("it is not in the repository: write its name in the package file, or import a zip that has it")
		}
		return ref.Hash, err
	case image.Registry:
		return r.named(ctx, base, &ref, dry)
	}
	src, err := openLocal(base, &ref)
	if err != nil {
		return objectstore.Hash{}, err
	}
	defer src.Close() // nothing was written
	if dry {
		return r.take(ctx, src, &ref, nil)
	}
	progress, end := r.follow(&ref)
	defer end()
	return r.take(ctx, src, &ref, progress)
}

// named resolves a name by e3.lock, and pins a new name there.
func (r *Resolver) named(ctx context.Context, base string, ref *image.Reference, dry bool) (objectstore.Hash, error) {
	lock, err := ReadLock(base)
	if err != nil {
		return objectstore.Hash{}, err
	}
	pinned, known := lock.Get(ref.Text, Platform())
	if known {
		if whole, err := r.whole(ctx, pinned); err != nil || whole || dry {
			return pinned, err
		}
	}
	if dry {
		return objectstore.Hash{}, ErrDry
	}
	h, err := r.Pull(ctx, ref, pinned)
	if err == nil && !known {
		err = updateLock(base, func(l *image.Lock) { l.Set(ref.Text, Platform(), h) })
	}
	return h, err
}

// Pull fetches an image from a registry. pinned, unless it is zero, is the hash of the manifest to fetch.
func (r *Resolver) Pull(ctx context.Context, ref *image.Reference, pinned objectstore.Hash) (objectstore.Hash, error) {
	if r.Registry == nil {
		return objectstore.Hash{}, errors.New("this e3 has no access to registries")
	}
	progress, end := r.follow(ref)
	defer end()
	sum := ref.Digest
	if !pinned.IsZero() {
		sum = "sha256:" + pinned.String()
	}
	src, err := r.Registry.Open(ctx, ref.Name, sum)
	if err != nil {
		return objectstore.Hash{}, err
	}
	defer src.Close() // nothing was written
	h, err := r.take(ctx, src, ref, progress)
	if err == nil && !pinned.IsZero() && h != pinned {
		err = fmt.Errorf("the registry has sent the manifest sha256:%s instead of sha256:%s", h, pinned)
	}
	return h, err
}

// whole reports whether the repository has all of an image, and protects it from running collections.
func (r *Resolver) whole(ctx context.Context, h objectstore.Hash) (bool, error) {
	there, err := r.Objects.Refresh(ctx, h)
	if err != nil || !there {
		return false, err
	}
	data, err := objectstore.ReadAll(ctx, r.Objects, h, image.MaxManifest)
	if err != nil {
		return false, err
	}
	m, err := image.DecodeManifest(data)
	if err != nil {
		return false, err
	}
	for _, part := range m.Hashes() {
		if there, err := r.Objects.Refresh(ctx, part); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// maxNesting bounds indexes that list indexes.
const maxNesting = 4

// take stores the parts of an image that the repository lacks, the manifest last. Without progress nothing is stored.
func (r *Resolver) take(ctx context.Context, src Source, ref *image.Reference, progress func(Progress)) (objectstore.Hash, error) {
	fail := func(err error) (objectstore.Hash, error) { return objectstore.Hash{}, err }
	top, err := src.Top(ctx)
	if err != nil {
		return fail(err)
	}
	tag := ref.Tag
	for n := 0; image.IsIndex(top); n++ {
		index, err := image.DecodeIndex(top)
		if err != nil {
			return fail(err)
		}
		if n == maxNesting {
			return fail(fmt.Errorf("more than %d indexes lead to the image", maxNesting))
		}
		d, err := index.Choose(Platform(), tag)
		if err != nil {
			return fail(err)
		}
		if top, err = small(ctx, src, *d); err != nil {
			return fail(err)
		}
		tag = ""
	}
	m, err := image.DecodeManifest(top)
	if err != nil {
		return fail(err)
	}
	config, err := small(ctx, src, m.Config)
	if err != nil {
		return fail(err)
	}
	c, err := image.DecodeConfig(config, len(m.Layers))
	if err != nil {
		return fail(err)
	}
	if p := Platform(); c.OS != p.OS || c.Architecture != p.Architecture {
		return fail(fmt.Errorf("the image is for %s, and this machine is %s", c.Platform, p))
	}
	if progress == nil {
		return digest.Sum(top), nil
	}
	if err := r.layers(ctx, src, m, progress); err != nil {
		return fail(err)
	}
	if _, err := objectstore.PutBytes(ctx, r.Objects, config); err != nil {
		return fail(err)
	}
	return objectstore.PutBytes(ctx, r.Objects, top)
}

// small reads a part that fits in memory, and checks it.
func small(ctx context.Context, src Source, d image.Descriptor) ([]byte, error) {
	if d.Size > image.MaxManifest {
		return nil, fmt.Errorf("%s has %d bytes, which is too much for a manifest", d.Digest, d.Size)
	}
	r, err := src.Blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written
	checked, err := checking(ctx, r, d)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(checked)
}

// layer stores a layer, and counts its bytes.
func (r *Resolver) layer(ctx context.Context, src Source, d image.Descriptor, count func(int)) error {
	blob, err := src.Blob(ctx, d)
	if err != nil {
		return err
	}
	defer blob.Close() // nothing was written
	checked, err := checking(ctx, blob, d)
	if err != nil {
		return err
	}
	if _, err := r.Objects.Put(ctx, &countingReader{checked, count}); err != nil {
		return fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	return nil
}

// A checkedReader yields the content that a descriptor names. If the bytes are wrong, it yields an error instead of the
// end.
type checkedReader struct {
	ctx  context.Context
	r    io.Reader
	d    image.Descriptor
	want objectstore.Hash
	left int64
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func checking(ctx context.Context, r io.Reader, d image.Descriptor) (io.Reader, error) {
	h, err := d.Hash()
	return &checkedReader{ctx: ctx, r: r, d: d, want: h, left: d.Size, sum: sha256.New()}, err
}

func (c *checkedReader) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(b)
	_, _ = c.sum.Write(b[:n]) // a hash accepts every write
	c.left -= int64(n)
	switch {
	case c.left < 0:
		return 0, fmt.Errorf("%s has more than its %d bytes", c.d.Digest, c.d.Size)
	case errors.Is(err, io.EOF) && (c.left > 0 || objectstore.Hash(c.sum.Sum(nil)) != c.want):
		return 0, fmt.Errorf("%s was cut or changed on the way: %d of %d bytes, with the digest sha256:%x", c.d.Digest, c.d.Size-c.left, c.d.Size, c.sum.Sum(nil))
	}
	return n, err
}

// State implements workspace.Images.
func (r *Resolver) State(base, before string) string {
	var refs []string
	for line := range strings.Lines(before) {
		ref, _, _ := strings.Cut(line, "\t")
		refs = append(refs, ref)
	}
	return state(base, refs)
}

// state has a line for each reference: the text, a tab, and the state on which its image depends.
func state(base string, refs []string) string {
	var b strings.Builder
	for _, text := range refs {
		what := "unreadable"
		ref, err := image.ParseReference(text)
		switch {
		case err != nil:
		case ref.Source == image.Stored:
			what = "stored"
		case ref.Source == image.Registry:
			if lock, err := ReadLock(base); err == nil {
				h, _ := lock.Get(text, Platform())
				what = h.String()
			}
		default:
			what = localState(within(base, ref.Path))
		}
		fmt.Fprintf(&b, "%s\t%s\n", text, what)
	}
	return b.String()
}

// within returns the path of a reference on this machine.
func within(base, path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}
