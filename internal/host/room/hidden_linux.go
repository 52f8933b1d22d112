//go:build amd64 || arm64

package room

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ErrExposed says that a folder which a room must not show lies where the programs of this machine are.
var ErrExposed = errors.New("a closed room cannot hide it")

// programFolders hold programs and libraries: a room cannot do without them.
var programFolders = []string{"bin", "lib", "lib32", "lib64", "libexec", "libx32", "sbin", "share"}

// Hidden returns the folders that a room would show and has to cover (Room.Hidden): without links, each once. Folders
// that do not exist show nothing. The error wraps ErrExposed: a folder holds what all programs need.
func Hidden(folders ...string) ([]string, error) {
	return hiddenIn(thisSystem(), folders)
}

// Shows reports whether a room without Root, with these folders covered, shows a file of this machine at its path.
func Shows(path string, hidden []string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	in := func(path string, folders []string) bool {
		return slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder+"/") })
	}
	s := thisSystem()
	return in(path, systemFolders) && in(resolved, s.folders) && !in(resolved, hidden)
}

func hiddenIn(s *system, folders []string) ([]string, error) {
	var list []string
	for _, folder := range folders {
		path, err := filepath.EvalSymlinks(folder)
		if err != nil || !filepath.IsAbs(path) {
			continue
		}
		for _, shown := range slices.Concat(s.folders, s.settingFolders) {
			at, err := filepath.Rel(shown, path)
			if err != nil || at == ".." || strings.HasPrefix(at, "../") {
				continue
			}
			if at == "." || slices.Contains(programFolders, at) || at == "local" {
				return nil, fmt.Errorf("%w: %s, because programs of the machine are in it: move the project to a folder of its own", ErrExposed, path)
			}
			list = append(list, path)
			break
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	// A folder in a covered folder cannot be covered, and need not be.
	return slices.DeleteFunc(slices.Clone(list), func(path string) bool {
		return slices.ContainsFunc(list, func(outer string) bool { return strings.HasPrefix(path, outer+"/") })
	}), nil
}
