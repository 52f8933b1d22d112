package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func renameExclusive(from, to string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // a file system or kernel without the flag
			return linkExclusive(from, to)
		}
		return err
	}
}

func syncDir(d *os.File) error { return d.Sync() }
