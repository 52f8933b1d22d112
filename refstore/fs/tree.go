package fs

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"syscall"

	"e3/internal/host/beneath"
	"e3/refstore"
)

// tree is the folder of a store, opened once. All names are relative to it, so that no path that somebody else can change
// leads out of the repository. Other users of a shared repository may put a link, a pipe or a file where this package has a
// folder: that is a fault, which [refstore.ErrForeign] names, and nothing behind it is opened, listed, written, moved or
// removed. A look at attributes, and a watch, may pass a link.
type tree struct{ *beneath.Dir }

// openFile opens the regular file of a stream or lock, and makes it only if flags include O_CREATE.
func (t tree) openFile(name string, flags int, perm iofs.FileMode) (*os.File, error) {
	// Otherwise a pipe in its place would keep the call waiting. With O_RDWR it does not, and package os would offer a file
	// with O_NONBLOCK to the poller.
	if flags&os.O_RDWR == 0 {
		flags |= beneath.Nonblock
	}
	f, err := t.OpenFile(name, flags, perm)
	if err != nil {
		return nil, t.foreign(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &iofs.PathError{Op: "open", Path: t.Path(name), Err: notRegular(info)}
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// isFolder returns an error unless a name belongs to a folder.
func (t tree) isFolder(name string) error {
	info, err := t.lstat(name)
	if err == nil && !info.IsDir() {
		err = &iofs.PathError{Op: "open", Path: t.Path(name), Err: notRegular(info)}
	}
	return err
}

func (t tree) lstat(name string) (iofs.FileInfo, error) {
	info, err := t.Lstat(name)
	return info, t.foreign(name, err)
}

func (t tree) rename(from, to string) error {
	err := t.Rename(from, t.Dir, to)
	if errors.Is(err, syscall.ENOTDIR) { // a folder replaces nothing but an empty folder
		if foreign := t.isFolder(to); foreign != nil {
			return foreign
		}
	}
	return t.foreign(to, t.foreign(from, err))
}

func (t tree) renameExclusive(from, to string) error {
	return t.foreign(to, t.foreign(from, t.RenameExclusive(from, to)))
}

func (t tree) remove(name string) error { return t.foreign(name, t.Remove(name)) }

func (t tree) removeAll(name string) error { return t.foreign(name, t.RemoveAll(name)) }

// discard is removeAll for a session's folder, in which commands may have mounted something.
func (t tree) discard(name string) error { return t.foreign(name, t.Discard(name)) }

// removeIfThere removes a file or an empty folder.
func (t tree) removeIfThere(name string) error {
	err := t.remove(name)
	if errors.Is(err, iofs.ErrNotExist) {
		err = nil
	}
	return err
}

// same reports whether a name still belongs to an open file.
func (t tree) same(f *os.File, name string) bool {
	there, err := t.Lstat(name)
	if err != nil {
		return false
	}
	here, err := f.Stat()
	return err == nil && beneath.SameFile(here, there)
}

// foreign names the foreign thing in the way to a name, if the error tells of one.
func (t tree) foreign(name string, err error) error {
	at, mode, ok := t.Obstacle(name, err)
	switch {
	case !ok:
		return err
	case mode&iofs.ModeSymlink != 0:
		err = errLink
	default:
		err = errNotFolder
	}
	return &iofs.PathError{Op: "open", Path: t.Path(at), Err: err}
}

// errLink says that a link is in place of a file.
var errLink error = linkError{}

type linkError struct{}

func (linkError) Error() string { return "it is a link; e3 makes none here: remove it" }

func (linkError) Is(target error) bool { return target == refstore.ErrForeign }

// notFolder says that something else is in place of a folder.
type notFolder struct{}

func (notFolder) Error() string { return "it is no folder, so e3 has not put it there; move it away" }

func (notFolder) Is(target error) bool { return target == refstore.ErrForeign }

func notRegular(info iofs.FileInfo) error {
	if info.Mode()&iofs.ModeSymlink != 0 {
		return errLink
	}
	return errNotRegular
}

// absolute is the path of a name for callers.
func (s *files) absolute(name string) string { return s.root + string(filepath.Separator) + name }

// join joins names.
func join(names ...string) string {
	var p string
	for i, name := range names {
		if i > 0 {
			p += string(filepath.Separator)
		}
		p += name
	}
	return p
}
