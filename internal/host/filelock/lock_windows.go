package filelock

import (
	"errors"
	iofs "io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func lock(f *os.File, alone, wait bool) error {
	var flags uint32
	if alone {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	// Locks are mandatory on Windows, so this one covers a byte far beyond the content, which stays readable.
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return ErrLocked
	case err != nil:
		return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}
