package beneath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/beneath"
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
	if err := beneath.RemoveAll(top); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after RemoveAll: %v", err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o600 && info.Mode().Perm() != 0o666 {
		t.Errorf("what a link points to: %v, %v", info, err)
	}
	if err := beneath.RemoveAll(top); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}

// TestRemoveAllOfLargeTrees removes a tree that is deep, wide, and has links to what must stay.
func TestRemoveAllOfLargeTrees(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "stays"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	deep := top
	for range 150 {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		path := filepath.Join(top, fmt.Sprintf("%0*d", 1+i%200, i))
		var err error
		switch i % 3 {
		case 0:
			err = os.WriteFile(path, nil, 0o400)
		case 1:
			err = os.Mkdir(path, 0o700)
		default:
			err = os.Symlink(outside, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := beneath.RemoveAll(top); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after RemoveAll: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "stays")); err != nil {
		t.Errorf("what links point to: %v", err)
	}
	file := filepath.Join(outside, "stays")
	if err := beneath.RemoveAll(file); err != nil {
		t.Errorf("RemoveAll of a file: %v", err)
	}
	if err := beneath.RemoveAll(file + "/below"); err != nil {
		t.Errorf("RemoveAll of nothing: %v", err)
	}
}
