package tree

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
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

// attributed tells whether path itself may have attributes or access lists that a command has set.
func attributed(path string) bool {
	var buf [1024]byte
	n, err := unix.Llistxattr(path, buf[:])
	if err == unix.ENOTSUP || err == unix.EPERM {
		return false
	}
	return err != nil || foreign(string(buf[:n]))
}
