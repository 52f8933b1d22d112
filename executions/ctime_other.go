//go:build !linux

package executions

import (
	"io/fs"
	"time"
)

// changeTime falls back to the modification time, which a command can set: a HOME that
// it wrote to and dated back would be seen by the next command.
func changeTime(info fs.FileInfo) time.Time { return info.ModTime() }

// fileNumber tells files of one file system apart where commands outlive the process that began them, which they do not here.
func fileNumber(fs.FileInfo) uint64 { return 0 }
