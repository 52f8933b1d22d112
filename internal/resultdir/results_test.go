package resultdir_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/resultdir"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
	"e3/refstore"
	refs "e3/refstore/fs"
)

// bench is a folder for results with its stores.
type bench struct {
	*resultdir.Folder
	t   *testing.T
	dir string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, repo := t.TempDir(), t.TempDir()
	return openBench(t, dir, repo, &objectstoretest.Mem{})
}

func openBench(t *testing.T, dir, repo string, objects objectstore.Store) *bench {
	t.Helper()
	records, err := refs.Open(repo, refs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &bench{&resultdir.Folder{
		Root: root, Objects: objects, Records: records, Key: refstore.Key{Partition: "INDEX/results/ws", Sort: "x"}, Now: time.Now,
	}, t, dir}
}

func (b *bench) file(path, content string) resultdir.Item {
	b.t.Helper()
	h, err := objectstore.PutBytes(b.t.Context(), b.Objects, []byte(content))
	if err != nil {
		b.t.Fatal(err)
	}
	return resultdir.Item{Path: path, Leaf: record.Leaf{Kind: record.LeafFile, Hash: h.String()}}
}

// folder is an item with the files of a map, of which those with a last slash are empty folders and those whose content
// begins with -> are links.
func (b *bench) folder(path string, files map[string]string) resultdir.Item {
	b.t.Helper()
	src := b.t.TempDir()
	for name, content := range files {
		p := filepath.Join(src, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if target, link := strings.CutPrefix(content, "->"); link {
			err = errors.Join(err, os.Symlink(target, p))
		} else if strings.HasSuffix(name, "/") {
			err = errors.Join(err, os.MkdirAll(p, 0o755))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(content), 0o644))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	h, _, err := tree.Put(b.t.Context(), b.Objects, src, tree.PutOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return resultdir.Item{Path: path, Leaf: record.Leaf{Kind: record.LeafDir, Hash: h.String()}}
}

func (b *bench) leave(o resultdir.Options, items ...resultdir.Item) *resultdir.Report {
	b.t.Helper()
	report, err := b.Write(b.t.Context(), items, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.noRemains()
	return report
}

// noRemains fails if something that was being prepared lies in the folder.
func (b *bench) noRemains() {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, ".e3*"))
	if err != nil || len(names) > 0 {
		b.t.Fatalf("remains: %v %v", names, err)
	}
}

// holds compares the folder with path=content pairs.
func (b *bench) holds(want ...string) {
	b.t.Helper()
	var got []string
	err := filepath.WalkDir(b.dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.dir, p)
		switch {
		case e.IsDir():
			if names, _ := os.ReadDir(p); len(names) == 0 && rel != "." {
				got = append(got, rel+"/")
			}
		case e.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			got = append(got, rel+"->"+target)
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			got = append(got, rel+"="+string(data))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Fatalf("the folder holds %q, want %q", got, want)
	}
}

func (b *bench) edit(path, content string) {
	b.t.Helper()
	p := filepath.Join(b.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) counts(r *resultdir.Report, written, removed, same int, kept ...string) {
	b.t.Helper()
	var names []string
	for _, k := range r.Kept {
		names = append(names, k.Path)
	}
	if len(r.Written) != written || len(r.Removed) != removed || r.Same != same || !slices.Equal(names, kept) {
		b.t.Fatalf("got %+v, want %d written, %d removed, %d the same, kept %q", *r, written, removed, same, kept)
	}
}

func TestOnlyChangesAreWritten(t *testing.T) {
	b := newBench(t)
	set := resultdir.Options{Source: "one"}
	b.counts(b.leave(set, b.file("a.txt", "1"), b.folder("d", map[string]string{"x/y": "2", "empty/": "", "l": "->x/y"})), 4, 0, 0)
	b.holds("a.txt=1", "d/x/y=2", "d/empty/", "d/l->x/y")
	before, err := os.Stat(filepath.Join(b.dir, "a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	b.counts(b.leave(set, b.file("a.txt", "1"), b.folder("d", map[string]string{"x/y": "3", "empty/": "", "l": "->x/y"})), 1, 0, 3)
	b.holds("a.txt=1", "d/x/y=3", "d/empty/", "d/l->x/y")
	if after, err := os.Stat(filepath.Join(b.dir, "a.txt")); err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("an unchanged file was touched: %v", err)
	}
	b.counts(b.leave(set, b.file("a.txt", "1")), 0, 3, 1)
	b.holds("a.txt=1")
	b.counts(b.leave(set), 0, 1, 0)
	b.holds()
}

func TestEditedFilesAreKept(t *testing.T) {
	b := newBench(t)
	b.edit("before.txt", "mine")
	b.edit("equal.txt", "1")
	b.counts(b.leave(resultdir.Options{}, b.file("before.txt", "1"), b.file("equal.txt", "1"), b.file("a.txt", "1"), b.file("gone.txt", "1")),
		2, 0, 1, "before.txt")
	b.edit("a.txt", "mine")
	b.edit("gone.txt", "mine")
	b.counts(b.leave(resultdir.Options{}, b.file("before.txt", "2"), b.file("equal.txt", "2"), b.file("a.txt", "2")), 1, 0, 0, "a.txt", "before.txt", "gone.txt")
	b.holds("before.txt=mine", "equal.txt=2", "a.txt=mine", "gone.txt=mine")
	// An edited file of an output that is gone is the user's: it is reported once.
	b.counts(b.leave(resultdir.Options{}, b.file("before.txt", "2"), b.file("equal.txt", "2"), b.file("a.txt", "2")), 0, 0, 1, "a.txt", "before.txt")
	b.counts(b.leave(resultdir.Options{Overwrite: true}, b.file("before.txt", "2"), b.file("equal.txt", "2"), b.file("a.txt", "2")), 2, 0, 1)
	b.holds("before.txt=2", "equal.txt=2", "a.txt=2", "gone.txt=mine")
	// An edit that made the file what it should be is none.
	b.edit("a.txt", "3")
	b.counts(b.leave(resultdir.Options{}, b.file("a.txt", "3")), 0, 2, 1)
	b.holds("a.txt=3", "gone.txt=mine")
	b.counts(b.leave(resultdir.Options{}, b.file("a.txt", "4")), 1, 0, 0)
	// A touched file is not edited.
	if err := os.Chtimes(filepath.Join(b.dir, "a.txt"), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	b.counts(b.leave(resultdir.Options{}, b.file("a.txt", "5")), 1, 0, 0)
}

func TestSelectionsShareAFolder(t *testing.T) {
	b := newBench(t)
	b.leave(resultdir.Options{Set: "one"}, b.file("a", "1"))
	b.leave(resultdir.Options{Set: "two"}, b.file("b", "1"))
	b.counts(b.leave(resultdir.Options{Set: "one"}), 0, 1, 0)
	b.holds("b=1")
}

func TestFileAndFolderChangePlaces(t *testing.T) {
	b := newBench(t)
	b.leave(resultdir.Options{}, b.file("a", "1"), b.folder("b", map[string]string{"c/d": "1"}))
	b.counts(b.leave(resultdir.Options{}, b.folder("a", map[string]string{"x": "2"}), b.file("b", "2")), 2, 2, 0)
	b.holds("a/x=2", "b=2")
	b.edit("a/mine", "1")
	b.counts(b.leave(resultdir.Options{}, b.file("a", "3"), b.file("b", "2")), 0, 1, 1, "a")
	b.holds("a/mine=1", "b=2")
	b.edit("c", "mine")
	b.counts(b.leave(resultdir.Options{}, b.folder("c", map[string]string{"x": "2"}), b.file("b", "2")), 0, 0, 1, "c/x")
}

func TestLinksLeadNowhere(t *testing.T) {
	b := newBench(t)
	outside := t.TempDir()
	target := filepath.Join(outside, "target")
	if err := errors.Join(os.WriteFile(target, []byte("keep"), 0o644), os.Symlink(outside, filepath.Join(b.dir, "d")),
		os.Symlink(target, filepath.Join(b.dir, "f"))); err != nil {
		t.Fatal(err)
	}
	items := []resultdir.Item{b.file("d/target", "1"), b.file("d/new", "1"), b.file("f", "1")}
	b.counts(b.leave(resultdir.Options{}, items...), 0, 0, 0, "d/new", "d/target", "f")
	b.counts(b.leave(resultdir.Options{Overwrite: true}, items...), 1, 0, 0, "d/new", "d/target")
	if data, err := os.ReadFile(target); err != nil || string(data) != "keep" {
		t.Errorf("a link was followed: %q, %v", data, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("a link was followed: %v, %v", names, err)
	}
	// A tree whose link leads out of it is not written.
	out := b.folder("t", map[string]string{"in": "->sub", "sub": "1"})
	h, err := objectstore.ParseHash(out.Leaf.Hash)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := tree.Read(t.Context(), b.Objects, h)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Target = "../../x"
	data, err := tree.Encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	evil, err := objectstore.PutBytes(t.Context(), b.Objects, data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write(t.Context(), []resultdir.Item{{Path: "t", Leaf: record.Leaf{Kind: record.LeafDir, Hash: evil.String()}}}, resultdir.Options{}); err == nil {
		t.Error("a link that leads out was written")
	}
}

func TestUnchanged(t *testing.T) {
	b := newBench(t)
	set := resultdir.Options{Set: "s", Source: "one"}
	b.leave(set, b.file("a", "1"))
	b.leave(set, b.file("a", "1")) // whose times are old enough by now, or are not
	if _, same := b.Unchanged(t.Context(), "s", "two"); same {
		t.Error("another source counts as the same")
	}
	if _, same := b.Unchanged(t.Context(), "x", "one"); same {
		t.Error("another selection counts as the same")
	}
	b.edit("a", "2")
	if _, same := b.Unchanged(t.Context(), "s", "one"); same {
		t.Error("an edited file counts as the same")
	}
	b.leave(set, b.file("a", "1")) // keeps it
	if err := os.Remove(filepath.Join(b.dir, "a")); err != nil {
		t.Fatal(err)
	}
	if _, same := b.Unchanged(t.Context(), "s", "one"); same {
		t.Error("a file that is not there counts as the same")
	}
}

// TestFailureLeavesTheFolder fails each read of an object in turn: the folder stays as it was.
func TestFailureLeavesTheFolder(t *testing.T) {
	b := newBench(t)
	b.leave(resultdir.Options{}, b.file("a", "1"), b.file("b", "1"), b.file("gone", "1"))
	items := []resultdir.Item{b.file("a", "2"), b.file("b", "2"), b.folder("c", map[string]string{"x": "2"})}
	whole := b.Objects
	for nth := int64(1); ; nth++ {
		faulty := &objectstoretest.Faulty{Store: whole, Nth: nth}
		b.Objects = faulty
		_, err := b.Write(t.Context(), items, resultdir.Options{})
		if !faulty.Fired() {
			if err != nil {
				t.Fatal(err)
			}
			b.holds("a=2", "b=2", "c/x=2")
			if nth < 4 {
				t.Fatalf("only %d calls failed", nth-1)
			}
			return
		}
		if err == nil {
			t.Fatalf("call %d: no error", nth)
		}
		b.noRemains()
		b.holds("a=1", "b=1", "gone=1")
	}
}

// TestCancelled ends a write before it begins.
func TestCancelled(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	items := []resultdir.Item{b.file("a", "1")}
	cancel()
	if _, err := b.Write(ctx, items, resultdir.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.holds()
}

// TestLargeFile copies a file that is not read at once.
func TestLargeFile(t *testing.T) {
	b := newBench(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	b.leave(resultdir.Options{}, b.file("big", string(content)))
	if data, err := os.ReadFile(filepath.Join(b.dir, "big")); err != nil || !bytes.Equal(data, content) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
