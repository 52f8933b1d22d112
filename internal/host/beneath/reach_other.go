//go:build !linux

package beneath

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// RenameExclusive is Rename to a name that must be free: otherwise the error matches [fs.ErrExist]. A link never
// replaces a file; an empty folder may be replaced.
func (d *Dir) RenameExclusive(rel, to string) error {
	if d.IsDir(rel) {
		if _, err := d.Lstat(to); err == nil {
			return &os.LinkError{Op: "rename", Old: d.Path(rel), New: d.Path(to), Err: fs.ErrExist}
		}
		return d.Rename(rel, d, to)
	}
	if err := d.Link(rel, d, to); err != nil {
		return err
	}
	return d.Unlink(rel)
}

// LinkFrom gives the file at any path of the machine a name below the folder; the name must be free.
func (d *Dir) LinkFrom(path, rel string) error {
	if err := d.check("link", rel); err != nil {
		return err
	}
	return os.Link(path, d.Path(rel))
}

// Unnamed fails: only Linux can give a name to an unnamed file.
func (d *Dir) Unnamed(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

// LinkOpen fails, too.
func (d *Dir) LinkOpen(*os.File, string) error { return errors.ErrUnsupported }

// SetTime sets the modification time of an entry, and leaves the time of access.
func (d *Dir) SetTime(rel string, mtime time.Time) error {
	if err := d.noLink("set time of", rel); err != nil {
		return err
	}
	return d.root.Chtimes(rel, time.Time{}, mtime)
}
