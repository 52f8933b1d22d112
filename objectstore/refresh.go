package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// presence tells what a put finds under the name of its object.
type presence int

const (
	absent  presence = iota
	present          // it exists, and is new enough to survive every running collection
	unfit            // it exists, but has to be replaced
)

// anySize stands for the unknown size of an object.
const anySize = -1

// find checks whether an object exists with its size, and refreshes it: if it is older than the session, its time is
// set to now. A younger object was put, or refreshed, by this session or a concurrent one, and costs one system call.
// find compares only the size; a put compares the bytes afterwards, see taken.
func (w *writer) find(ctx context.Context, path string, size int64) (presence, error) {
	st, err := w.Dir.look(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return absent, err
	case !st.regular || size != anySize && st.size != size:
		return unfit, nil
	case st.mtime >= w.began:
		return present, nil
	}
	unlock, err := w.lock(ctx, path, false)
	if err == nil {
		defer unlock()
		err = w.foreign(path, w.root.SetTime(path, w.now()))
	}
	switch {
	case err == nil:
		return present, nil
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case errors.Is(err, fs.ErrPermission):
		return unfit, nil // another user's file: replace it by a copy of this user
	default:
		return absent, err
	}
}

// now is the current time of the file system's clock, but never before the session's beginning, even if the clock was
// set back.
func (w *writer) now() time.Time {
	return time.Unix(0, max(w.began, time.Now().Add(w.skew).UnixNano()))
}

// Refresh protects h from running collections, as a put of its bytes would, and reports whether it exists. Before a
// writer writes a reference to an object that it has not put, it must refresh the object.
func (d *Dir) Refresh(ctx context.Context, h Hash) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	w, err := d.open()
	if err != nil {
		return false, err
	}
	found, err := w.find(ctx, d.file(h), anySize)
	if err != nil {
		return false, fmt.Errorf("refresh object %s: %w", h, err)
	}
	if found == unfit {
		return w.takeCopy(ctx, h)
	}
	return found == present, nil
}

// takeCopy replaces an object of another user by a copy, so that its time can be set.
func (w *writer) takeCopy(ctx context.Context, h Hash) (bool, error) {
	f, err := w.OpenFile(h)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st, err := fstat(f); err != nil || !st.regular {
		return false, err
	}
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return false, fmt.Errorf("refresh object %s: %w", h, err)
	}
	defer a.discard()
	info, err := pump(ctx, fromStart(f), a.fill(), nil)
	if err == nil {
		err = info.Check(h)
	}
	if err == nil {
		err = w.finish(a)
	}
	if err == nil {
		err = w.replace(ctx, a, w.file(h))
	}
	if err != nil {
		return false, fmt.Errorf("refresh object %s: %w", h, err)
	}
	return true, nil
}

// A Refresher is a store whose objects can be protected from collections without being put.
type Refresher interface {
	Store
	// Refresh protects h, as Dir.Refresh, and reports whether it exists.
	Refresh(ctx context.Context, h Hash) (bool, error)
}
