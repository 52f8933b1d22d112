//go:build !linux

package fs

import (
	"errors"
	iofs "io/fs"
	"os"
)

// readDir returns the entries of a folder in no particular order; none if it does not exist. It reads the folder twice
// and returns the entries of both passes, because a single pass may miss an entry that is replaced meanwhile.
func (t tree) readDir(dir string) ([]entry, error) {
	var entries []entry
	seen := make(map[string]bool)
	for range 2 {
		f, err := t.OpenFile(dir, os.O_RDONLY, 0)
		if errors.Is(err, iofs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, t.foreign(dir, err)
		}
		list, err := f.ReadDir(-1)
		f.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if seen[e.Name()] {
				continue
			}
			seen[e.Name()] = true
			kind := isOther
			switch {
			case e.Type().IsRegular():
				kind = isFile
			case e.IsDir():
				kind = isDir
			}
			entries = append(entries, entry{name: e.Name(), kind: kind})
		}
	}
	return entries, nil
}
