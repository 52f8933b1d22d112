package beneath

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Path is the name of an entry in messages.
func (d *Dir) Path(rel string) string {
	if rel == "." {
		return d.name
	}
	return d.name + string(filepath.Separator) + rel
}

// Obstacle returns the cause of an error of a call for rel, if the cause is a link, or something other than a folder on
// the way: the first such name, and its type.
func (d *Dir) Obstacle(rel string, err error) (name string, mode fs.FileMode, ok bool) {
	if !errors.Is(err, ErrLink) && !errors.Is(err, syscall.ENOTDIR) {
		return "", 0, false
	}
	for at := range len(rel) + 1 {
		if at < len(rel) && rel[at] != filepath.Separator {
			continue
		}
		info, err := d.Lstat(rel[:at])
		if err != nil {
			break
		}
		if mode := info.Mode(); mode&fs.ModeSymlink != 0 || at < len(rel) && !mode.IsDir() {
			return rel[:at], mode.Type(), true
		}
	}
	if errors.Is(err, ErrLink) { // the obstacle is gone again
		return rel, fs.ModeSymlink, true
	}
	return "", 0, false
}
