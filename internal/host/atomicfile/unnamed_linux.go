package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func createUnnamed(dir string, perm fs.FileMode) (*os.File, error) {
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(perm.Perm()))
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "create file in", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir+"/(unnamed)"), nil
}

func unnamedUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ENOSYS)
}

func canLinkOpen() bool { return unix.Access("/proc/self/fd", unix.F_OK) == nil }

func linkOpen(f *os.File, path string) error {
	fd := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err := retryEINTR(func() error {
		return unix.Linkat(unix.AT_FDCWD, fd, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: path, Err: err}
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
