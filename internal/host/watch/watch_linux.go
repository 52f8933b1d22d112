// Package watch tells whether files have changed.
package watch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A Tree is a folder that is watched, with everything in it.
type Tree struct{ fd int }

const changes = unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MODIFY |
	unix.IN_MOVE | unix.IN_MOVE_SELF

// Folders watches the listed folders, but not the folders in them unless they are listed, too. A change through a
// memory mapping shows only once the file is closed.
func Folders(paths []string) (*Tree, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	for _, path := range paths {
		if _, err := unix.InotifyAddWatch(fd, path, changes|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("watch %s: %w", path, err)
		}
	}
	return &Tree{fd}, nil
}

// Touched reports whether anything may have changed since the watch began. Once true, it stays so. A nil Tree is always
// touched.
func (t *Tree) Touched() bool {
	if t == nil {
		return true
	}
	if t.fd < 0 {
		return true
	}
	var event [4096]byte
	if n, err := unix.Read(t.fd, event[:]); n <= 0 && err == unix.EAGAIN {
		return false
	}
	t.Close()
	return true
}

// Close ends watching.
func (t *Tree) Close() {
	if t != nil && t.fd >= 0 {
		unix.Close(t.fd)
		t.fd = -1
	}
}
