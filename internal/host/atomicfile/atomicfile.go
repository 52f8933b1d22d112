// Package atomicfile replaces whole files: a file is written aside and renamed, so that readers, even after a crash,
// find either the old file or the new one.
//
// The file written aside must be on the same file system as its destination. A crash leaves it there, and the folder's
// owner must remove it. In folders that are never cleaned, use [NewHidden], which leaves nothing where the system
// allows that.
package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file that is being written aside. It ends with exactly one successful [File.Replace] or [File.Create], or
// with [File.Discard]. It is not safe for concurrent use.
type File struct {
	*os.File
	done bool

	unnamed bool // the file has no name to rename or to remove
	name    string
	perm    fs.FileMode // mode of the named file that replaces an unnamed one
}

// New begins a file in dir, under a name that no other file has there. perm is set exactly, whatever the umask is.
func New(dir string, perm fs.FileMode) (*File, error) {
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return nil, err
	}
	if perm != 0o600 { // CreateTemp's mode
		if err := f.Chmod(perm); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	return &File{File: f}, nil
}

// Replace closes the file and moves it to path, replacing an existing file.
func (f *File) Replace(path string) error { return f.commit(path, true) }

// Create closes the file and moves it to path, which must be free: otherwise the error matches [fs.ErrExist].
func (f *File) Create(path string) error { return f.commit(path, false) }

func (f *File) commit(path string, replace bool) error {
	if f.done {
		return fmt.Errorf("commit %s: %w", path, fs.ErrClosed)
	}
	f.done = true
	if f.unnamed {
		defer f.File.Close() // a failed write shows in the caller's Sync
		return f.link(path, replace)
	}
	err := f.File.Close()
	if err == nil {
		err = move(f.Name(), path, replace)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Discard closes and removes the file. After Replace or Create it does nothing, so that it can be deferred.
func (f *File) Discard() error {
	if f.done {
		return nil
	}
	f.done = true
	if f.unnamed {
		return f.File.Close()
	}
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}

func move(from, to string, replace bool) error {
	if replace {
		return os.Rename(from, to)
	}
	return RenameExclusive(from, to)
}

// Options adjust WriteFile and CreateFile. The zero value writes beside the destination, with mode 0644, without sync.
type Options struct {
	Aside string      // folder to write in; "" is the destination's own
	Perm  fs.FileMode // 0 is 0644
	Sync  bool        // the file and its folder survive power loss once the call has returned
}

// WriteFile replaces the file at path, or makes it.
func WriteFile(path string, data []byte, o Options) error {
	return o.write(path, data, (*File).Replace)
}

// CreateFile makes the file at path. If something is there, the error matches [fs.ErrExist] and nothing changed.
func CreateFile(path string, data []byte, o Options) error {
	return o.write(path, data, (*File).Create)
}

func (o Options) write(path string, data []byte, commit func(*File, string) error) (err error) {
	o.Aside = cmp.Or(o.Aside, filepath.Dir(path))
	o.Perm = cmp.Or(o.Perm, 0o644)
	f, err := New(o.Aside, o.Perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, f.Discard()))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if o.Sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := commit(f, path); err != nil {
		return err
	}
	if o.Sync {
		return SyncDir(filepath.Dir(path))
	}
	return nil
}

// SyncDir makes earlier changes of a folder's entries survive power loss: new, renamed and removed entries.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // nothing was written through it
	return d.Sync()
}

// RenameExclusive renames a file, but never over an existing one: then the error matches [fs.ErrExist]. Exactly one of
// several concurrent renames to one name succeeds.
func RenameExclusive(from, to string) error {
	if err := renameExclusive(from, to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
