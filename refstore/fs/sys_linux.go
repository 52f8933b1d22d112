package fs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
)

// The calls below bypass package os, which registers each file with the poller. Regular files do not need that, and it
// takes time, with three files for each execution.

func (t tree) createFile(name string, data []byte, m modes.Modes, durable bool) (st stamp, err error) {
	fd, err := t.Descriptor(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|beneath.Nonblock, m.File())
	if err != nil {
		return stamp{}, t.foreign(name, err)
	}
	defer func() {
		if e := unix.Close(fd); err == nil && e != nil {
			err = &iofs.PathError{Op: "close", Path: t.Path(name), Err: e}
		}
	}()
	if m.Exact() {
		if err := unix.Fchmod(fd, uint32(m.File())); err != nil {
			return stamp{}, &iofs.PathError{Op: "chmod", Path: t.Path(name), Err: err}
		}
	}
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return stamp{}, &iofs.PathError{Op: "write", Path: t.Path(name), Err: err}
		}
		data = data[max(n, 0):]
	}
	if durable {
		if err := fsync(fd); err != nil {
			return stamp{}, &iofs.PathError{Op: "sync", Path: t.Path(name), Err: err}
		}
	}
	return t.fstat(fd, name)
}

// readFile returns the content of a regular file. If the file may be overwritten, and is overwritten meanwhile,
// readFile reads it again.
func (t tree) readFile(name string, overwritten bool) ([]byte, stamp, error) {
	fd, err := t.Descriptor(name, unix.O_RDONLY|beneath.Nonblock, 0)
	if err != nil {
		return nil, stamp{}, t.foreign(name, err)
	}
	defer unix.Close(fd)
	st, err := t.fstat(fd, name)
	if err != nil {
		return nil, stamp{}, err
	}
	for {
		if st.size > maxFile {
			return nil, stamp{}, &iofs.PathError{Op: "read", Path: t.Path(name), Err: fmt.Errorf("%d bytes are too many for a record", st.size)}
		}
		data := make([]byte, st.size)
		if err := readAll(fd, data); err != nil {
			return data, st, &iofs.PathError{Op: "read", Path: t.Path(name), Err: err}
		}
		if !overwritten {
			return data, st, nil
		}
		now, err := t.fstat(fd, name)
		if err != nil || now == st {
			return data, st, err
		}
		st = now // it was overwritten meanwhile
	}
}

// readAll fills data from the beginning of a file.
func readAll(fd int, data []byte) error {
	for done := 0; done < len(data); {
		n, err := unix.Pread(fd, data[done:], int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// pwrite writes to a file; tests replace it.
var pwrite = unix.Pwrite

// overwrite replaces the content of the regular file with the given stamp by a longer content, in one write. With
// errElsewhere the caller replaces the file by another one: nothing has changed, or the file is torn, as after a write
// that was cut short.
//
// names is the number of names that the file must have. The file gets the time mtime, as far as the file system keeps it.
func (t tree) overwrite(name string, data []byte, was stamp, names uint64, mtime int64) (now stamp, err error) {
	fd, err := t.Descriptor(name, unix.O_WRONLY|beneath.Nonblock, 0)
	if err != nil {
		return stamp{}, errElsewhere // for example another user's file
	}
	defer func() {
		if e := unix.Close(fd); err == nil && e != nil {
			err = &iofs.PathError{Op: "close", Path: t.Path(name), Err: e}
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Nlink) != names { // a copy of the repository may share the file
		return stamp{}, errElsewhere
	}
	if now, err := t.regular(&st, name); err != nil || now != was {
		return stamp{}, errElsewhere
	}
	if n, err := pwrite(fd, data, 0); err != nil || n < len(data) { // for example a full disk
		return stamp{}, errElsewhere
	}
	if err := futimens(fd, mtime); err != nil {
		return stamp{}, &iofs.PathError{Op: "set time of", Path: t.Path(name), Err: err}
	}
	return t.fstat(fd, name)
}

// futimens sets the modification time of an open file.
func futimens(fd int, mtime int64) error {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// statFile returns the stamp of a regular file. The folders above it may be links: nothing is opened.
func (t tree) statFile(name string) (stamp, error) {
	st, err := t.look(name)
	if err != nil {
		return stamp{}, err
	}
	return t.regular(&st, name)
}

func (t tree) look(name string) (st unix.Stat_t, err error) {
	err = t.Control(func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return st, t.foreign(name, &iofs.PathError{Op: "stat", Path: t.Path(name), Err: err})
	}
	return st, nil
}

// exists returns an error if nothing has the name. It opens nothing either.
func (t tree) exists(name string) error {
	_, err := t.look(name)
	return err
}

// statOpen is statFile by an open file.
func (t tree) statOpen(name string) (stamp, error) {
	fd, err := t.Descriptor(name, unix.O_RDONLY|beneath.Nonblock, 0)
	if err != nil {
		return stamp{}, t.foreign(name, err)
	}
	defer unix.Close(fd)
	return t.fstat(fd, name)
}

func (t tree) fstat(fd int, name string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return stamp{}, &iofs.PathError{Op: "stat", Path: t.Path(name), Err: err}
	}
	return t.regular(&st, name)
}

func (t tree) regular(st *unix.Stat_t, name string) (stamp, error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return stamp{mtime: st.Mtim.Nano(), inode: uint64(st.Ino), size: st.Size}, nil
	case unix.S_IFLNK:
		return stamp{}, &iofs.PathError{Op: "open", Path: t.Path(name), Err: errLink}
	}
	return stamp{}, &iofs.PathError{Op: "open", Path: t.Path(name), Err: errNotRegular}
}

// subfolders returns the number of folders in a folder; less than 0: the file system does not tell.
func (t tree) subfolders(folder string) int64 {
	st, err := t.look(folder)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1
	}
	return int64(st.Nlink) - 2 // a folder's name, and its own "."
}

// sync syncs a file or a folder; of a symbolic link, its folder's entry is all there is.
func (t tree) sync(name string) error {
	fd, err := t.Descriptor(name, unix.O_RDONLY|beneath.Nonblock, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnopened, err)
	}
	defer unix.Close(fd)
	if err := fsync(fd); err != nil {
		return &iofs.PathError{Op: "sync", Path: t.Path(name), Err: err}
	}
	return nil
}

func fsync(fd int) error {
	for {
		if err := unix.Fsync(fd); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// scarce reports whether the disk has less than so many bytes for this user. A quota is not seen.
func (t tree) scarce(bytes uint64) bool {
	var st unix.Statfs_t
	err := t.Control(func(fd int) error { return unix.Fstatfs(fd, &st) })
	return err == nil && st.Blocks > 0 && st.Bavail < bytes/uint64(st.Bsize)
}
