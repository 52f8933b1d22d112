//go:build unix

package executions

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file for as long as it is open, and reports whether another process has it locked. A file system
// without locks has none.
func lockFile(f *os.File) (elsewhere bool) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return errors.Is(err, unix.EWOULDBLOCK)
		}
	}
}
