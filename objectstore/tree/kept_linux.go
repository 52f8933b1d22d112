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

// spaceOf is the size of a file's blocks. POSIX leaves open how large the counted blocks are; here they have 512 bytes.
func spaceOf(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	return st.Blocks * 512
}

// single tells whether a file has one name.
func single(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 1
}
