//go:build unix && !linux

package fs

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncFS(*os.File) error {
	unix.Sync()
	return nil
}
