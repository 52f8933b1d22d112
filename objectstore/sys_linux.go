package objectstore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// look describes the file of a name in root. The folders above it may be links: nothing is opened.
func (d *Dir) look(name string) (stat, error) {
	var st unix.Stat_t
	err := d.root.Control(func(fd int) error {
		return retryEINTR(func() error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	})
	if err != nil {
		return stat{}, d.foreign(name, &fs.PathError{Op: "lstat", Path: d.root.Path(name), Err: err})
	}
	return statOf(&st), nil
}

// readWhole reads the file of a name in root into what room returns for it. Package os would make two more system calls
// for each file, which count because objects are often small.
func (d *Dir) readWhole(name string, room func(stat) ([]byte, error)) ([]byte, error) {
	fd, err := d.root.Descriptor(name, openFlags, 0)
	if err != nil {
		return nil, d.foreign(name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, &fs.PathError{Op: "fstat", Path: d.root.Path(name), Err: err}
	}
	b, err := room(statOf(&st))
	if err != nil {
		return nil, err
	}
	for done := 0; done < len(b); {
		n := 0
		err := retryEINTR(func() (err error) {
			n, err = unix.Read(fd, b[done:])
			return err
		})
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: d.root.Path(name), Err: err}
		}
		if n == 0 {
			return b[:done], nil
		}
		done += n
	}
	return b, nil
}

// tryLock is lock without a wait: it fails if the lock is taken, or the file cannot be locked.
func (d *Dir) tryLock(name string, alone bool) (unlock func(), err error) {
	fd, err := d.root.Descriptor(name, rewriteFlags, 0)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH | unix.LOCK_NB
	if alone {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	if err := retryEINTR(func() error { return unix.Flock(fd, how) }); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return func() { unix.Close(fd) }, nil
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

// lease takes a read lease on f. It returns false if a process has the file open, or mapped, for writing, and where
// leases are not available: on some file systems, and on other users' files. Closing f ends the lease.
//
// While the lease is held, the kernel delays an open for writing, for /proc/sys/fs/lease-break-time seconds at most,
// and sends SIGIO to the holder; the Go runtime ignores this signal.
func lease(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err == nil
}

// leaseAlone takes a write lease on f, which is open for writing. It returns false if another open file, or a mapping,
// of the same inode exists, and where leases are not available. Otherwise it is like lease.
func leaseAlone(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil
}

// TouchNow sets both times of f to the present.
func TouchNow(f *os.File) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, 0, 0, 0, 0)
	if errno != 0 {
		return &os.PathError{Op: "set time of", Path: f.Name(), Err: errno}
	}
	return nil
}

// plain reports whether an open file is this user's, has one name, and no attributes but those of security modules,
// which label every file.
func plain(f *os.File, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink != 1 || int(st.Uid) != thisUser() {
		return false
	}
	var buf [256]byte
	n, err := unix.Flistxattr(int(f.Fd()), buf[:])
	if err != nil {
		return err == unix.ENOTSUP
	}
	for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
		if len(name) > 0 && !bytes.HasPrefix(name, []byte("security.")) {
			return false
		}
	}
	return true
}

// leaseHeld reports whether the lease on f is held and no process waits for its end.
func leaseHeld(f *os.File) bool {
	kind, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}

// reflink makes dst share the extents of src, if the file system supports that.
func reflink(dst, src *os.File) error {
	return retryEINTR(func() error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) })
}

// reflinkNever reports whether err says that the file system of dst cannot reflink from any source.
func reflinkNever(err error) bool {
	return err == unix.EOPNOTSUPP || err == unix.ENOTTY || err == unix.ENOSYS
}

// errNoData is the answer of nextData if no data follows.
var errNoData error = unix.ENXIO

// nextData returns the first offset from off that is not in a hole, and moves the position of f. File systems without
// holes answer off.
func nextData(f *os.File, off int64) (int64, error) { return seek(f, off, unix.SEEK_DATA) }

// nextHole returns the beginning of the first hole from off; the end of the file counts as one.
func nextHole(f *os.File, off int64) (int64, error) { return seek(f, off, unix.SEEK_HOLE) }

func seek(f *os.File, off int64, whence int) (int64, error) {
	return unix.Seek(int(f.Fd()), off, whence)
}

// copyRange copies up to n bytes of src at off to the same place of dst, and returns the number of copied bytes.
func copyRange(dst, src *os.File, off, n int64) (int64, error) {
	from, to := off, off
	var done int
	err := retryEINTR(func() (err error) {
		done, err = unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(n), 0)
		return err
	})
	return int64(done), err
}

// copyRangeNever reports whether err says that the kernel does not copy between these files.
func copyRangeNever(err error) bool {
	return errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || reflinkNever(err)
}

// reopenForReading opens the file of f, which may have no name, for reading only.
func reopenForReading(f *os.File) (*os.File, error) {
	return os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// beginWriteBack is a hint.
func beginWriteBack(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
