//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package objectstore

import (
	"os"
	"path/filepath"
)

func lstat(path string) (stat, error) {
	fi, err := os.Lstat(path)
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

func statIn(dir *os.File, name string) (stat, error) { return lstat(filepath.Join(dir.Name(), name)) }

func removeIn(dir *os.File, name string) error { return os.Remove(filepath.Join(dir.Name(), name)) }

// lockDir locks nothing: this system has no lock on directories that every process would honour.
func lockDir(string, bool) (func(), error) { return func() {}, nil }

// tryLockDir locks nothing either.
func tryLockDir(string) (func(), bool, error) { return func() {}, true, nil }

const (
	openFlags    = os.O_RDONLY
	createFlags  = os.O_RDWR | os.O_CREATE | os.O_EXCL
	rewriteFlags = os.O_RDWR
)
