package tools

import (
	"io/fs"
	"syscall"
)

// status returns the time of a file's last change, of content or mode, and its inode.
func status(info fs.FileInfo) (changed, inode int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano(), int64(st.Ino)
	}
	return 0, 0
}
