//go:build unix

package fs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"

	"golang.org/x/sys/unix"

	"e3/internal/host/modes"
	"e3/refstore"
)

// The calls below bypass package os, which registers each file with the poller. Regular files do not need that, and it
// takes time, with three files for each execution.

func createFile(path string, data []byte, m modes.Modes, durable bool) (st stamp, err error) {
	fd, err := openWith(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(m.File()))
	if err != nil {
		return stamp{}, &iofs.PathError{Op: "create", Path: path, Err: err}
	}
	defer func() {
		if e := unix.Close(fd); err == nil && e != nil {
			err = &iofs.PathError{Op: "close", Path: path, Err: e}
		}
	}()
	if m.Exact() {
		if err := unix.Fchmod(fd, uint32(m.File())); err != nil {
			return stamp{}, &iofs.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return stamp{}, &iofs.PathError{Op: "write", Path: path, Err: err}
		}
		data = data[max(n, 0):]
	}
	if durable {
		if err := fsync(fd); err != nil {
			return stamp{}, &iofs.PathError{Op: "sync", Path: path, Err: err}
		}
	}
	return fstat(fd, path)
}

// remove is os.Remove for a file that mostly does not exist. Of such a path os.Remove asks twice.
func remove(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.ENOENT) {
		return &iofs.PathError{Op: "remove", Path: path, Err: err}
	}
	if err != nil {
		return os.Remove(path)
	}
	return nil
}

// readFile returns the content of a regular file. If the file may be overwritten, and is so meanwhile, readFile reads it
// again.
func readFile(path string, overwritten bool) ([]byte, stamp, error) {
	fd, err := open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, stamp{}, openError(path, err)
	}
	defer unix.Close(fd)
	st, err := fstat(fd, path)
	if err != nil {
		return nil, stamp{}, err
	}
	for {
		if st.size > maxFile {
			return nil, stamp{}, &iofs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes are too many for a record", st.size)}
		}
		data := make([]byte, st.size)
		if err := readAll(fd, data, path); err != nil || !overwritten {
			return data, st, err
		}
		now, err := fstat(fd, path)
		if err != nil || now == st {
			return data, st, err
		}
		st = now // it was overwritten meanwhile
	}
}

// readAll fills data from the beginning of a file.
func readAll(fd int, data []byte, path string) error {
	for done := 0; done < len(data); {
		n, err := unix.Pread(fd, data[done:], int64(done))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return &iofs.PathError{Op: "read", Path: path, Err: err}
		}
		done += n
	}
	return nil
}

// pwrite writes to a file; tests replace it.
var pwrite = unix.Pwrite

// overwrite replaces the content of a regular file with a stamp by a longer one, in one write. With errElsewhere the
// content belongs into another file, which takes the place of this one: nothing has changed, or the file is torn, as after
// a write that was cut short.
//
// names is how many names the file has.
func overwrite(path string, data []byte, was stamp, names uint64) (err error) {
	fd, err := open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return errElsewhere // for example another user's file
	}
	defer func() {
		if e := unix.Close(fd); err == nil && e != nil {
			err = &iofs.PathError{Op: "close", Path: path, Err: e}
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Nlink) != names { // a copy of the repository may share the file
		return errElsewhere
	}
	if now, err := regular(&st, path); err != nil || now != was {
		return errElsewhere
	}
	if n, err := pwrite(fd, data, 0); err != nil || n < len(data) { // for example a full disk
		return errElsewhere
	}
	return nil
}

// statFile returns the stamp of a regular file.
func statFile(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stamp{}, &iofs.PathError{Op: "stat", Path: path, Err: err}
	}
	return regular(&st, path)
}

// statOpen is statFile by an open file.
func statOpen(path string) (stamp, error) {
	fd, err := open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return stamp{}, openError(path, err)
	}
	defer unix.Close(fd)
	return fstat(fd, path)
}

func fstat(fd int, path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return stamp{}, &iofs.PathError{Op: "stat", Path: path, Err: err}
	}
	return regular(&st, path)
}

func regular(st *unix.Stat_t, path string) (stamp, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stamp{}, &iofs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return stamp{mtime: st.Mtim.Nano(), inode: uint64(st.Ino), size: st.Size}, nil
}

func open(path string, flags int) (int, error) { return openWith(path, flags, 0) }

// openWith opens a file that may be made, with a mode less the umask.
func openWith(path string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags, perm)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func openError(path string, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) { // EMLINK: FreeBSD, for a symbolic link
		err = errNotRegular
	}
	return &iofs.PathError{Op: "open", Path: path, Err: err}
}

// link gives a file another name, which must be free.
func link(from, to string) error {
	if err := unix.Link(from, to); err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}
	return nil
}

// openFile opens the file of a stream or lock, and makes it only if flags include O_CREAT.
func openFile(path string, flags int, perm iofs.FileMode) (*os.File, error) {
	// Otherwise a pipe in its place would keep the call waiting. With O_RDWR it does not, and package os would offer a file
	// with O_NONBLOCK to the poller.
	if flags&unix.O_RDWR == 0 {
		flags |= unix.O_NONBLOCK
	}
	fd, err := openWith(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm))
	if err != nil {
		return nil, openError(path, err)
	}
	if _, err := fstat(fd, path); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openDir(path string) (*os.File, error) {
	fd, err := open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, &iofs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// subfolders returns the number of folders in a folder; less than 0: the file system does not tell.
func subfolders(dir string) int64 {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return -1
	}
	return int64(st.Nlink) - 2 // a folder's name, and its own "."
}

// rename replaces a file, or an empty folder by a folder.
func rename(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		if errors.Is(err, unix.ENOTEMPTY) { // some systems return EEXIST instead
			err = unix.EEXIST
		}
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func syncDir(path string) error {
	fd, err := open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return &iofs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := fsync(fd); err != nil {
		return &iofs.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil
}

// syncPath syncs a file or a folder; of a symbolic link, its folder's entry is all there is.
func syncPath(path string) error {
	fd, err := open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return &iofs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: %w", errUnopened, err)}
	}
	defer unix.Close(fd)
	if err := fsync(fd); err != nil {
		return &iofs.PathError{Op: "sync", Path: path, Err: err}
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

// flock locks an open file. Without wait it returns errLocked if another open file holds the lock.
func flock(f *os.File, mode refstore.Mode, wait bool) error {
	how := unix.LOCK_EX
	if mode == refstore.Shared {
		how = unix.LOCK_SH
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		case err != nil:
			return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}
