package suite

import (
	"io/fs"
	"os"
)

// Paths is an objectstore.Folder whose names are paths of this machine.
type Paths struct{}

// OpenFile is os.OpenFile.
func (Paths) OpenFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flags, perm)
}

// Lstat is os.Lstat.
func (Paths) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

// Remove is os.Remove.
func (Paths) Remove(path string) error { return os.Remove(path) }
