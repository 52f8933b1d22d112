package tree

import "os"

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
	info, err := os.Lstat(path)
	if err != nil {
		panic(err)
	}
	file := k.folder.files[name]
	file.stamp = stampOf(info)
	k.folder.files[name] = file
}
