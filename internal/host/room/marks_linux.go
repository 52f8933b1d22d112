//go:build amd64 || arm64

package room

import (
	"io/fs"
	"strings"
	"syscall"

	"e3/internal/host/beneath"
)

// mark begins the names of attributes by which overlayfs says what a folder hides. An earlier command may have set some.
const mark = "user.overlay."

// Unmark removes from a folder the marks that rooms with Room.Lower leave: below another one they would hide files.
func Unmark(in *beneath.Dir, folder string) error {
	names, err := in.Attributes(folder)
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, mark) {
			err = in.RemoveAttribute(folder, name)
		}
	}
	return err
}

// Hides reports whether a folder that a command with Room.Lower has left is one that it made anew, so that nothing of a folder
// below shows in it.
func Hides(in *beneath.Dir, folder string) bool {
	return string(in.Attribute(folder, mark+"opaque")) == "y"
}

// Gone reports whether a file is what overlayfs leaves in place of a removed one.
func Gone(in *beneath.Dir, file string) bool {
	info, err := in.Lstat(file)
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == 0
}
