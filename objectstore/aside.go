package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"e3/internal/host/atomicfile"
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
	named bool // it has a temporary name, to be removed
}

// discard closes the file and removes it.
func (a aside) discard() {
	a.Close()
	if a.named {
		os.Remove(a.Name())
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
	if err := d.mkdir(d.path); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	w := &writer{Dir: d, scratch: d.path}
	if d.session != nil {
		scratch, began, err := d.session()
		if err != nil {
			return nil, fmt.Errorf("object store: session: %w", err)
		}
		w.scratch, w.began = scratch, began.UnixNano()
	}
	if !atomicfile.CanLinkOpen() {
		d.named.Store(true)
	}
	a, err := w.create(w.scratch)
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

// create opens a new file in dir, which must exist.
func (w *writer) create(dir string) (aside, error) {
	if !w.named.Load() {
		f, err := atomicfile.CreateUnnamed(dir, w.modes.Object())
		if err == nil {
			return aside{File: f}, nil
		}
		if !atomicfile.UnnamedUnsupported(err) {
			return aside{}, err
		}
		w.named.Store(true)
	}
	f, err := os.CreateTemp(w.scratch, asidePrefix+"*")
	if err != nil {
		return aside{}, err
	}
	return aside{f, true}, nil
}

// finish gives a, whose content is written, the mode and the time of an object. The time is earlier than the session's
// beginning only if the clock was set back.
func (w *writer) finish(a aside) error {
	if a.named || w.chmod {
		if err := a.Chmod(w.modes.Object()); err != nil {
			return err
		}
	}
	st, err := fstat(a.File)
	if err != nil || st.mtime >= w.began {
		return err
	}
	if a.named {
		return os.Chtimes(a.Name(), time.Time{}, w.now())
	}
	return touchOpen(a.File, w.now())
}

// publish gives a the name of its object and closes it. If the object exists and is intact, that counts as success.
// After an error a is removed.
func (w *writer) publish(ctx context.Context, a aside, info Info) error {
	defer a.discard()
	return w.name(ctx, a, info)
}

// name is publish, but leaves a open if it has no name of its own.
func (w *writer) name(ctx context.Context, a aside, info Info) error {
	err := w.finish(a)
	if err == nil && a.named {
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
		err := linkNew(a, path)
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
				return w.replace(a, path)
			}
			// The existing object has been removed: try again.
		default:
			return err
		}
	}
}

// linkNew gives a the name path, if that is free.
func linkNew(a aside, path string) error {
	if !a.named {
		return atomicfile.LinkOpen(a.File, path)
	}
	err := os.Link(a.Name(), path)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without hard links, rename the file. If that replaces an object after all, the bytes are the same, and under the
	// lock no collector removes the new one because of the old one's age.
	unlock, err := lockDir(filepath.Dir(path), false)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := lstat(path); err == nil {
		return &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
	}
	return os.Rename(a.Name(), path)
}

// replace puts the finished a in the place of the file at path.
func (w *writer) replace(a aside, path string) error {
	name := a.Name()
	if !a.named {
		// In a directory of its own, any name is free.
		dir, err := os.MkdirTemp(w.scratch, asidePrefix+"*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		name = filepath.Join(dir, "object")
		if err := atomicfile.LinkOpen(a.File, name); err != nil {
			return err
		}
	}
	// Without the lock, a collector that found the old object old enough could remove the new one.
	unlock, err := lockDir(filepath.Dir(path), false)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Rename(name, path); err != nil {
		return err
	}
	w.wrote(path)
	return nil
}

// mkdir makes a folder for objects, and those above it, unless it is there.
func (d *Dir) mkdir(path string) error {
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return nil
	}
	err := d.modes.MkdirAll(path)
	if err == nil {
		d.wrote(path)
	}
	return err
}
