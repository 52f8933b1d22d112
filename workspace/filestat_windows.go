package workspace

import (
	"io/fs"

	"e3/internal/format/record"
)

// fileStat has no change time and no inode here: size and modification time must suffice.
func fileStat(info fs.FileInfo) record.FileStat {
	return record.FileStat{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
}
