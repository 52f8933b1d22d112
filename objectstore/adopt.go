package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Adopt stores the regular file name of an open folder, a task's output that is not needed any more. If the file is on the
// store's file system, it is not copied. The file may still exist afterwards; the caller removes its directory.
//
// A file becomes an object only if no process can write to it:
//
//   - A read lease is taken before the first byte is read. The kernel grants it only if no process,
//     this one included, has the file open for writing or mapped writable. While the lease is held,
//     an open for writing waits.
//   - The file must have exactly one name, which Adopt removes. It first links the object from
//     the open descriptor, so that the object is the hashed file whatever the name is by now,
//     then removes the name, and checks the number of names again.
//   - The mode becomes that of objects, without a write bit, before the lease ends. Before the link and after the removal the
//     lease must be held without waiters: otherwise an open for writing that began before
//     the change of mode would succeed when the lease ends.
//
// If one of these conditions cannot be shown, Adopt copies the file: on other file systems and operating systems, and
// if the file has hard links or another owner, or a surviving process of the task still writes to it. A change during
// the copy is a *ChangedError. Should this process die between the link and the removal, the object keeps a second
// name, of the same mode, until the caller's directory is removed.
func (d *Dir) Adopt(ctx context.Context, in Folder, name string) (Info, error) {
	return Adopt(ctx, d, in, name)
}

// A Folder is an open folder in which files are made and opened, without following links: a *beneath.Dir, or an *os.Root.
type Folder interface {
	OpenFile(name string, flags int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Remove(name string) error
}

// An Adopter is a store that can make files its own without a copy. See Dir.Adopt.
type Adopter interface {
	// AdoptFile stores f, which is open for reading. remove removes its name.
	AdoptFile(ctx context.Context, f *os.File, remove func() error) (Info, error)
}

// Adopt stores the file name of an open folder by AdoptFile.
func Adopt(ctx context.Context, s Adopter, in Folder, name string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	f, err := in.OpenFile(name, openFlags, 0)
	if err != nil {
		// OpenFile fails for links and sockets.
		if fi, statErr := in.Lstat(name); statErr == nil && !fi.Mode().IsRegular() {
			err = &SpecialFileError{Path: name, Mode: fi.Mode()}
		}
		return Info{}, fmt.Errorf("adopt: %w", err)
	}
	defer f.Close()
	return s.AdoptFile(ctx, f, func() error { return in.Remove(name) })
}

// AdoptFile is Adopt for an open file and a function that removes its name.
func (d *Dir) AdoptFile(ctx context.Context, f *os.File, remove func() error) (Info, error) {
	k, err := d.KeepAdopted(ctx, f, remove)
	k.Close()
	return k.Info, err
}

// takings is the context key of the function that OnTaking sets.
type takings struct{}

// OnTaking returns a context in which Adopt, and tree.Put with Adopt, call taking before they change or move a file:
// path is the name under which it was opened, info its content. An error of taking ends the call. With the arguments
// of taking, a caller can undo an adoption that was interrupted. It may be called from several goroutines.
func OnTaking(ctx context.Context, taking func(path string, info Info, mode fs.FileMode) error) context.Context {
	return context.WithValue(ctx, takings{}, taking)
}

// take calls the function that OnTaking has set.
func take(ctx context.Context, f *os.File, info Info) error {
	taking, ok := ctx.Value(takings{}).(func(string, Info, fs.FileMode) error)
	if !ok {
		return nil
	}
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return taking(f.Name(), info, fi.Mode())
}

// adoptLeased makes the leased file f an object. It returns false if this is unsafe or impossible; the caller then
// copies the file.
func (w *writer) adoptLeased(ctx context.Context, f *os.File, st stat, remove func() error) (Kept, bool, error) {
	info, err := hashFile(ctx, f, st.size)
	if err != nil {
		return Kept{}, true, err
	}
	if err := take(ctx, f, info); err != nil {
		return Kept{}, true, err
	}
	if w.modes.Take(f) != nil || f.Chmod(w.modes.Object()) != nil {
		return Kept{}, false, nil
	}
	if now := w.now(); st.mtime < w.began || st.mtime > now.Add(time.Second).UnixNano() {
		// A task can set any time on its output, so that a collector would treat the object as old, or never as
		// garbage.
		if touchOpen(f, now) != nil {
			return Kept{}, false, nil
		}
	}
	if now, err := fstat(f); err != nil || now.links != 1 || now.size != info.Size || !leaseHeld(f) {
		return Kept{}, false, err
	}
	path := w.file(info.Hash)
	err = w.root.LinkOpen(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := w.mkdir(filepath.Dir(path)); err != nil {
			return Kept{}, true, err
		}
		err = w.root.LinkOpen(f, path)
	}
	if errors.Is(err, fs.ErrExist) {
		found, err := w.taken(ctx, info, nil)
		return Kept{Info: info}, found == present, err
	}
	if err != nil {
		return Kept{}, false, nil // for instance another mount of the file system
	}
	w.wrote(path)
	w.grown.Add(occupied(info.Size))
	if remove() == nil {
		if now, err := fstat(f); err == nil && now.links == 1 && leaseHeld(f) {
			if info.Size >= vouchedFrom {
				w.vouch(ctx, info.Hash, f)
			}
			return Kept{Info: info, File: f, borrowed: true, hashed: now}, true, nil
		}
	}
	// Another process has the file open. While the lease lasts, the bytes stay as they were hashed, so replace the
	// object by a copy before it ends.
	return Kept{Info: info}, true, w.copyOver(ctx, f, info)
}

// hashFile returns the name and size of f's content.
func hashFile(ctx context.Context, f *os.File, size int64) (Info, error) {
	if size > chunkSize {
		return HashReader(ctx, fromStart(f))
	}
	buf := getBuffer()
	defer putBuffer(buf)
	b := (*buf)[:size]
	if n, err := f.ReadAt(b, 0); n < len(b) {
		if err == io.EOF {
			err = &ChangedError{Path: f.Name()}
		}
		return Info{}, err
	}
	return Info{Sum(b), size}, nil
}

// copyOver replaces the object info by a copy of f that no other process can reach. If it cannot, it removes the
// object: a missing object is better than a changing one.
func (w *writer) copyOver(ctx context.Context, f *os.File, info Info) (err error) {
	path := w.file(info.Hash)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.root.Unlink(path))
		}
	}()
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return err
	}
	defer a.discard()
	got, err := pump(ctx, fromStart(f), a.fill(), nil)
	switch {
	case err != nil:
		return err
	case got != info:
		return &ChangedError{Path: f.Name()} // the kernel ended the lease before the copy was done
	}
	if err := w.finish(a); err != nil {
		return err
	}
	return w.replace(ctx, a, path)
}
