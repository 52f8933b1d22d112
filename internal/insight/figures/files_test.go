package figures_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/figures"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// TestFind: a view selects a file, a folder or what matches a pattern; links are not followed, and what is missing is named.
func TestFind(t *testing.T) {
	ctx := t.Context()
	objects, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) objectstore.Hash {
		h, err := objectstore.PutBytes(ctx, objects, data)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	folder := func(list ...tree.Entry) objectstore.Hash {
		e := tree.Entries(list)
		e.Sort()
		data, err := tree.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return put(data)
	}
	content := put([]byte("{}"))
	file := func(name string) tree.Entry {
		return tree.Entry{Name: name, Kind: tree.KindFile, Hash: content, Size: 2}
	}
	dir := func(name string, h objectstore.Hash) tree.Entry {
		return tree.Entry{Name: name, Kind: tree.KindDir, Hash: h}
	}
	live := folder(file("a.json"), file("b.json"), file(".hidden.json"), file("c.txt"))
	eval := folder(file("m.json"), dir("live", live), dir("gone", objectstore.Sum([]byte("gone"))),
		tree.Entry{Name: "link.json", Kind: tree.KindLink, Target: "m.json"})
	several := folder(file("scores"), dir("eval", eval), tree.Entry{Name: "link", Kind: tree.KindLink, Target: "scores"})
	for _, test := range []struct {
		entry, path string
		output      objectstore.Hash
		dir         bool
		want        string
	}{
		{"", "m.json", content, false, "m.json"},
		{"scores", "scores.json", several, true, "scores.json"},
		{"", "m.json", eval, true, "m.json"},
		{"eval", "m.json", several, true, "m.json"},
		{"eval", "live", several, true, "live/.hidden.json live/a.json live/b.json …"},
		{"", "live/*.json", eval, true, "live/a.json live/b.json"},
		{"", "liv*/a.json", folder(dir("live", live), file("x")), true, "live/a.json"},
		{"", "**/*.json", folder(dir("live", live), file("m.json")), true, "live/a.json live/b.json m.json"},
		{"", "", live, true, ".hidden.json a.json b.json …"},
		{"", "none/*.json", eval, true, ""},
		{"", "m.json/*", eval, true, ""},
		{"", "none.json", eval, true, "there is no none.json in it"},
		{"", "m.json/deep", eval, true, "there is no m.json/deep in it"},
		{"", "link.json", eval, true, "link.json is a link"},
		{"link", "l.json", several, true, "it is a link"},
		{"other", "l.json", several, true, "not exist"},
		{"", "gone", eval, true, "not found"},
	} {
		v := record.View{Entry: test.entry, Path: test.path}
		list, more, err := figures.Find(ctx, objects, &v, test.output, test.dir, 3)
		var got []string
		for _, f := range list {
			got = append(got, f.Path)
			if f.Hash != content || f.Inner != (test.entry != "scores" && test.dir) {
				t.Errorf("%s %s: %+v", test.entry, test.path, f)
			}
			if f.Inner && !figures.Covers(&v, f.Path) {
				t.Errorf("%s: the view selects %s, and does not cover it", test.path, f.Path)
			}
		}
		if more {
			got = append(got, "…")
		}
		switch said := strings.Join(got, " "); {
		case err != nil && !strings.Contains(err.Error(), test.want):
			t.Errorf("%s %q: %v, want %q", test.entry, test.path, err, test.want)
		case err == nil && said != test.want:
			t.Errorf("%s %q: %s, want %s", test.entry, test.path, said, test.want)
		case strings.HasPrefix(test.want, "there is no") && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%q: %v is not fs.ErrNotExist", test.path, err)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		path, rel string
		want      bool
	}{
		{"", "a/b", true}, {"a", "a/b", true}, {"a", "a", true}, {"a", "ab", false}, {"*.json", "a.json", true}, {"*.json", "b/a.json", false},
	} {
		if got := figures.Covers(&record.View{Path: test.path}, test.rel); got != test.want {
			t.Errorf("%q covers %q: %t, want %t", test.path, test.rel, got, test.want)
		}
	}
}
