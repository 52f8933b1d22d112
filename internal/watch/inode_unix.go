//go:build unix

package watch

import (
	"io/fs"
	"syscall"
)

// number is the inode, which shows that another file has taken the path.
func number(info fs.FileInfo) any {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return nil
}
