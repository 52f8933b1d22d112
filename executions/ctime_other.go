//go:build !linux

package executions

import (
	"io/fs"
	"time"
)

// changeTime falls back to the modification time, which a command can reset after it has written to HOME. The next
// command then sees those files.
func changeTime(info fs.FileInfo) time.Time { return info.ModTime() }

// fileNumber is only needed on systems where commands outlive the process that began them.
func fileNumber(fs.FileInfo) uint64 { return 0 }
