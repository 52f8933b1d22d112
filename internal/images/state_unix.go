//go:build unix

package images

import (
	"fmt"
	"io/fs"
	"syscall"
)

// fileState identifies the state of a file.
func fileState(info fs.FileInfo) string {
	number := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		number = s.Ino
	}
	return fmt.Sprintf("%d %d %d", info.Size(), info.ModTime().UnixNano(), number)
}
