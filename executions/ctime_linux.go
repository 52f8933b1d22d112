package executions

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime is the ctime: no program can set it back.
func changeTime(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}
