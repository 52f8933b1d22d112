package runner

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// executable reports whether path is a regular file that this user may execute.
func executable(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return syscall.EACCES
	}
	return unix.Access(path, unix.X_OK)
}

// searchable reports whether this user may enter the directory.
func searchable(dir string) error { return unix.Access(dir, unix.X_OK) }
