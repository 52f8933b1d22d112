//go:build linux || darwin || freebsd || netbsd || openbsd

package objectstore

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lstat is os.Lstat without the allocations: an existence check of ten thousand objects is a
// hot path.
func lstat(path string) (stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Lstat(path, &st) })
	if err != nil {
		return stat{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return statOf(&st), nil
}

// fstat is lstat for an open file.
func fstat(f *os.File) (stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstat(int(f.Fd()), &st) })
	if err != nil {
		return stat{}, &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return statOf(&st), nil
}

func statOf(st *unix.Stat_t) stat {
	return stat{
		dev: uint64(st.Dev), ino: uint64(st.Ino), links: uint64(st.Nlink), owner: int(st.Uid),
		size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		regular: st.Mode&unix.S_IFMT == unix.S_IFREG,
		perm:    fs.FileMode(st.Mode) & fs.ModePerm,
	}
}

// statIn is lstat for a name in an open folder, which spares the walk to the folder.
func statIn(dir *os.File, name string) (stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return stat{}, &fs.PathError{Op: "lstat", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return statOf(&st), nil
}

// removeIn removes a file of an open folder.
func removeIn(dir *os.File, name string) error {
	err := retryEINTR(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
	if err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}

// lockDir takes a lock on a directory, shared or alone, and returns its release. If directories cannot be locked (on
// some network file systems) it locks nothing. The race that the lock prevents is then possible during the microseconds
// between two system calls.
func lockDir(path string, alone bool) (func(), error) {
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	_ = retryEINTR(func() error { return unix.Flock(fd, how) })
	return func() { _ = unix.Close(fd) }, nil
}

// tryLockDir is lockDir alone, if the lock is free, and reports whether it took it.
func tryLockDir(path string) (unlock func(), ok bool, err error) {
	var fd int
	err = retryEINTR(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, false, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	err = retryEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		_ = unix.Close(fd)
		return nil, false, nil
	}
	return func() { _ = unix.Close(fd) }, true, nil
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// O_NONBLOCK has no effect on regular files. With it, opening a name that has become a pipe does not block, and package
// os does not change the descriptor's flags, which saves four system calls for every file.
const (
	openFlags    = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	createFlags  = os.O_RDWR | os.O_CREATE | os.O_EXCL | unix.O_NONBLOCK
	rewriteFlags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
)
