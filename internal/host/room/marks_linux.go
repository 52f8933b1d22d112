//go:build amd64 || arm64

package room

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// mark begins the names of attributes by which overlayfs says what a folder hides. An earlier command may have set some.
const mark = "user.overlay."

// Unmark removes from a folder the marks that rooms with Room.Lower leave: below another one they would hide files.
func Unmark(folder string) error {
	var buf [4096]byte
	n, err := unix.Llistxattr(folder, buf[:])
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the attributes of %s: %w", folder, err)
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if !strings.HasPrefix(name, mark) {
			continue
		}
		if err := unix.Lremovexattr(folder, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove attribute %s of %s: %w", name, folder, err)
		}
	}
	return nil
}

// Hides reports whether a folder that a command with Room.Lower has left is one that it made anew, so that nothing of a folder
// below shows in it.
func Hides(folder string) bool {
	var buf [1]byte
	n, err := unix.Lgetxattr(folder, mark+"opaque", buf[:])
	return err == nil && n == 1 && buf[0] == 'y'
}

// Gone reports whether a file is what overlayfs leaves in place of a removed one.
func Gone(file string) bool {
	var st unix.Stat_t
	return unix.Lstat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}
