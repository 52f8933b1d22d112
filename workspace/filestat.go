package workspace

import (
	"io/fs"
	"syscall"

	"e3/internal/format/record"
	"e3/internal/host/stamp"
)

// proves tells whether a file still has the content that was read when then was recorded; now is its present stat.
func proves(then, now record.FileStat) bool {
	return then.Size == now.Size && then.ModTime == now.ModTime && then.ChangeTime == now.ChangeTime && then.Inode == now.Inode &&
		stamp.Settled(then.Seen, then.ModTime, then.ChangeTime)
}

// Stat is the present stat of a file, without the time at which it was seen.
func Stat(info fs.FileInfo) record.FileStat { return fileStat(info) }

// Proves tells whether a file still has the content that it had when then was recorded; now is its present stat.
func Proves(then, now record.FileStat) bool { return proves(then, now) }

// fileStat is the present stat of a file; the caller sets Seen.
func fileStat(info fs.FileInfo) record.FileStat {
	s := record.FileStat{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ChangeTime, s.Inode = changeTime(st), int64(st.Ino)
	}
	return s
}
