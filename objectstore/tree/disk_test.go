package tree_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// A layout describes a directory: a path that ends in "/" is a directory, content that starts
// with "->" makes a link, and with "#!" an executable.
type layout map[string]string

func (l layout) write(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o777))
	for rel, content := range l {
		at := filepath.Join(dir, filepath.FromSlash(rel))
		must(os.MkdirAll(filepath.Dir(at), 0o777))
		target, isLink := strings.CutPrefix(content, "->")
		switch {
		case strings.HasSuffix(rel, "/"):
			must(os.MkdirAll(at, 0o777))
		case isLink:
			must(os.Symlink(target, at))
		case strings.HasPrefix(content, "#!"):
			must(os.WriteFile(at, []byte(content), 0o777))
		default:
			must(os.WriteFile(at, []byte(content), 0o666))
		}
	}
}

// readLayout is the reverse; it lists only empty directories.
func readLayout(t testing.TB, dir string) layout {
	t.Helper()
	l := layout{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, at)
		rel = filepath.ToSlash(rel)
		if parent := path.Dir(rel) + "/"; rel != "." {
			delete(l, parent)
		}
		switch {
		case rel == ".":
		case e.IsDir():
			l[rel+"/"] = ""
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(at)
			l[rel] = "->" + target
			return err
		default:
			b, err := os.ReadFile(at)
			l[rel] = string(b)
			fi, _ := e.Info()
			if x := fi.Mode()&0o100 != 0; x != strings.HasPrefix(string(b), "#!") {
				return fmt.Errorf("%s: mode %v", rel, fi.Mode())
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func putTree(t testing.TB, s objectstore.Store, dir string, o tree.PutOptions) (objectstore.Hash, tree.Stats) {
	t.Helper()
	h, stats, err := tree.Put(t.Context(), s, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return h, stats
}

var example = layout{
	"a.txt":              "a",
	"empty":              "",
	"run.sh":             "#!/bin/sh\n",
	"sub/b.txt":          "b",
	"sub/deep/er/c":      "c",
	"sub/hollow/":        "",
	"with space/ö\n\"x'": "odd",
	"\U0001F600":         "beyond",
	"\uFF5E":             "before",
	"link":               "->a.txt",
	"sub/up":             "->../a.txt",
	"sub/deep/around":    "->../../sub/./b.txt",
	"dangling":           "->nowhere/at/all",
	"todir":              "->sub/deep",
	"through":            "->todir/../b.txt",
}

func TestOnDisk(t *testing.T) {
	for name, s := range map[string]objectstore.Store{"dir": newDir(t), "mem": new(objectstoretest.Mem)} {
		for _, adopt := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, adopt %v", name, adopt), func(t *testing.T) {
				src, dst := t.TempDir(), filepath.Join(t.TempDir(), "new")
				example.write(t, src)
				want, _ := putTree(t, new(objectstoretest.Mem), src, tree.PutOptions{})
				h, stats := putTree(t, s, src, tree.PutOptions{Adopt: adopt})
				if h != want {
					t.Errorf("got %s, want %s as from any other store", h, want)
				}
				out, err := tree.Checkout(t.Context(), s, h, dst, tree.CheckoutOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(example, readLayout(t, dst)); diff != "" {
					t.Errorf("checked out (-want +got):\n%s", diff)
				}
				counts := tree.Stats{Files: 8, Dirs: 5, Links: 6, Bytes: 28}
				if out != counts {
					t.Errorf("checkout: got %+v, want %+v", out, counts)
				}
				if counts.Read = 8; stats != counts {
					t.Errorf("put: got %+v, want %+v", stats, counts)
				}
			})
		}
		if d, ok := s.(*objectstore.Dir); ok {
			checkAll(t, d)
		}
	}
}

func TestWalkAndLookup(t *testing.T) {
	s := new(objectstoretest.Mem)
	src := t.TempDir()
	example.write(t, src)
	h, _ := putTree(t, s, src, tree.PutOptions{})
	seen := map[string]tree.Entry{}
	err := tree.Walk(t.Context(), s, h, func(rel string, e tree.Entry) error {
		if dir := path.Dir(rel); dir != "." && seen[dir].Kind != tree.KindDir {
			t.Errorf("%q comes before its directory", rel)
		}
		seen[rel] = e
		if rel == "sub/deep" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := seen["sub/deep/er"]; ok || len(seen) != 16 {
		t.Errorf("got %d entries, want 16 without those below sub/deep", len(seen))
	}
	for rel, want := range seen {
		if got, err := tree.Lookup(t.Context(), s, h, rel); err != nil || got != want {
			t.Errorf("Lookup(%q) = %+v, %v, want %+v", rel, got, err, want)
		}
	}
	if e, err := tree.Lookup(t.Context(), s, h, "."); err != nil || e.Hash != h || e.Kind != tree.KindDir {
		t.Errorf("Lookup(.) = %+v, %v", e, err)
	}
	for rel, want := range map[string]error{
		"absent": fs.ErrNotExist, "sub/absent": fs.ErrNotExist, "a.txt/x": fs.ErrNotExist, "todir/er": fs.ErrNotExist,
		"": fs.ErrInvalid, "/a.txt": fs.ErrInvalid, "sub/../a.txt": fs.ErrInvalid, "sub/": fs.ErrInvalid,
	} {
		if _, err := tree.Lookup(t.Context(), s, h, rel); !errors.Is(err, want) {
			t.Errorf("Lookup(%q): got %v, want %v", rel, err, want)
		}
	}
	n := 0
	err = tree.Walk(t.Context(), s, h, func(string, tree.Entry) error { n++; return fs.SkipAll })
	if err != nil || n != 1 {
		t.Errorf("SkipAll: %d visits, %v", n, err)
	}
	s.Delete(seen["sub"].Hash)
	if _, err := tree.Lookup(t.Context(), s, h, "sub/b.txt"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("without the directory object: got %v, want ErrNotFound", err)
	}
}

func TestFilter(t *testing.T) {
	s := new(objectstoretest.Mem)
	src := t.TempDir()
	example.write(t, src)
	onlyB := func(rel string, e fs.DirEntry) bool { return e.IsDir() || path.Base(rel) == "b.txt" }
	h, _ := putTree(t, s, src, tree.PutOptions{Filter: onlyB})
	dst := t.TempDir()
	if _, err := tree.Checkout(t.Context(), s, h, dst, tree.CheckoutOptions{}); err != nil {
		t.Fatal(err)
	}
	want := layout{"sub/b.txt": "b", "sub/hollow/": "", "sub/deep/er/": "", "with space/": ""}
	if diff := cmp.Diff(want, readLayout(t, dst)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nothing := func(string, fs.DirEntry) bool { return false }
	h, stats := putTree(t, s, src, tree.PutOptions{Filter: nothing})
	if h != objectstore.Sum(encode(t, nil)) || stats != (tree.Stats{}) {
		t.Errorf("nothing taken: got %s, %+v, want the empty tree", h, stats)
	}
}

// A directory that is built of files is the one that Put makes of them, and bad names are told with their path.
func TestBuild(t *testing.T) {
	s := new(objectstoretest.Mem)
	files := layout{"a": "1", "sub/b.txt": "b", "sub/deep/er/c": "c", "sub/deep/d": "d", "z/y": ""}
	src := t.TempDir()
	files.write(t, src)
	want, _ := putTree(t, s, src, tree.PutOptions{})
	var placed []tree.Placed
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(files))) { // in any order
		h, err := objectstore.PutBytes(t.Context(), s, []byte(files[name]))
		if err != nil {
			t.Fatal(err)
		}
		placed = append(placed, tree.Placed{Path: name, Info: objectstore.Info{Hash: h, Size: int64(len(files[name]))}})
	}
	got, err := tree.Build(t.Context(), s, placed)
	if err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if h, err := tree.Build(t.Context(), s, nil); err != nil || h != objectstore.Sum(encode(t, nil)) {
		t.Errorf("of nothing: %s, %v; want the empty tree", h, err)
	}
	var bad *tree.Error
	if _, err := tree.Build(t.Context(), s, []tree.Placed{{Path: "sub/\xff"}}); !errors.As(err, &bad) || bad.Path != "sub/\xff" {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
	if _, err := tree.Build(t.Context(), s, []tree.Placed{{Path: strings.Repeat("d/", 300) + "f"}}); err == nil {
		t.Error("a tree that is too deep was built")
	}
}

func TestLinks(t *testing.T) {
	for name, c := range map[string]struct {
		tree layout
		bad  string // the path that the error names; "" for none
	}{
		"absolute":             {layout{"d/l": "->/etc/passwd"}, "d/l"},
		"above":                {layout{"d/l": "->../../x"}, "d/l"},
		"parent of the root":   {layout{"l": "->.."}, "l"},
		"root itself":          {layout{"d/l": "->.."}, ""},
		"out and in again":     {layout{"l": "->../" + "tree/x"}, "l"},
		"down and up":          {layout{"l": "->a/../b"}, ""},
		"down and too far up":  {layout{"l": "->a/../../b"}, "l"},
		"up through a link":    {layout{"p/q/up": "->../..", "e": "->p/q/up/../x"}, "e"},
		"up through two links": {layout{"p/q/up": "->../..", "v": "->p/q", "e": "->v/up/../x"}, "e"},
		"inside through links": {layout{"p/q/up": "->..", "e": "->p/q/up/../x"}, ""},
		"circle":               {layout{"a": "->b", "b": "->a"}, "a"},
		"itself":               {layout{"a": "->a/x"}, "a"},
		"slashes and dots":     {layout{"d/l": "->.//./x/."}, ""},
		"through a file":       {layout{"f": "x", "l": "->f/../../y"}, "l"},
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			c.tree.write(t, src)
			h, _, err := tree.Put(t.Context(), newDir(t), src, tree.PutOptions{})
			if c.bad == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			var rule *tree.Error
			if !errors.As(err, &rule) || rule.Path != c.bad || !h.IsZero() {
				t.Errorf("got %s, %v, want *tree.Error for %s", h, err, c.bad)
			}
		})
	}
}

// hostile stores trees that Put would never store; values are entries or trees.
func hostile(t testing.TB, s objectstore.Store, entries tree.Entries) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), s, raw(entries))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCheckoutHostile(t *testing.T) {
	s := new(objectstoretest.Mem)
	file, err := objectstore.PutBytes(t.Context(), s, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	payload := tree.Entry{Name: "p", Kind: tree.KindFile, Hash: file, Size: 7}
	inside := hostile(t, s, tree.Entries{payload})
	link := func(name, target string) tree.Entry {
		return tree.Entry{Name: name, Kind: tree.KindLink, Target: target}
	}
	deep := inside
	for range tree.MaxDepth + 1 {
		deep = hostile(t, s, tree.Entries{{Name: "d", Kind: tree.KindDir, Hash: deep}})
	}
	bomb := inside
	for range 30 {
		bomb = hostile(t, s, tree.Entries{{Name: "a", Kind: tree.KindDir, Hash: bomb}, {Name: "b", Kind: tree.KindDir, Hash: bomb}})
	}
	up := payload
	up.Name = "../p"
	for name, h := range map[string]objectstore.Hash{
		"name with dots":      hostile(t, s, tree.Entries{up}),
		"link outside":        hostile(t, s, tree.Entries{link("l", "../x")}),
		"absolute link":       hostile(t, s, tree.Entries{link("l", "/tmp")}),
		"link and directory":  hostile(t, s, tree.Entries{{Name: "d", Kind: tree.KindDir, Hash: inside}, link("d", "..")}),
		"too deep":            deep,
		"bomb":                bomb,
		"wrong size":          hostile(t, s, tree.Entries{{Name: "p", Kind: tree.KindFile, Hash: file, Size: 8}}),
		"absent file":         hostile(t, s, tree.Entries{{Name: "p", Kind: tree.KindFile, Size: 8}}),
		"file as a directory": hostile(t, s, tree.Entries{{Name: "p", Kind: tree.KindDir, Hash: file}}),
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dst := filepath.Join(base, "dst")
			_, err := tree.Checkout(t.Context(), s, h, dst, tree.CheckoutOptions{MaxEntries: 1000})
			if err == nil {
				t.Error("got no error")
			}
			if left, _ := os.ReadDir(base); len(left) != 1 {
				t.Errorf("something was written outside: %v", left)
			}
			filepath.WalkDir(dst, func(at string, e fs.DirEntry, err error) error {
				if err == nil && e.Type() == fs.ModeSymlink {
					t.Errorf("the link %s was made", at)
				}
				return err
			})
		})
	}
}

func TestCheckoutMerges(t *testing.T) {
	s := new(objectstoretest.Mem)
	src := t.TempDir()
	layout{"d/new": "new", "f": "f", "l": "->f"}.write(t, src)
	h, _ := putTree(t, s, src, tree.PutOptions{})
	for name, c := range map[string]struct {
		there layout
		bad   string // conflicts with the tree
	}{
		"nothing in the way":       {layout{"d/old": "old", "other": "x"}, ""},
		"a file":                   {layout{"f": "mine"}, "f"},
		"a file in a directory":    {layout{"d/new": "mine"}, "d/new"},
		"a link for a file":        {layout{"f": "->elsewhere"}, "f"},
		"a link for a link":        {layout{"l": "->elsewhere"}, "l"},
		"a link for a directory":   {layout{"other/": "", "d": "->other"}, "d"},
		"a link out for directory": {layout{"d": "->../out"}, "d"},
		"a file for a directory":   {layout{"d": "mine"}, "d"},
		"a directory for a file":   {layout{"f/": ""}, "f"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dst := filepath.Join(base, "dst")
			layout{"out/keep": "kept"}.write(t, base)
			c.there.write(t, dst)
			_, err := tree.Checkout(t.Context(), s, h, dst, tree.CheckoutOptions{})
			got := readLayout(t, dst)
			if c.bad == "" {
				want := layout{"d/new": "new", "f": "f", "l": "->f"}
				maps.Copy(want, c.there)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("got %v (-want +got):\n%s", err, diff)
				}
				return
			}
			if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("got %v, want fs.ErrExist for %s", err, c.bad)
			}
			for rel, content := range c.there {
				if got[rel] != content {
					t.Errorf("%s is now %q, was %q", rel, got[rel], content)
				}
			}
			if diff := cmp.Diff(layout{"keep": "kept"}, readLayout(t, filepath.Join(base, "out"))); diff != "" {
				t.Errorf("outside (-want +got):\n%s", diff)
			}
		})
	}
}

// Every fault of the store is reported, and without it the result is right.
func TestFaults(t *testing.T) {
	src := t.TempDir()
	example.write(t, src)
	mem := new(objectstoretest.Mem)
	h, _ := putTree(t, mem, src, tree.PutOptions{})
	for n := int64(1); ; n++ {
		f := &objectstoretest.Faulty{Store: new(objectstoretest.Mem), Nth: n, Late: n%2 == 0}
		_, _, err := tree.Put(t.Context(), f, src, tree.PutOptions{})
		if !f.Fired() {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, objectstoretest.ErrInjected) {
			t.Errorf("Put, fault %d: got %v", n, err)
		}
	}
	for n := int64(1); ; n++ {
		f := &objectstoretest.Faulty{Store: mem, Nth: n, Late: n%2 == 0}
		_, err := tree.Checkout(t.Context(), f, h, filepath.Join(t.TempDir(), "dst"), tree.CheckoutOptions{})
		if !f.Fired() {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, objectstoretest.ErrInjected) {
			t.Errorf("Checkout, fault %d: got %v", n, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	src := t.TempDir()
	example.write(t, src)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := newDir(t)
	if _, _, err := tree.Put(ctx, d, src, tree.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: got %v, want context.Canceled", err)
	}
	h, _ := putTree(t, d, src, tree.PutOptions{})
	if _, err := tree.Checkout(ctx, d, h, filepath.Join(t.TempDir(), "dst"), tree.CheckoutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Checkout: got %v, want context.Canceled", err)
	}
}

func TestDeep(t *testing.T) {
	for depth, ok := range map[int]bool{tree.MaxDepth: true, tree.MaxDepth + 1: false} {
		src, dst := t.TempDir(), t.TempDir()
		layout{strings.Repeat("d/", depth): ""}.write(t, src)
		d := newDir(t)
		h, _, err := tree.Put(t.Context(), d, src, tree.PutOptions{})
		if (err == nil) != ok {
			t.Errorf("Put of depth %d: got %v", depth, err)
		}
		if ok {
			if _, err := tree.Checkout(t.Context(), d, h, dst, tree.CheckoutOptions{}); err != nil {
				t.Errorf("Checkout of depth %d: %v", depth, err)
			}
		}
	}
}

// A directory that is put and checked out is unchanged, and a put of the result gives the same object.
func TestDiskRoundTrip(t *testing.T) {
	d := newDir(t)
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		src, dst := filepath.Join(base, fmt.Sprint(n, "src")), filepath.Join(base, fmt.Sprint(n, "dst"))
		defer os.RemoveAll(src)
		defer os.RemoveAll(dst)
		want := layout{}
		taken := map[string]bool{} // names that are no directories
		for _, parts := range rapid.SliceOfN(rapid.SliceOfN(genName, 1, 4), 0, 12).Draw(rt, "paths") {
			rel := strings.Join(parts, "/")
			clash := taken[rel]
			for at := path.Dir(rel); at != "."; at = path.Dir(at) {
				clash = clash || taken[at]
			}
			for other := range want {
				clash = clash || strings.HasPrefix(other, rel+"/")
			}
			if clash || !fs.ValidPath(rel) {
				continue
			}
			content := rapid.SampledFrom([]string{"", "x", "#!run", "->target", "->./there/../here", "dir"}).Draw(rt, "content")
			for at := rel; at != "."; at = path.Dir(at) {
				delete(want, path.Dir(at)+"/")
			}
			if content == "dir" {
				want[rel+"/"] = ""
				continue
			}
			taken[rel] = true
			want[rel] = content
		}
		want.write(t, src)
		h, _ := putTree(t, d, src, tree.PutOptions{Workers: rapid.IntRange(0, 3).Draw(rt, "workers")})
		if _, err := tree.Checkout(t.Context(), d, h, dst, tree.CheckoutOptions{}); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, readLayout(t, dst)); diff != "" {
			rt.Errorf("(-want +got):\n%s", diff)
		}
		if again, _ := putTree(t, d, dst, tree.PutOptions{Adopt: true}); again != h {
			rt.Errorf("put again: got %s, want %s", again, h)
		}
	})
	checkAll(t, d)
}
