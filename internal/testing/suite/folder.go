package suite

import (
	"os"
	"path/filepath"
	"testing"
)

// OpenFolder returns a new folder that other users can enter, like t.TempDir otherwise. It skips the test below a
// folder that they cannot.
func OpenFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // t.TempDir closes it
		t.Fatal(err)
	}
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm()&0o001 == 0 {
			t.Skipf("other users cannot enter %s, %v: set TMPDIR to a folder that is open, such as /tmp", at, err)
		}
	}
	return dir
}
