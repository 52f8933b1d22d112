package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/host/beneath"
	"e3/internal/host/filelock"
)

// A stat holds the attributes of a file that the store uses.
type stat struct {
	dev, ino     uint64
	links        uint64
	owner        int // user id
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	regular      bool
	perm         fs.FileMode
}

// sameContent reports whether two stats of a file show no sign of a change in between.
func (s stat) sameContent(t stat) bool {
	return s.dev == t.dev && s.ino == t.ino && s.size == t.size && s.mtime == t.mtime && s.ctime == t.ctime
}

// asidePrefix begins the names of files and folders aside.
const asidePrefix = "put-"

// An aside is the file of an object that has no object name yet.
type aside struct {
	*os.File
	in   *beneath.Dir // the folder with its temporary name, which is to be removed; nil: it has none
	name string
}

// named reports whether the file has a temporary name.
func (a aside) named() bool { return a.in != nil }

// discard closes the file and removes it.
func (a aside) discard() {
	a.Close()
	if a.named() {
		a.in.Unlink(a.name)
	}
}

// fill returns a writer of a's content.
func (a aside) fill() *sparseWriter { return &sparseWriter{f: a.File, kept: new(writeBack)} }

// open returns the writer. It begins the caller's session, and makes a first file to find out how the file system
// handles modes and times.
func (d *Dir) open() (*writer, error) {
	if w := d.writer.Load(); w != nil {
		return w, nil
	}
	d.writerMu.Lock()
	defer d.writerMu.Unlock()
	if w := d.writer.Load(); w != nil {
		return w, nil
	}
	if err := d.mkdir(d.base); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	w := &writer{Dir: d}
	scratch := d.Path()
	if d.session != nil {
		dir, began, err := d.session()
		if err != nil {
			return nil, fmt.Errorf("object store: session: %w", err)
		}
		scratch, w.began = dir, began.UnixNano()
	}
	if err := w.enter(scratch); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	if !atomicfile.CanLinkOpen() {
		d.named.Store(true)
	}
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	defer a.discard()
	// Some file systems set the time at the first write only.
	if _, err := a.Write([]byte{0}); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	st, err := fstat(a.File)
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	if d.session == nil {
		w.began = st.mtime
	}
	w.dev = st.dev
	w.chmod = st.perm != d.modes.Object()
	w.skew = time.Until(time.Unix(0, st.mtime))
	d.writer.Store(w)
	return w, nil
}

// enter opens the folder for files aside.
func (w *writer) enter(path string) (err error) {
	if name, ok := strings.CutPrefix(path, w.root.Name()+string(filepath.Separator)); ok {
		w.scratch, err = w.root.Sub(name)
	} else {
		w.scratch, err = beneath.Open(path)
	}
	if err != nil {
		return err // for instance the folder of a session that is gone
	}
	runtime.AddCleanup(w, func(scratch *beneath.Dir) { scratch.Close() }, w.scratch)
	return nil
}

// create opens a new file in a folder, which must exist.
func (w *writer) create(in *beneath.Dir, folder string) (aside, error) {
	if !w.named.Load() {
		f, err := in.Unnamed(folder, w.modes.Object())
		if err == nil {
			return aside{File: f}, nil
		}
		if !atomicfile.UnnamedUnsupported(err) {
			return aside{}, w.foreign(folder, err)
		}
		w.named.Store(true)
	}
	name := newName()
	f, err := w.scratch.OpenFile(name, createFlags, 0o600)
	if err != nil {
		return aside{}, err
	}
	return aside{f, w.scratch, name}, nil
}

// newName returns an unused name for a file aside.
func newName() string { return asidePrefix + rand.Text() }

// finish gives a, whose content is written, the mode and the time of an object. The time is earlier than the session's
// beginning only if the clock was set back.
func (w *writer) finish(a aside) error {
	if a.named() || w.chmod {
		if err := a.Chmod(w.modes.Object()); err != nil {
			return err
		}
	}
	st, err := fstat(a.File)
	if err != nil || st.mtime >= w.began {
		return err
	}
	if a.named() {
		return a.in.SetTime(a.name, w.now())
	}
	return touchOpen(a.File, w.now())
}

// publish gives a the name of its object and closes it. If the object exists and is intact, that counts as success.
// After an error a is removed.
func (w *writer) publish(ctx context.Context, a aside, info Info) error {
	defer a.discard()
	return w.name(ctx, a, info)
}

// name is publish, but leaves a open if a has no temporary name.
func (w *writer) name(ctx context.Context, a aside, info Info) error {
	err := w.finish(a)
	if err == nil && a.named() {
		// A network file system may send data only now: an object with a name is on the server, and a failed send is
		// an error.
		err = a.Close()
	}
	if err != nil {
		return objectError(info.Hash, err)
	}
	if err := w.link(ctx, a, info); err != nil {
		// Not objectError: the missing entry is a directory.
		return fmt.Errorf("store object %s: %w", info.Hash, err)
	}
	return nil
}

// link gives a the name of its object.
func (w *writer) link(ctx context.Context, a aside, info Info) error {
	path := w.file(info.Hash)
	madeShard := false
	for {
		err := w.linkNew(ctx, a, path)
		switch {
		case err == nil:
			w.wrote(path)
			w.grown.Add(occupied(info.Size))
			return nil
		case errors.Is(err, fs.ErrNotExist) && !madeShard:
			if err := w.mkdir(filepath.Dir(path)); err != nil {
				return err
			}
			madeShard = true
		case errors.Is(err, fs.ErrExist):
			switch found, err := w.taken(ctx, info, nil); {
			case err != nil:
				return err
			case found == present:
				return nil
			case found == unfit:
				return w.replace(ctx, a, path)
			}
			// The existing object has been removed: try again.
		default:
			return err
		}
	}
}

// linkNew gives a the name path, if that is free.
func (w *writer) linkNew(ctx context.Context, a aside, path string) error {
	if !a.named() {
		return w.foreign(path, w.root.LinkOpen(a.File, path))
	}
	err := a.in.Link(a.name, w.root, path)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without hard links, rename the file. If the rename replaces an object after all, the bytes are the same, and
	// because of the lock no collector removes the new object for the age of the old one.
	unlock, err := w.lock(ctx, path, false)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := w.Dir.look(path); err == nil {
		return &fs.PathError{Op: "rename", Path: w.root.Path(path), Err: fs.ErrExist}
	}
	return a.in.Rename(a.name, w.root, path)
}

// replace puts the finished a in the place of the file of an object.
func (w *writer) replace(ctx context.Context, a aside, path string) error {
	name := a.name
	if !a.named() {
		name = newName()
		if err := w.scratch.LinkOpen(a.File, name); err != nil {
			return err
		}
		defer w.scratch.Unlink(name) // unless it is renamed
	}
	// Without the lock, a collector that has seen the age of the old object could remove the new one.
	unlock, err := w.lock(ctx, path, false)
	if err != nil {
		return err
	}
	defer unlock()
	if err := w.scratch.Rename(name, w.root, path); err != nil {
		return w.foreign(path, err)
	}
	w.wrote(path)
	return nil
}

// mkdir makes a folder for objects, and missing folders above it.
func (d *Dir) mkdir(name string) error {
	if d.root.IsDir(name) {
		return nil
	}
	err := d.modes.MkdirAll(d.root, name)
	if err == nil {
		d.wrote(name)
	}
	if errors.Is(err, fs.ErrExist) {
		err = syscall.ENOTDIR
	}
	return d.foreign(name+string(filepath.Separator)+".", err)
}

// lock takes the lock of the shard of a file, shared or alone, and returns its release. The shards share 16 files,
// which only writers can open: each reader could lock the folder itself, and make writers wait. Where files cannot be
// locked it locks nothing; the race that the lock prevents is then possible during the microseconds between two system
// calls.
func (d *Dir) lock(ctx context.Context, path string, alone bool) (unlock func(), err error) {
	name := lockPrefix + filepath.Base(filepath.Dir(path))[:1]
	if unlock, err := d.tryLock(d.base+string(filepath.Separator)+name, alone); err == nil {
		return unlock, nil
	}
	f, err := d.lockFile(name)
	if err != nil {
		return nil, err
	}
	if err := d.waiting.Wait(ctx, f, alone); errors.Is(err, filelock.ErrEnded) {
		return nil, err
	}
	return func() { f.Close() }, nil // nothing was written
}

// lockPrefix begins the names of lock files beside the shards. One file serves the shards that begin with the same digit.
const lockPrefix = "lock-"

// lockFile opens a lock file, and makes it if need be.
func (d *Dir) lockFile(name string) (*os.File, error) {
	name = d.base + string(filepath.Separator) + name
	for {
		f, err := d.root.OpenFile(name, rewriteFlags, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, d.foreign(name, err)
		}
		if err := d.modes.CreateLock(d.root, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, d.foreign(name, err)
		}
	}
}
