package tree

import (
	"path/filepath"

	"e3/internal/host/beneath"
)

// Header is the beginning of every directory object, for tests.
const Header = header

// Doubtful tells whether a file is too young to show every change.
func (k *Kept) Doubtful() bool { return k.folder.doubtful() }

func (f *keptFolder) doubtful() bool {
	for _, file := range f.files {
		if file.doubtful {
			return true
		}
	}
	for _, sub := range f.folders {
		if sub.doubtful() {
			return true
		}
	}
	return false
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
	file := k.folder.files[name]
	file.stamp = stampOf(&now)
	k.folder.files[name] = file
}
