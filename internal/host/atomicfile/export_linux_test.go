package atomicfile

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// NewUnlinkable is NewHidden on a file system whose unnamed files can never get a name.
func NewUnlinkable(dir, name string, perm fs.FileMode) (*File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, uint32(perm))
	if err != nil {
		return nil, err
	}
	return &File{File: os.NewFile(uintptr(fd), dir), unnamed: true, name: name, perm: perm}, nil
}
