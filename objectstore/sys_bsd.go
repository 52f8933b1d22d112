//go:build darwin || freebsd || netbsd || openbsd

package objectstore

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// look describes the file of a name in root, by its path.
func (d *Dir) look(name string) (stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Lstat(d.root.Path(name), &st) })
	if err != nil {
		return stat{}, &fs.PathError{Op: "lstat", Path: d.root.Path(name), Err: err}
	}
	return statOf(&st), nil
}
