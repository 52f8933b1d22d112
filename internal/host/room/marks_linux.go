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

// Unmark removes from a folder the marks that rooms with Room.Lower leave: in a later room they would hide files.
func Unmark(in *beneath.Dir, folder string) error {
	names, err := in.Attributes(folder)
	for _, name := range names {
		if err == nil && strings.HasPrefix(name, mark) {
			err = in.RemoveAttribute(folder, name)
		}
	}
	return err
}

// Hides reports whether a command with Room.Lower made a folder anew, so that the folder below does not show through.
func Hides(in *beneath.Dir, folder string) bool {
	return string(in.Attribute(folder, mark+"opaque")) == "y"
}

// Gone reports whether a file is a whiteout, which overlayfs leaves in place of a removed file.
func Gone(in *beneath.Dir, file string) bool {
	info, err := in.Lstat(file)
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == 0
}
