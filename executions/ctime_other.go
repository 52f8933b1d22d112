//go:build !linux

package executions

import (
	"io/fs"
	"time"
)

// changeTime falls back to the modification time, which a command can set: the next command would see a HOME that a
// command wrote to and dated back.
func changeTime(info fs.FileInfo) time.Time { return info.ModTime() }

// fileNumber is only needed where commands outlive the process that began them, which they do not here.
func fileNumber(fs.FileInfo) uint64 { return 0 }
