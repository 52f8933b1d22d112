//go:build !unix

package images

import (
	"fmt"
	"io/fs"
)

// fileState identifies the state of a file.
func fileState(info fs.FileInfo) string {
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
}
