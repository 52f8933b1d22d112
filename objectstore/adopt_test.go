package objectstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// adopted puts the file at path by Adopt, checks the object and reports whether it is the same file.
func adopted(t *testing.T, d *objectstore.Dir, path string) (objectstore.Hash, bool) {
	t.Helper()
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := d.Adopt(t.Context(), suite.Paths{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if want := (objectstore.Info{Hash: objectstore.Sum(b), Size: int64(len(b))}); info != want {
		t.Errorf("Adopt = %v, want %v", info, want)
	}
	object, err := os.Lstat(d.File(info.Hash))
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(object.ModTime()).Abs(); age > time.Minute {
		t.Errorf("the object is %v old", age)
	}
	checkAll(t, d)
	return info.Hash, os.SameFile(before, object)
}

func TestAdoptKeepsObjectsApart(t *testing.T) {
	// Whatever else it does, Adopt never leaves the object reachable by another name.
	for _, size := range []int{0, 1, 4096, objectstore.ChunkSize, objectstore.ChunkSize + 1, 3 << 20} {
		base := t.TempDir()
		d := newDirIn(t, base)
		path := filepath.Join(base, "out")
		b := writeFile(t, path, 3, size)
		long := time.Now().Add(-10000 * time.Hour)
		os.Chtimes(path, long, long)
		h, _ := adopted(t, d, path)
		os.WriteFile(path, []byte("later"), 0o644)
		if got, err := d.ReadAll(t.Context(), h, 1<<30); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %v", size, err)
		}
		// The same again.
		os.Remove(path)
		writeFile(t, path, 3, size)
		adopted(t, d, path)
	}
}

func TestAdoptHardLinked(t *testing.T) {
	base := t.TempDir()
	d := newDirIn(t, base)
	path, other := filepath.Join(base, "out"), filepath.Join(base, "other")
	writeFile(t, path, 3, 4096)
	if err := os.Link(path, other); err != nil {
		t.Skipf("needs a file system with hard links: %v", err)
	}
	h, same := adopted(t, d, path)
	if same {
		t.Error("a file with two names was taken over")
	}
	os.WriteFile(other, []byte("later"), 0o644)
	if err := d.Verify(t.Context(), h); err != nil {
		t.Error(err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	base := t.TempDir()
	d := newDirIn(t, base)
	writeFile(t, filepath.Join(base, "file"), 3, 10)
	link := filepath.Join(base, "link")
	if err := os.Symlink("file", link); err != nil {
		t.Skipf("needs a system with symbolic links: %v", err)
	}
	for _, path := range []string{link, base} {
		var special *objectstore.SpecialFileError
		if _, err := d.Adopt(t.Context(), suite.Paths{}, path); !errors.As(err, &special) || special.Path != path {
			t.Errorf("%s: got %v, want *SpecialFileError", path, err)
		}
	}
	if _, err := d.Adopt(t.Context(), suite.Paths{}, filepath.Join(base, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: got %v, want os.ErrNotExist", err)
	}
}

// The arguments of OnTaking suffice to undo everything.
func TestOnTaking(t *testing.T) {
	base := t.TempDir()
	d := newDirIn(t, base)
	dir := filepath.Join(base, "out")
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string]os.FileMode{filepath.Join(dir, "a"): 0o644, filepath.Join(dir, "deep", "b"): 0o755}
	for path, mode := range want {
		writeFile(t, path, 3, 10)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	got := map[string]os.FileMode{}
	ctx := objectstore.OnTaking(t.Context(), func(path string, info objectstore.Info, mode os.FileMode) error {
		b, err := os.ReadFile(path) // it is there as it was
		mu.Lock()
		defer mu.Unlock()
		if got[path] = mode; err != nil || objectstore.Sum(b) != info.Hash {
			t.Errorf("%s: %v, or not what it holds", path, err)
		}
		return nil
	})
	if _, _, err := tree.Put(ctx, d, dir, tree.PutOptions{Adopt: true}); err != nil {
		t.Fatal(err)
	}
	for path, mode := range got {
		if want[path] != mode {
			t.Errorf("%s was taken with mode %v, want %v", path, mode, want[path])
		}
	}
	for path := range want {
		if _, err := os.Stat(path); err != nil && got[path] == 0 {
			t.Errorf("%s is gone without a word", path)
		}
	}
	refuses := errors.New("refused")
	path := filepath.Join(base, "c")
	writeFile(t, path, 3, 20)
	_, err := d.Adopt(objectstore.OnTaking(t.Context(), func(string, objectstore.Info, os.FileMode) error { return refuses }), suite.Paths{}, path)
	if _, statErr := os.Stat(path); statErr != nil || err != nil && !errors.Is(err, refuses) {
		t.Errorf("a refused file: %v, %v", err, statErr)
	}
}
