//go:build unix

package workspace

import (
	"io/fs"
	"syscall"

	"e3/internal/format/record"
)

// fileStat is the present stat of a file; the caller sets Seen.
func fileStat(info fs.FileInfo) record.FileStat {
	s := record.FileStat{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ChangeTime, s.Inode = changeTime(st), int64(st.Ino)
	}
	return s
}
