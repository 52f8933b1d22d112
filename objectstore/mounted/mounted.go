// Package mounted keeps objects, and blobs beside them, in a folder that machines share by a network's file system.
//
// An object is the file objects/<2 hex>/<62 hex>. It is written under a name of its own, synced, dated and renamed, so it
// appears whole, and survives the server's end once a put has returned. This package does not check the bytes it reads
// against the name: the caller does so while it stores them, see objectstore/cached.
//
// # What another machine sees
//
// A client of NFS may remember for a minute that a name exists, or that it does not. It asks the server again when the
// file, or the folder around it, is opened (close-to-open consistency). So nothing here is looked at without opening it, and
// a missing name is looked for a second time after its folder has been opened.
//
// # Dates
//
// An object is dated by the server when it is complete, since clocks of clients differ; [Folder.Now] is the same clock.
//
// # Late removals
//
// A mount that hangs may deliver a removal long after it was asked for. Nothing as short as a signature limits this. So
// objects are removed one by one, each after a look at the lease ([Options.Permit]); and an object is first renamed, and
// renamed back if the lease has ended by then.
package mounted

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	"e3/objectstore"
)

// Options say where a Folder is.
type Options struct {
	// Base is a folder that exists: it is never made, as a file system that is not mounted looks like a missing folder. Files
	// and folders in it are made for the users of Base: its owner, its group, or all.
	Base string
	// Below is the path of this store in it.
	Below string
	// Permit, if it is not nil, returns an error once objects may not be removed any more.
	Permit func(ctx context.Context) error
}

// A Folder is the objects and blobs below one folder. All methods may be called concurrently, on any number of machines.
type Folder struct {
	o Options

	mu    sync.Mutex
	root  *beneath.Dir // nil until it was opened
	modes modes.Modes
}

// The folders of a store. Files are made, and removed, in the second.
const (
	objects = "objects"
	aside   = "aside"
)

// Open returns a store. It looks at nothing yet.
func Open(o Options) *Folder { return &Folder{o: o} }

// Path is the folder of the store.
func (f *Folder) Path() string { return filepath.Join(f.o.Base, filepath.FromSlash(f.o.Below)) }

// Close closes the folder. Calls that are under way fail.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.root.Close()
}

// accessOf says for whom a folder is.
func accessOf(mode fs.FileMode) modes.Access {
	switch perm := mode.Perm(); {
	case perm&0o077 == 0:
		return modes.Private
	case perm&0o020 == 0:
		return modes.Umask
	case perm&0o004 == 0:
		return modes.Group
	}
	return modes.World
}

// Create makes the folders of the store that are missing.
func (f *Folder) Create(context.Context) error {
	base, err := beneath.Open(f.o.Base)
	if err != nil {
		return notMounted(err)
	}
	defer base.Close()
	info, err := base.Lstat(".")
	if err != nil {
		return err
	}
	m := modes.Of(accessOf(info.Mode()), f.o.Base)
	for _, name := range f.folders() {
		if err := m.MkdirAll(base, filepath.Join(filepath.FromSlash(f.o.Below), name)); err != nil {
			return err
		}
	}
	return syncFolder(base, filepath.Join(filepath.FromSlash(f.o.Below), objects))
}

func (f *Folder) folders() []string {
	names := []string{aside}
	for shard := range objectstore.Shards {
		names = append(names, filepath.Join(objects, hex.EncodeToString([]byte{byte(shard)})))
	}
	return names
}

// Empty removes the store with all that is in it.
func (f *Folder) Empty(context.Context) error {
	base, err := beneath.Open(f.o.Base)
	if err != nil {
		return err
	}
	defer base.Close()
	return base.RemoveAll(filepath.FromSlash(f.o.Below))
}

func notMounted(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; is its file system mounted here?", err)
	}
	return err
}

// open opens the folder when it is first needed.
func (f *Folder) open() (*beneath.Dir, modes.Modes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root == nil {
		root, err := beneath.Open(f.Path())
		if err != nil {
			return nil, f.modes, notMounted(err)
		}
		info, err := root.Lstat(".")
		if err != nil {
			return nil, f.modes, errors.Join(err, root.Close())
		}
		f.root, f.modes = root, modes.Of(accessOf(info.Mode()), f.Path())
	}
	return f.root, f.modes, nil
}

func file(h objectstore.Hash) string {
	text := h.String()
	return filepath.Join(objects, text[:2], text[2:])
}

// read opens a file as the server has it now.
func (f *Folder) read(ctx context.Context, name string) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, _, err := f.open()
	if err != nil {
		return nil, err
	}
	file, _, err := objectstore.OpenFileIn(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		folder, missing := root.OpenFile(filepath.Dir(name), os.O_RDONLY|beneath.Folder, 0)
		if missing != nil {
			return nil, fmt.Errorf("the store of objects is damaged: %w", notMounted(missing))
		}
		defer folder.Close()
		file, _, err = objectstore.OpenFileIn(root, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", root.Path(name), objectstore.ErrNotFound)
	}
	return file, err
}

// Open returns the bytes of h, unchecked.
func (f *Folder) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	file, err := f.read(ctx, file(h))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", h, err)
	}
	return file, nil
}

// Fetch writes the bytes of h to w, unchecked, and returns their number.
func (f *Folder) Fetch(ctx context.Context, h objectstore.Hash, w io.WriterAt) (int64, error) {
	r, err := f.Open(ctx, h)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := io.Copy(io.NewOffsetWriter(w, 0), reader{ctx, r})
	if err != nil {
		return n, fmt.Errorf("object %s: %w", h, err)
	}
	return n, nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// Stat returns the size of h and the time at which it was put, by the server's clock.
func (f *Folder) Stat(ctx context.Context, h objectstore.Hash) (objectstore.Entry, error) {
	file, err := f.read(ctx, file(h))
	if err == nil {
		defer file.Close()
		var info fs.FileInfo
		if info, err = file.Stat(); err == nil {
			return objectstore.Entry{Info: objectstore.Info{Hash: h, Size: info.Size()}, Time: info.ModTime()}, nil
		}
	}
	return objectstore.Entry{}, fmt.Errorf("object %s: %w", h, err)
}

// List yields the objects whose names begin with a byte, in order.
func (f *Folder) List(ctx context.Context, shard byte) iter.Seq2[objectstore.Entry, error] {
	return func(yield func(objectstore.Entry, error) bool) {
		fail := func(err error) { yield(objectstore.Entry{}, fmt.Errorf("list objects: %w", err)) }
		root, _, err := f.open()
		if err != nil {
			fail(err)
			return
		}
		digits := hex.EncodeToString([]byte{shard})
		folder, err := root.Sub(filepath.Join(objects, digits))
		if err != nil {
			fail(notMounted(err))
			return
		}
		defer folder.Close()
		found, err := folder.ReadDir()
		if err != nil {
			fail(err)
			return
		}
		slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, e := range found {
			h, err := objectstore.ParseHash(digits + e.Name())
			if err != nil {
				continue
			}
			info, err := folder.Lstat(e.Name())
			if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
				continue
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				fail(err)
				return
			}
			if !yield(objectstore.Entry{Info: objectstore.Info{Hash: h, Size: info.Size()}, Time: info.ModTime()}, nil) {
				return
			}
		}
	}
}

// Put stores the bytes of body under h unless an object of that size has the name.
func (f *Folder) Put(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) (created bool, err error) {
	switch e, err := f.Stat(ctx, h); {
	case err == nil && e.Size == size:
		return false, nil
	case err != nil && !errors.Is(err, objectstore.ErrNotFound):
		return false, err
	}
	return true, f.Replace(ctx, h, body, size)
}

// Replace is Put that replaces an existing object.
func (f *Folder) Replace(ctx context.Context, h objectstore.Hash, body io.ReaderAt, size int64) error {
	if err := f.write(ctx, file(h), io.NewSectionReader(body, 0, size), false); err != nil {
		return fmt.Errorf("put object %s: %w", h, err)
	}
	return nil
}

// write makes a file aside, and renames it once the server has its bytes.
func (f *Folder) write(ctx context.Context, name string, r io.Reader, exclusive bool) error {
	root, _, err := f.open()
	if err != nil {
		return err
	}
	temporary, _, err := f.make(func(w *os.File) error {
		if _, err := io.Copy(w, reader{ctx, r}); err != nil {
			return err
		}
		return w.Sync()
	})
	if err != nil {
		return err
	}
	if exclusive {
		err = root.RenameExclusive(temporary, name)
	} else {
		err = root.Rename(temporary, root, name)
	}
	if err != nil {
		return errors.Join(err, root.Unlink(temporary))
	}
	return syncFolder(root, filepath.Dir(name))
}

// make makes a file aside, with the mode and the group of the store, and dates it after fill.
func (f *Folder) make(fill func(w *os.File) error) (name string, dated time.Time, err error) {
	root, m, err := f.open()
	if err != nil {
		return "", dated, err
	}
	name = filepath.Join(aside, rand.Text())
	w, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.File())
	if err != nil {
		return "", dated, notMounted(err)
	}
	err = errors.Join(m.Fix(w, m.File()), fill(w))
	if err == nil {
		if err = objectstore.TouchNow(w); errors.Is(err, errors.ErrUnsupported) { // the last write has dated it
			err = nil
		}
	}
	info, failed := w.Stat()
	if err = errors.Join(err, failed, w.Close()); err != nil { // a client of NFS may report a failed write as late as this
		return "", dated, errors.Join(err, root.Unlink(name))
	}
	return name, info.ModTime(), nil
}

// syncFolder makes new names in a folder durable.
func syncFolder(root *beneath.Dir, name string) error {
	folder, err := root.OpenFile(name, os.O_RDONLY|beneath.Folder, 0)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Now returns the time by the clock that dates objects.
func (f *Folder) Now(context.Context) (time.Time, error) {
	name, now, err := f.make(func(*os.File) error { return nil })
	if err != nil {
		return now, fmt.Errorf("ask for the time of %s: %w", f.Path(), err)
	}
	return now, f.root.Unlink(name)
}

// Delete removes objects. An absent object counts as removed. objectstore.ErrRefused: some were not removed, and no try
// can still take effect.
func (f *Folder) Delete(ctx context.Context, hs []objectstore.Hash) error {
	root, _, err := f.open()
	if err != nil {
		return fmt.Errorf("delete objects: %w: %w", objectstore.ErrRefused, err)
	}
	for _, h := range hs {
		if err := f.permit(ctx); err != nil {
			return fmt.Errorf("delete object %s: %w: %w", h, objectstore.ErrRefused, err)
		}
		moved := filepath.Join(aside, rand.Text())
		switch err := root.Rename(file(h), root, moved); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
			return fmt.Errorf("delete object %s: %w: %w", h, objectstore.ErrRefused, err)
		case err != nil:
			return fmt.Errorf("delete object %s: %w", h, err)
		}
		if err := f.permit(ctx); err != nil {
			return fmt.Errorf("delete object %s: %w: %w", h, objectstore.ErrRefused, errors.Join(err, root.Rename(moved, root, file(h))))
		}
		if err := root.Unlink(moved); err != nil {
			return fmt.Errorf("delete object %s: %w", h, err)
		}
	}
	return nil
}

func (f *Folder) permit(ctx context.Context) error {
	if err := ctx.Err(); err != nil || f.o.Permit == nil {
		return err
	}
	return f.o.Permit(ctx)
}

// RemoveUploads removes what crashes have left of puts that began before a time.
func (f *Folder) RemoveUploads(ctx context.Context, before time.Time) (removed int, err error) {
	root, _, err := f.open()
	if err != nil {
		return 0, err
	}
	folder, err := root.Sub(aside)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	left, err := folder.ReadDir()
	for _, e := range left {
		info, gone := folder.Lstat(e.Name())
		if gone != nil || !info.ModTime().Before(before) {
			continue
		}
		if failed := folder.Unlink(e.Name()); failed == nil {
			removed++
		} else if !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return removed, errors.Join(err, ctx.Err())
}

// PutBlob stores data under a name in the folder, in place of what is there.
func (f *Folder) PutBlob(ctx context.Context, name string, data []byte) error {
	return f.write(ctx, name, bytes.NewReader(data), false)
}

// CreateBlob is PutBlob unless the name is taken, and reports whether it has put the blob.
func (f *Folder) CreateBlob(ctx context.Context, name string, data []byte) (created bool, err error) {
	err = f.write(ctx, name, bytes.NewReader(data), true)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// OpenBlob returns the bytes of a blob from an offset on. An absent blob is objectstore.ErrNotFound.
func (f *Folder) OpenBlob(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	file, err := f.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err = file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
