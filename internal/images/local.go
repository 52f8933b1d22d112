package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"e3/internal/format/digest"
	"e3/internal/format/image"
)

// files are the files of a layout, in a folder or an archive.
type files interface {
	open(name string) (io.ReadCloser, error) // a missing file is fs.ErrNotExist
	Close() error
}

const (
	indexFile  = "index.json"
	dockerFile = "manifest.json"
)

// openLocal returns the source of an image in a folder or an archive.
func openLocal(base string, ref *image.Reference) (Source, error) {
	at := within(base, ref.Path)
	info, err := os.Stat(at)
	if err != nil {
		return nil, err
	}
	var f files
	switch {
	case ref.Source == image.Layout && info.IsDir():
		f, err = openFolder(at)
	case ref.Source == image.Archive && info.Mode().IsRegular():
		f, err = openArchive(at)
	case info.IsDir():
		err = fmt.Errorf("%s is a folder: write oci:%s", at, ref.Path)
	default:
		err = fmt.Errorf("%s is no folder: write oci-archive:%s", at, ref.Path)
	}
	if err != nil {
		return nil, err
	}
	l := &layout{files: f, at: at}
	if top, err := l.read(indexFile); err == nil {
		l.top = top
		return l, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, f.Close())
	}
	if l.top, err = l.convert(ref.Tag); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ref.Tag = "" // convert has chosen
	return l, nil
}

// localState is the state on which the content of a folder or an archive depends.
func localState(at string) string {
	info, err := os.Stat(at)
	if err == nil && info.IsDir() {
		var index []byte
		if index, err = os.ReadFile(filepath.Join(at, indexFile)); err == nil {
			return digest.Sum(index).String()
		}
	}
	if err != nil {
		return "unreadable"
	}
	return fileState(info)
}

// A layout is the source of an image on this machine.
type layout struct {
	files
	at    string
	top   []byte
	names map[string]string // for converted archives: the file of a blob, by its digest
}

func (l *layout) Top(context.Context) ([]byte, error) { return l.top, nil }

func (l *layout) Blob(_ context.Context, d image.Descriptor) (io.ReadCloser, error) {
	h, err := d.Hash()
	if err != nil {
		return nil, err
	}
	name, ok := l.names[d.Digest]
	if !ok {
		name = "blobs/sha256/" + h.String()
	}
	r, err := l.open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.at, err)
	}
	return r, nil
}

// read reads a file that fits in memory.
func (l *layout) read(name string) ([]byte, error) {
	r, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(r, image.MaxManifest+1))
	if err == nil && len(data) > image.MaxManifest {
		err = fmt.Errorf("%s: %s has more than %d bytes", l.at, name, image.MaxManifest)
	}
	return data, err
}

// convert makes a manifest for an archive of an old docker save, which did not write layouts. Such an archive has a
// list of images; their layers are not compressed and have no digests. The same archive always gives the same manifest.
func (l *layout) convert(tag string) ([]byte, error) {
	data, err := l.read(dockerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has neither %s nor %s: it is no image", l.at, indexFile, dockerFile)
	}
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", l.at, dockerFile, err)
	}
	at := -1
	var names []string
	for i := range list {
		fits := tag == ""
		for _, name := range list[i].RepoTags {
			names = append(names, name)
			fits = fits || name == tag || strings.HasSuffix(name, ":"+tag)
		}
		if fits && at >= 0 {
			return nil, fmt.Errorf("%s has several images, so a tag must follow the path, after a colon: %s", l.at, strings.Join(names, ", "))
		}
		if fits {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("%s has no image with the tag %q, but %s", l.at, tag, strings.Join(names, ", "))
	}
	l.names = map[string]string{}
	m := image.Manifest{SchemaVersion: 2, MediaType: image.TypeManifest}
	if m.Config, err = l.describe(list[at].Config, image.TypeConfig); err != nil {
		return nil, err
	}
	for _, name := range list[at].Layers {
		d, err := l.describe(name, image.TypeLayer)
		if err != nil {
			return nil, err
		}
		m.Layers = append(m.Layers, d)
	}
	return json.Marshal(m)
}

// describe makes the descriptor of a file.
func (l *layout) describe(name, mediaType string) (image.Descriptor, error) {
	r, err := l.open(name)
	if err != nil {
		return image.Descriptor{}, fmt.Errorf("%s: %w", l.at, err)
	}
	defer r.Close() // nothing was written
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	d := image.Descriptor{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sum.Sum(nil)), Size: n}
	l.names[d.Digest] = name
	return d, err
}

// A folder is a layout in a folder. Nothing outside of the folder is read.
type folder struct{ *os.Root }

func openFolder(at string) (files, error) {
	root, err := os.OpenRoot(at)
	return folder{root}, err
}

func (f folder) open(name string) (io.ReadCloser, error) { return f.Open(filepath.FromSlash(name)) }

// An archive is a layout in a tar file.
type archive struct {
	file    *os.File
	entries map[string]span
}

// A span is the place of an entry's content.
type span struct {
	offset, size int64
	link         string
}

// maxEntries bounds the entries of an archive.
const maxEntries = 1 << 20

func openArchive(at string) (files, error) {
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	a := &archive{file: f, entries: map[string]span{}}
	if err := a.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at, err), f.Close())
	}
	return a, nil
}

// read finds the entries. The tar reader seeks over their content.
func (a *archive) read() error {
	magic := make([]byte, 4)
	n, err := a.file.ReadAt(magic, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}) || bytes.Equal(magic[:n], []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return errors.New("the archive is compressed: unpack it with gunzip or zstd -d first")
	}
	t := tar.NewReader(a.file)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		offset, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if len(a.entries) == maxEntries {
			return fmt.Errorf("the archive has more than %d entries", maxEntries)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			a.entries[path.Clean(h.Name)] = span{offset: offset, size: h.Size}
		case tar.TypeSymlink, tar.TypeLink:
			target := h.Linkname
			if h.Typeflag == tar.TypeSymlink {
				target = path.Join(path.Dir(h.Name), target)
			}
			a.entries[path.Clean(h.Name)] = span{link: path.Clean(target)}
		}
	}
}

func (a *archive) open(name string) (io.ReadCloser, error) {
	at := path.Clean(name)
	for range 8 {
		e, ok := a.entries[at]
		if !ok {
			break
		}
		if e.link == "" {
			return io.NopCloser(io.NewSectionReader(a.file, e.offset, e.size)), nil
		}
		at = e.link
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func (a *archive) Close() error { return a.file.Close() }

// fileState identifies the state of a file.
func fileState(info fs.FileInfo) string {
	number := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		number = s.Ino
	}
	return fmt.Sprintf("%d %d %d", info.Size(), info.ModTime().UnixNano(), number)
}
