package objectstore

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// createUnnamed makes a file on dir's file system that has no name: it cannot be left over.
func createUnnamed(dir string) (*os.File, error) {
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(objectMode))
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "create unnamed file in", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir+"/(unnamed)"), nil
}

// unnamedUnsupported reports whether err of createUnnamed says that the file system or the
// kernel cannot do that at all.
func unnamedUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ENOSYS)
}

// canLinkOpen reports whether linkOpen can work: it needs /proc.
func canLinkOpen() bool { return unix.Access("/proc/self/fd", unix.F_OK) == nil }

// linkOpen gives the very file that f has open the name path, whatever became of its other
// names. It fails if path exists.
func linkOpen(f *os.File, path string) error {
	fd := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err := retryEINTR(func() error {
		return unix.Linkat(unix.AT_FDCWD, fd, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	})
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "link", Old: f.Name(), New: path, Err: err}
}

// touchOpen sets the modification time of f, which may have no name.
func touchOpen(f *os.File, mtime time.Time) error {
	t, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, t}
	err = unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), times, 0)
	if err != nil {
		return &os.PathError{Op: "set time of", Path: f.Name(), Err: err}
	}
	return nil
}

// lease takes a read lease on f. It reports false if anyone has the file open for writing,
// or mapped so, and where leases are not to be had: on some file systems, and on the files
// of others. Closing f ends the lease.
//
// While it is held, the kernel makes whoever opens the file for writing wait, for
// /proc/sys/fs/lease-break-time seconds at most, and tells the holder by SIGIO, which the Go
// runtime ignores.
func lease(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err == nil
}

// leaseHeld reports whether the lease on f stands and nobody waits for its end.
func leaseHeld(f *os.File) bool {
	kind, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}

// reflink makes dst share the extents of src, as far as the file system can.
func reflink(dst, src *os.File) error {
	return retryEINTR(func() error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) })
}

// reflinkNever reports whether err says that the file system of dst can never reflink, not
// only from this source.
func reflinkNever(err error) bool {
	return err == unix.EOPNOTSUPP || err == unix.ENOTTY || err == unix.ENOSYS
}
