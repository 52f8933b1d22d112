package fs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"

	"golang.org/x/sys/windows"

	"e3/internal/host/modes"
	"e3/refstore"
)

func createFile(path string, data []byte, m modes.Modes, durable bool) (st stamp, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.File())
	if err != nil {
		return stamp{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return stamp{}, err
	}
	if durable {
		if err := f.Sync(); err != nil {
			return stamp{}, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info, path)
}

func remove(path string) error { return os.Remove(path) }

func readFile(path string, _ bool) ([]byte, stamp, error) {
	f, err := openStream(path, os.O_RDONLY)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	st, err := stampOf(info, path)
	if err != nil {
		return nil, stamp{}, err
	}
	if st.size > maxFile {
		return nil, stamp{}, &iofs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes are too many for a record", st.size)}
	}
	data := make([]byte, st.size)
	_, err = io.ReadFull(f, data)
	return data, st, err
}

// overwrite does nothing here.
func overwrite(string, []byte, stamp, uint64) error { return errElsewhere }

// link does nothing here.
func link(string, string) error { return errors.ErrUnsupported }

func statFile(path string) (stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info, path)
}

// statOpen is statFile by an open file.
func statOpen(path string) (stamp, error) {
	f, err := openStream(path, os.O_RDONLY)
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info, path)
}

// stampOf leaves the inode out: on Windows the time alone distinguishes versions.
func stampOf(info iofs.FileInfo, path string) (stamp, error) {
	if !info.Mode().IsRegular() {
		return stamp{}, &iofs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return stamp{mtime: info.ModTime().UnixNano(), size: info.Size()}, nil
}

func openFile(path string, flags int, perm iofs.FileMode) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &iofs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	return os.OpenFile(path, flags, perm)
}

func openDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = &iofs.PathError{Op: "open", Path: path, Err: windows.ERROR_DIRECTORY}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func rename(from, to string) error { return os.Rename(from, to) }

// syncDir does nothing: Windows has no such call for folders, and NTFS journals names by itself.
func syncDir(string) error { return nil }

func syncFS(*os.File) error { return errors.ErrUnsupported }

// syncPath syncs a file.
func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func unwrittenBytes() int64 { return 0 }

func flock(f *os.File, mode refstore.Mode, wait bool) error {
	var flags uint32
	if mode == refstore.Exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	// Locks are mandatory on Windows, so this one covers a byte far beyond the content, which stays readable.
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return errLocked
	case err != nil:
		return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

// subfolders returns the number of folders in a folder; less than 0: the system does not tell.
func subfolders(string) int64 { return -1 }
