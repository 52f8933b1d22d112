//go:build unix

package filelock

import (
	"errors"
	iofs "io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func lock(f *os.File, alone, wait bool) error {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
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
			return ErrLocked
		case err != nil:
			return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}
