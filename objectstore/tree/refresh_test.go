package tree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// sessionDir opens the store in base for a session that began at a given time.
func sessionDir(t testing.TB, base string, began time.Time) *objectstore.Dir {
	t.Helper()
	return openDir(t, base, objectstore.Options{Session: func() (string, time.Time, error) { return base, began, nil }})
}

// file is the path of an object.
func file(d *objectstore.Dir, h objectstore.Hash) string {
	return filepath.Join(d.Path(), h.String()[:2], h.String()[2:])
}

func setTime(t testing.TB, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func timeOf(t testing.TB, path string) time.Time {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.ModTime()
}

func TestRefresh(t *testing.T) {
	base := t.TempDir()
	src := filepath.Join(base, "src")
	for i := range 200 { // enough files for concurrency
		path := filepath.Join(src, "many", fmt.Sprint(i))
		if i < 3 {
			path = filepath.Join(src, "a", "b", fmt.Sprint(i))
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Append(nil, "file ", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now().Add(-time.Hour)
	h, _ := putTree(t, sessionDir(t, base, began), src, tree.PutOptions{})
	old := began.Add(-time.Hour)
	var all []objectstore.Hash
	d := sessionDir(t, base, began)
	for e, err := range d.Walk(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Hash)
		setTime(t, file(d, e.Hash), old)
	}
	extra := put(t, d, []byte("not of the tree"))
	setTime(t, file(d, extra), old)
	if ok, err := tree.Refresh(t.Context(), d, h, objectstore.Hash{}); err != nil || !ok {
		t.Fatalf("got %v, %v, want that all is there", ok, err)
	}
	for _, h := range all {
		if got := timeOf(t, file(d, h)); got.Before(began) {
			t.Errorf("object %s has the time %v, want it refreshed", h, got)
		}
	}
	if got := timeOf(t, file(d, extra)); !got.Equal(old) {
		t.Errorf("an object that is not in the tree has the time %v, want it left at %v", got, old)
	}
	for _, gone := range all {
		data, err := os.ReadFile(file(d, gone))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if ok, err := tree.Refresh(t.Context(), d, h, objectstore.Hash{}); err != nil || ok {
			t.Errorf("without %s: got %v, %v, want false", gone, ok, err)
		}
		put(t, d, data)
	}
	if err := errors.Join(os.Chmod(file(d, h), 0o644), os.WriteFile(file(d, h), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if ok, err := tree.Refresh(t.Context(), d, h, objectstore.Hash{}); err != nil || ok {
		t.Errorf("with a torn directory: got %v, %v, want false", ok, err)
	}
}

// A small tree can name one directory very many times: each is refreshed once.
func TestRefreshOfManyPaths(t *testing.T) {
	d := sessionDir(t, t.TempDir(), time.Now())
	h := put(t, d, encode(t, nil))
	for range 60 {
		h = put(t, d, encode(t, tree.Entries{
			{Name: "a", Kind: tree.KindDir, Hash: h}, {Name: "b", Kind: tree.KindDir, Hash: h},
		}))
	}
	if ok, err := tree.Refresh(t.Context(), d, h, objectstore.Hash{}); err != nil || !ok {
		t.Errorf("got %v, %v, want true", ok, err)
	}
	for range tree.MaxDepth {
		h = put(t, d, encode(t, tree.Entries{{Name: "a", Kind: tree.KindDir, Hash: h}}))
	}
	var malformed *tree.Error
	if _, err := tree.Refresh(t.Context(), d, h, objectstore.Hash{}); !errors.As(err, &malformed) {
		t.Errorf("too deep: got %v, want a *tree.Error", err)
	}
}

// What the replaced tree has at the same place is left alone, and nothing else is.
func TestRefreshBeyond(t *testing.T) {
	base := t.TempDir()
	src := filepath.Join(base, "src")
	write := func(rel, content string) {
		t.Helper()
		path := filepath.Join(src, rel)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		write(fmt.Sprintf("a/%d", i), fmt.Sprint("file ", i))
	}
	write("b/same", "same")
	write("c/kind", "kind")
	began := time.Now().Add(-time.Hour)
	d := sessionDir(t, base, began)
	kept, _ := putTree(t, d, src, tree.PutOptions{})
	write("a/5", "changed")
	write("a/new", "new")
	write("moved/same", "same")
	if err := os.Remove(filepath.Join(src, "c/kind")); err != nil {
		t.Fatal(err)
	}
	write("c/kind/x", "below")
	h, _ := putTree(t, d, src, tree.PutOptions{})
	age := func() {
		t.Helper()
		for e, err := range d.Walk(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			setTime(t, file(d, e.Hash), began.Add(-time.Hour))
		}
	}
	refreshed := func() (n int) {
		t.Helper()
		for e, err := range d.Walk(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !timeOf(t, file(d, e.Hash)).Before(began) {
				n++
			}
		}
		return n
	}
	age()
	if ok, err := tree.Refresh(t.Context(), d, h, kept); err != nil || !ok {
		t.Fatalf("got %v, %v, want that all is there", ok, err)
	}
	// Directories: the root, a, c, kind, moved. Files: 5, new, same at its new place, x.
	if n := refreshed(); n != 9 {
		t.Errorf("%d objects were refreshed, want 9", n)
	}
	// Without the replaced tree everything is refreshed.
	age()
	if err := os.Remove(file(d, kept)); err != nil {
		t.Fatal(err)
	}
	if ok, err := tree.Refresh(t.Context(), d, h, kept); err != nil || !ok {
		t.Fatalf("got %v, %v, want that all is there", ok, err)
	}
	if n := refreshed(); n != 108 {
		t.Errorf("without the replaced tree %d objects were refreshed, want 108", n)
	}
	// A new object that is lost is noticed.
	if err := os.Remove(file(d, objectstore.Sum([]byte("below")))); err != nil {
		t.Fatal(err)
	}
	if ok, err := tree.Refresh(t.Context(), d, h, kept); err != nil || ok {
		t.Errorf("got %v, %v, want that an object is missing", ok, err)
	}
}
