package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/atomicfile"
)

func TestRemoveAllOfClosedFolders(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "a", "b", "f"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(top, "a", "l")); err != nil {
		t.Skipf("this system lets us make no symbolic link: %v", err)
	}
	for _, dir := range []string{"a/b", "a", "."} {
		if err := os.Chmod(filepath.Join(top, dir), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := atomicfile.RemoveAll(top); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after RemoveAll: %v", err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o600 && info.Mode().Perm() != 0o666 {
		t.Errorf("what a link points to: %v, %v", info, err)
	}
	if err := atomicfile.RemoveAll(top); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}
