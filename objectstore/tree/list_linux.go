package tree

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readDir lists an open directory. Package os looks at each entry of a directory that was opened in an os.Root; a duplicate
// of the descriptor spares that.
func readDir(dir *os.File) ([]fs.DirEntry, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "dup", Path: dir.Name(), Err: err}
	}
	plain := os.NewFile(uintptr(fd), dir.Name())
	defer plain.Close()
	return plain.ReadDir(-1)
}

// lstat looks at the entry name of an open directory, without following links.
func lstat(dir *os.File, _ *os.Root, name string) (fs.FileInfo, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: filepath.Join(dir.Name(), name), Err: err}
		}
		return &fileInfo{name, syscall.Stat_t{
			Dev: st.Dev, Ino: st.Ino, Nlink: st.Nlink, Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size,
			Mtim: syscall.Timespec(st.Mtim), Ctim: syscall.Timespec(st.Ctim),
		}}, nil
	}
}

// fileInfo is the fs.FileInfo of a file. Of files that are not regular it knows that alone.
type fileInfo struct {
	name string
	st   syscall.Stat_t
}

func (f *fileInfo) Name() string       { return f.name }
func (f *fileInfo) Size() int64        { return f.st.Size }
func (f *fileInfo) ModTime() time.Time { return time.Unix(f.st.Mtim.Unix()) }
func (f *fileInfo) IsDir() bool        { return f.Mode().IsDir() }
func (f *fileInfo) Sys() any           { return &f.st }

func (f *fileInfo) Mode() fs.FileMode {
	mode := fs.FileMode(f.st.Mode).Perm()
	switch f.st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return mode
	case syscall.S_IFDIR:
		return mode | fs.ModeDir
	case syscall.S_IFLNK:
		return mode | fs.ModeSymlink
	}
	return mode | fs.ModeIrregular
}
