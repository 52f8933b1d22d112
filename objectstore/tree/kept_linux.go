package tree

import (
	"io/fs"
	"syscall"
)

func stampOf(info fs.FileInfo) keptStamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return keptStamp{}
	}
	return keptStamp{inode: st.Ino, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}
}

// single tells whether a file has one name.
func single(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 1
}
