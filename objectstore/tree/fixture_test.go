package tree_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"e3/objectstore"
)

func newDir(t testing.TB) *objectstore.Dir { return newDirIn(t, t.TempDir()) }

func newDirIn(t testing.TB, base string) *objectstore.Dir {
	return openDir(t, base, objectstore.Options{})
}

func openDir(t testing.TB, base string, o objectstore.Options) *objectstore.Dir {
	t.Helper()
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t testing.TB, d *objectstore.Dir, b []byte) objectstore.Hash {
	t.Helper()
	h, err := d.PutBytes(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// checkAll verifies every object, and that the store has no other files.
func checkAll(t testing.TB, d *objectstore.Dir) {
	t.Helper()
	objects, files := 0, 0
	for e, err := range d.Walk(t.Context()) {
		if err == nil {
			err = d.Verify(t.Context(), e.Hash)
		}
		if err != nil {
			t.Error(err)
		}
		objects++
	}
	err := filepath.WalkDir(d.Path(), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
		}
		return err
	})
	if err != nil || files != objects {
		t.Errorf("the store has %d files and %d objects, %v", files, objects, err)
	}
}
