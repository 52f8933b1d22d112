package tree_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"e3/objectstore"
	"e3/objectstore/tree"
)

func store(t *testing.T, s objectstore.Store, entries tree.Entries) objectstore.Hash {
	t.Helper()
	entries.Sort()
	data, err := tree.Encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	h, err := objectstore.PutBytes(t.Context(), s, data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDiff(t *testing.T) {
	s, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, content string) tree.Entry {
		return tree.Entry{Name: name, Kind: tree.KindFile, Hash: objectstore.Sum([]byte(content)), Size: int64(len(content))}
	}
	dir := func(name string, entries ...tree.Entry) tree.Entry {
		return tree.Entry{Name: name, Kind: tree.KindDir, Hash: store(t, s, entries)}
	}
	was := dir("", file("gone", "x"), file("same", "x"), dir("d", dir("deep", file("f", "1"), file("g", "1"))), dir("lost", file("f", "1")), dir("turns", file("f", "1"))).Hash
	is := dir("", file("new", "x"), file("same", "x"), dir("d", dir("deep", file("f", "2"), file("g", "1"))), file("turns", "1")).Hash
	var got []string
	for c, err := range tree.Diff(t.Context(), s, was, is) {
		if err != nil {
			t.Fatal(err)
		}
		sign := "~"
		if c.Was == nil {
			sign = "+"
		} else if c.Is == nil {
			sign = "-"
		}
		got = append(got, sign+c.Path)
	}
	if want := []string{"~d/deep/f", "-gone", "-lost", "+new", "~turns"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range tree.Diff(t.Context(), s, was, was) {
		t.Error("a directory differs from itself")
	}
	n := 0
	for range tree.Diff(t.Context(), s, was, is) {
		n++
		break
	}
	absent := objectstore.Sum([]byte("absent"))
	for _, err := range tree.Diff(context.Background(), s, was, absent) {
		if n++; !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("a directory that is gone: got %v, want ErrNotFound", err)
		}
	}
	if n != 2 {
		t.Errorf("%d calls, want one change and one error", n)
	}
}
