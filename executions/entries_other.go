//go:build !linux

package executions

import (
	"io"
	"io/fs"
	"os"
)

// createFile makes a file for reading and writing.
func createFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|flags, perm)
}

// rename renames a file.
func rename(from, to string) error { return os.Rename(from, to) }

// hasEntries tells whether a directory has exactly n entries.
func hasEntries(dir string, n int) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(n + 1)
	return len(names) == n && (err == nil || err == io.EOF)
}
