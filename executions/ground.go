package executions

import (
	"os"
	"path/filepath"
)

// ground is what all sandboxes of a folder have in common.
type ground struct {
	dir    string
	real   string // dir without links
	strips bool   // this process's umask takes bits from the modes of staged files
}

// survey finds out, by a folder made in dir, what the umask and the file system do to modes.
func survey(dir string) (*ground, error) {
	probe := filepath.Join(dir, "w0")
	if err := os.Mkdir(probe, stagedDir); err != nil {
		return nil, err
	}
	info, err := os.Lstat(probe)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(probe); err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	return &ground{dir: dir, real: real, strips: info.Mode().Perm() != stagedDir}, nil
}
