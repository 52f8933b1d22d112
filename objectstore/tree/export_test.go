package tree

import (
	"path/filepath"

	"e3/internal/host/beneath"
)

// Header is the beginning of every directory object, for tests.
const Header = header

// Doubtful tells whether a file is too young to show every change.
func (k *Kept) Doubtful() (doubtful bool) {
	k.root.each(func(e *keptEntry) { doubtful = doubtful || e.doubtful })
	return doubtful
}

// Believe takes the present state of the file at path for the one that was written as name.
func (k *Kept) Believe(path, name string) {
	dir, err := beneath.Open(filepath.Dir(path))
	if err != nil {
		panic(err)
	}
	defer dir.Close()
	now, err := dir.Stamp(filepath.Base(path))
	if err != nil {
		panic(err)
	}
	k.root.each(func(e *keptEntry) {
		if e.Name == name {
			e.stamp = stampOf(&now)
		}
	})
}
