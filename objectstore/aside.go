package objectstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A stat is what the store asks about a file.
type stat struct {
	dev, ino     uint64
	links        uint64
	owner        int // user id
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	regular      bool
	perm         fs.FileMode
}

// sameContent reports whether nothing that the system tells speaks for a change between two
// looks at a file.
func (s stat) sameContent(t stat) bool {
	return s.dev == t.dev && s.ino == t.ino && s.size == t.size && s.mtime == t.mtime && s.ctime == t.ctime
}

// An aside is an object in the making: a file that has no object name yet.
type aside struct {
	*os.File
	named bool // it has a name, which must go
}

// discard closes the file and leaves nothing of it.
func (a aside) discard() {
	a.Close()
	if a.named {
		os.Remove(a.Name())
	}
}

// open returns the writer, after it took the caller's session and made a first file to see
// what the file system does with modes and times.
func (d *Dir) open() (*writer, error) {
	if w := d.writer.Load(); w != nil {
		return w, nil
	}
	d.writerMu.Lock()
	defer d.writerMu.Unlock()
	if w := d.writer.Load(); w != nil {
		return w, nil
	}
	if err := os.MkdirAll(d.path, 0o777); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	w := &writer{scratch: d.path}
	if d.scratch != nil {
		scratch, err := d.scratch()
		if err != nil {
			return nil, fmt.Errorf("object store: scratch directory: %w", err)
		}
		w.scratch = scratch
	}
	if !canLinkOpen() {
		d.named.Store(true)
	}
	a, err := d.create(w, w.scratch)
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
	w.dev = st.dev
	w.chmod = st.perm != objectMode
	w.skew = time.Until(time.Unix(0, st.mtime))
	d.writer.Store(w)
	return w, nil
}

// stale reports whether an object's time is to be set. A time in the future would keep an
// object from collection for ever.
func (w *writer) stale(mtime int64) bool {
	age := time.Now().Add(w.skew).Sub(time.Unix(0, mtime))
	return age > RefreshAge || age < -RefreshAge
}

// touch sets a file's modification time to the file system's present.
func (w *writer) touch(path string) error {
	return os.Chtimes(path, time.Time{}, time.Now().Add(w.skew))
}

// create opens a new file in dir, which must exist.
func (d *Dir) create(w *writer, dir string) (aside, error) {
	if !d.named.Load() {
		f, err := createUnnamed(dir)
		if err == nil {
			return aside{File: f}, nil
		}
		if !unnamedUnsupported(err) {
			return aside{}, err
		}
		d.named.Store(true)
	}
	f, err := os.CreateTemp(w.scratch, "put-*")
	if err != nil {
		return aside{}, err
	}
	return aside{f, true}, nil
}

// presence is what a put finds under the name of its object.
type presence int

const (
	absent  presence = iota
	present          // there, and fresh enough to outlive a collection under way
	unfit            // there, but to be replaced
)

// look finds out whether h is there with its size and refreshes it. It trusts the size and
// not the bytes: a name is only ever given to whole objects, and what a loss of power
// takes from a file that was not synced is its end.
func (d *Dir) look(w *writer, path string, size int64) (presence, error) {
	st, err := lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return absent, err
	case !st.regular || st.size != size:
		return unfit, nil
	case !w.stale(st.mtime):
		return present, nil
	}
	// The lock orders this with DeleteBefore: an object whose time was set under it is
	// there to stay.
	unlock, err := lockDir(d.path, false)
	if err != nil {
		return absent, err
	}
	defer unlock()
	switch err := w.touch(path); {
	case err == nil:
		return present, nil
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case errors.Is(err, fs.ErrPermission):
		return unfit, nil // another user's: a copy of our own takes its place
	default:
		return absent, err
	}
}

// publish gives a the name of its object and closes it. If the object is there already that
// is as good. After an error nothing is left of a.
func (d *Dir) publish(w *writer, a aside, info Info) error {
	defer a.discard()
	if a.named || w.chmod {
		if err := a.Chmod(objectMode); err != nil {
			return objectError(info.Hash, err)
		}
	}
	if err := d.link(w, a, info); err != nil {
		// Not objectError: what is absent here is a directory.
		return fmt.Errorf("store object %s: %w", info.Hash, err)
	}
	return nil
}

// link gives a the name of its object.
func (d *Dir) link(w *writer, a aside, info Info) error {
	path := d.file(info.Hash)
	madeShard := false
	for {
		err := linkNew(a, path)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist) && !madeShard:
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return err
			}
			madeShard = true
		case errors.Is(err, fs.ErrExist):
			switch found, err := d.look(w, path, info.Size); {
			case err != nil:
				return err
			case found == present:
				return nil
			case found == unfit:
				return d.replace(w, a, path)
			}
			// It went away: try again.
		default:
			return err
		}
	}
}

// linkNew gives a a name that is not taken.
func linkNew(a aside, path string) error {
	if !a.named {
		return linkOpen(a.File, path)
	}
	err := os.Link(a.Name(), path)
	if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without hard links a rename must do. Should it replace another's object after all,
	// it does so with the same bytes.
	if _, err := lstat(path); err == nil {
		return &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
	}
	return os.Rename(a.Name(), path)
}

// replace puts a in the place of what is at path.
func (d *Dir) replace(w *writer, a aside, path string) error {
	name := a.Name()
	if !a.named {
		// A directory of its own makes a name that is free.
		dir, err := os.MkdirTemp(w.scratch, "put-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		name = filepath.Join(dir, "object")
		if err := linkOpen(a.File, name); err != nil {
			return err
		}
	}
	return os.Rename(name, path)
}
