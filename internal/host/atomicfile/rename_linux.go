package atomicfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

func renameExclusive(from, to string) error {
	err := retryEINTR(func() error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system or kernel without the flag
		return linkExclusive(from, to)
	}
	return err
}
