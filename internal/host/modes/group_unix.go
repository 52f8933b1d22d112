//go:build unix

package modes

import (
	"os"
	"syscall"
)

// takeGroup gives a file the group of a folder.
func takeGroup(f *os.File, folder string) error {
	want, err := os.Stat(folder)
	if err != nil {
		return err
	}
	has, err := f.Stat()
	if err != nil {
		return err
	}
	gid := want.Sys().(*syscall.Stat_t).Gid
	if has.Sys().(*syscall.Stat_t).Gid == gid {
		return nil
	}
	return f.Chown(-1, int(gid))
}
