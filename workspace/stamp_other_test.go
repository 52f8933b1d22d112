//go:build !linux

package workspace_test

import "io/fs"

func changeTime(info fs.FileInfo) int64 { return info.ModTime().UnixNano() }
