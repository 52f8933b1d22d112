package objectstore

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fstat is File.Stat without the allocations: a look at ten thousand objects is a hot path.
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

// statIn is lstat for a name in an open folder; it saves the walk to the folder.
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
