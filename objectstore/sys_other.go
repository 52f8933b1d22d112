//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package objectstore

import (
	"os"
	"path/filepath"
)

// look describes the file of a name in root.
func (d *Dir) look(name string) (stat, error) {
	fi, err := d.root.Lstat(name)
	if err != nil {
		return stat{}, err
	}
	return statOf(fi), nil
}

func fstat(f *os.File) (stat, error) {
	fi, err := f.Stat()
	if err != nil {
		return stat{}, err
	}
	return statOf(fi), nil
}

// statOf has only size and time: a change that keeps both is not detected on this system.
func statOf(fi os.FileInfo) stat {
	return stat{
		links: 1, size: fi.Size(), mtime: fi.ModTime().UnixNano(),
		regular: fi.Mode().IsRegular(), perm: fi.Mode().Perm(),
	}
}

func statIn(dir *os.File, name string) (stat, error) {
	fi, err := os.Lstat(filepath.Join(dir.Name(), name))
	if err != nil {
		return stat{}, err
	}
	return statOf(fi), nil
}

func removeIn(dir *os.File, name string) error { return os.Remove(filepath.Join(dir.Name(), name)) }

const (
	openFlags    = os.O_RDONLY
	createFlags  = os.O_RDWR | os.O_CREATE | os.O_EXCL
	rewriteFlags = os.O_RDWR
)
