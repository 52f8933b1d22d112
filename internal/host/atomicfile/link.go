package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// linkExclusive renames a file by link and unlink, because a link never replaces a file. A crash between the two leaves
// both names; the old name is then an orphan like any other. Folders cannot be linked; for them it fails with EPERM.
func linkExclusive(from, to string) error {
	if err := os.Link(from, to); err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return errno
		}
		return err
	}
	return os.Remove(from)
}
