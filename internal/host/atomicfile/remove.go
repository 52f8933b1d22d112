package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll removes a tree even if a command has removed the owner's permissions in it. A missing tree is no error.
func RemoveAll(path string) error {
	err := removeAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, statErr := os.Lstat(path); statErr != nil || !info.IsDir() {
		return err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
