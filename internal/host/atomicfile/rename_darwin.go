package atomicfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

func renameExclusive(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) { // a file system without exclusive renames
		return linkExclusive(from, to)
	}
	return err
}
