package executions

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// createFile makes a file for reading and writing. Package os would try to poll it, which takes five more system calls.
func createFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|flags, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// rename renames a file. Package os asks first whether a folder is in its place.
func rename(from, to string) error {
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Rename(from, to).(unix.Errno)
	}
	if err != 0 {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// hasEntries tells whether a directory has exactly n entries. Package os needs three times as many system calls.
func hasEntries(dir string, n int) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buf [4096]byte
	for n >= 0 {
		got, err := unix.ReadDirent(fd, buf[:])
		if err != nil {
			return false
		}
		if got <= 0 {
			return n == 0
		}
		_, count, _ := unix.ParseDirent(buf[:got], -1, nil)
		n -= count
	}
	return false
}
