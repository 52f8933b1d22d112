package beneath

import (
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptor is OpenFile without package os, which registers each file with the poller.
func (d *Dir) Descriptor(rel string, flags int, perm fs.FileMode) (int, error) {
	fd, err := d.open(rel, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: d.Path(rel), Err: err}
	}
	return fd, nil
}

// RenameExclusive is Rename to a name that must be free: otherwise the error matches [fs.ErrExist]. Of several concurrent
// calls for one name, exactly one succeeds.
func (d *Dir) RenameExclusive(rel, to string) error {
	err := d.pair("rename", rel, d, to, func(a int, from string, b int, to string) error {
		return unix.Renameat2(a, from, b, to, unix.RENAME_NOREPLACE)
	})
	if e, ok := err.(*os.LinkError); !ok || e.Err != unix.EINVAL && e.Err != unix.ENOSYS {
		return err
	}
	// A file system or kernel without the flag: a link never replaces a file.
	if err := d.Link(rel, d, to); err != nil {
		return err
	}
	return d.Unlink(rel)
}

// LinkFrom gives the file at any path of the machine a name below the folder; the name must be free. A link at the end
// of the path is not followed.
func (d *Dir) LinkFrom(path, rel string) error {
	return d.entry("link", rel, func(fd int, base string) error { return unix.Linkat(unix.AT_FDCWD, path, fd, base, 0) })
}

// Unnamed makes a file without a name in a folder; the umask applies to perm, and nothing of the file survives the death of this
// process. LinkOpen gives it a name.
func (d *Dir) Unnamed(folder string, perm fs.FileMode) (*os.File, error) {
	fd, err := d.open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "create file in", Path: d.Path(folder), Err: err}
	}
	return os.NewFile(uintptr(fd), d.Path(folder)+"/(unnamed)"), nil
}

// LinkOpen gives an open file a name, which must be free, even if the file has been renamed.
func (d *Dir) LinkOpen(f *os.File, rel string) error {
	self := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	return d.entry("link", rel, func(fd int, base string) error {
		return unix.Linkat(unix.AT_FDCWD, self, fd, base, unix.AT_SYMLINK_FOLLOW)
	})
}

// SetTime sets the modification time of an entry, and leaves the time of access.
func (d *Dir) SetTime(rel string, mtime time.Time) error {
	t, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return &fs.PathError{Op: "set time of", Path: d.Path(rel), Err: err}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, t}
	return d.entry("set time of", rel, func(fd int, base string) error {
		return unix.UtimesNanoAt(fd, base, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}
