//go:build unix && !linux

package fs

import (
	"golang.org/x/sys/unix"
)

func syncFS(tree) error {
	unix.Sync()
	return nil
}

func unwrittenBytes() int64 { return 0 }

func (t tree) syncFolder(name string) error { return t.sync(name) }
