package workspace_test

import (
	"os"
	"testing"
)

// stamp is the later of a file's change and modification times, with the file system's resolution.
func stamp(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return max(info.ModTime().UnixNano(), changeTime(info))
}
