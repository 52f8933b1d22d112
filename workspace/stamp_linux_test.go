package workspace_test

import (
	"io/fs"
	"syscall"
)

func changeTime(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Ctim.Nano() }
