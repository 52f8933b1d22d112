package executions

import (
	"io/fs"
	"path/filepath"

	"e3/internal/host/beneath"
)

// ground is the folder of all sandboxes, with what they have in common.
type ground struct {
	*beneath.Dir
	real   string // its path without links
	strips bool   // this process's umask takes bits from the modes of staged files
}

// survey opens a folder, in which mounts are foreign, and finds out, by a folder made in it, what the umask and the file
// system do to modes.
func survey(path string) (*ground, error) {
	dir, err := beneath.Open(path)
	if err != nil {
		return nil, err
	}
	const probe = "w0"
	err = dir.Confine().Mkdir(probe, stagedDir)
	var info fs.FileInfo
	if err == nil {
		info, err = dir.Lstat(probe)
	}
	if err == nil {
		err = dir.Remove(probe)
	}
	var real string
	if err == nil {
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &ground{Dir: dir, real: real, strips: info.Mode().Perm() != stagedDir}, nil
}
