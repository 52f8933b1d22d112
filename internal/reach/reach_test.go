package reach_test

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/internal/testing/testimage"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// put stores an object.
func put(t testing.TB, s objectstore.Store, data []byte) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), s, data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// dir stores a directory object; the names of directories end with a slash.
func dir(t testing.TB, s objectstore.Store, content map[string]objectstore.Hash) objectstore.Hash {
	t.Helper()
	var entries tree.Entries
	for name, h := range content {
		e := tree.Entry{Name: strings.TrimSuffix(name, "/"), Kind: tree.KindFile, Hash: h}
		if strings.HasSuffix(name, "/") {
			e.Kind = tree.KindDir
		}
		entries = append(entries, e)
	}
	entries.Sort()
	data, err := tree.Encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	return put(t, s, data)
}

// hash is a name that no object has.
func hash(b byte) objectstore.Hash { return objectstore.Hash{b, 31: 1} }

func task(kind record.Kind, inputs ...record.Kind) *record.Task {
	task := &record.Task{Shell: "true", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: kind}}}}
	for i, k := range inputs {
		name := fmt.Sprintf("in%d", i)
		task.Inputs = append(task.Inputs, record.Input{Name: name, Path: name, Kind: k})
	}
	return task
}

func TestRefs(t *testing.T) {
	var s objectstoretest.Mem
	directory, err := tree.Encode(tree.Entries{
		{Name: "bin", Kind: tree.KindDir, Hash: hash(1)},
		{Name: "link", Kind: tree.KindLink, Target: "bin"},
		{Name: "read.me", Kind: tree.KindFile, Hash: hash(2), Size: 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := record.Node{
		{Name: "dir", Leaf: record.Leaf{Kind: record.LeafDir, Hash: hash(1).String()}},
		{Name: "file", Leaf: record.Leaf{Kind: record.LeafFile, Hash: hash(2).String(), Size: 1}},
		{Name: "node", Leaf: record.Leaf{Kind: record.LeafNode, Hash: hash(3).String()}},
		{Name: "nothing", Leaf: record.Leaf{Kind: record.LeafUnassigned}},
		{Name: "value", Leaf: record.Leaf{Kind: record.LeafValue, Hash: hash(4).String()}},
	}
	pkg := record.Package{
		Name: "p", Version: "1",
		Inputs: []record.PackageInput{
			{Name: "a", Source: record.FromDir, Location: "a", Default: node[0].Leaf},
			{Name: "b", Source: record.FromFile, Location: "b", Default: node[1].Leaf, NoExport: true},
			{Name: "c", Source: record.FromFile, Location: "c", Default: node[3].Leaf},
			{Name: "d", Source: record.FromValue, Default: node[4].Leaf},
		},
		Tasks: []record.PackageTask{{Name: "t", Task: hash(5).String()}, {Name: "u", Task: hash(6).String()}},
	}
	for _, tt := range []struct {
		name string
		kind reach.Kind
		data []byte
		want []string
	}{
		{"file", reach.File, directory, nil},
		{"dir", reach.Dir, directory, []string{"bin: dir 1", "read.me: file 2"}},
		{"dirs", reach.Dirs, directory, []string{"bin: dirs 1"}},
		{"output that is a directory", reach.FileOrDir, directory, []string{"bin: dir 1", "read.me: file 2"}},
		{"output that is a file", reach.FileOrDir, []byte("text"), nil},
		{"node", reach.Node, node.Encode(), []string{"dir: dir 1", "file: file 2", "node: node 3", "value: file 4"}},
		{"nodes", reach.Nodes, node.Encode(), []string{"node: nodes 3"}},
		{"task", reach.Task, task(record.KindDir).Encode(), nil},
		{"package", reach.Package, pkg.Encode(), []string{"t: task 5", "u: task 6", "a: dir 1", "b: file 2", "d: file 4"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := reach.Ref{Kind: tt.kind, Hash: put(t, &s, tt.data)}
			children, err := reach.Refs(t.Context(), &s, ref)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range children {
				got = append(got, fmt.Sprintf("%s: %s %d", c.Name, c.Kind, c.Hash[0]))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestRefsOfWhatIsNotThere(t *testing.T) {
	var s objectstoretest.Mem
	read := []reach.Kind{reach.Dir, reach.Dirs, reach.Node, reach.Nodes, reach.Task, reach.Package}
	text := put(t, &s, []byte("neither this nor that"))
	s.Set(hash(9), []byte("other bytes"))
	// Only the beginning of a file is read, whatever the rest is.
	if _, err := reach.Refs(t.Context(), &s, reach.Ref{Kind: reach.FileOrDir, Hash: hash(9)}); err != nil {
		t.Errorf("file-or-dir, a corrupt file: got %v, want no error", err)
	}
	empty := dir(t, &s, nil)
	data, err := objectstore.ReadAll(t.Context(), &s, empty, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	s.Set(hash(9), append(data, 0))
	for _, kind := range append(read, reach.FileOrDir) {
		_, err := reach.Refs(t.Context(), &s, reach.Ref{Kind: kind, Hash: hash(8)})
		if !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s, absent: got %v, want %v", kind, err, objectstore.ErrNotFound)
		}
		_, err = reach.Refs(t.Context(), &s, reach.Ref{Kind: kind, Hash: hash(9)})
		var malformed *reach.MalformedError
		var corrupt *objectstore.CorruptError
		if !errors.As(err, &malformed) || !errors.As(err, &corrupt) {
			t.Errorf("%s, corrupt: got %v, want a MalformedError that wraps a CorruptError", kind, err)
		}
		faulty := &objectstoretest.Faulty{Store: &s, Nth: 1}
		_, err = reach.Refs(t.Context(), faulty, reach.Ref{Kind: kind, Hash: text})
		if !errors.Is(err, objectstoretest.ErrInjected) || errors.As(err, &malformed) {
			t.Errorf("%s, store at fault: got %v, want %v", kind, err, objectstoretest.ErrInjected)
		}
	}
	for _, kind := range read {
		var malformed *reach.MalformedError
		if _, err := reach.Refs(t.Context(), &s, reach.Ref{Kind: kind, Hash: text}); !errors.As(err, &malformed) {
			t.Errorf("%s of text: got %v, want a MalformedError", kind, err)
		}
	}
	if _, err := reach.Refs(t.Context(), &s, reach.Ref{Kind: reach.File, Hash: hash(8)}); err != nil {
		t.Errorf("a file is not read: got %v", err)
	}
}

func TestParseRef(t *testing.T) {
	for _, name := range []string{"file", "dir", "node", "task", "package", "file-or-dir", "dirs", "nodes"} {
		text := name + " " + hash(7).String()
		ref, err := reach.ParseRef(text)
		if err != nil || ref.String() != text || ref.Hash != hash(7) {
			t.Errorf("ParseRef(%q) = %v, %v", text, ref, err)
		}
	}
	for _, text := range []string{"", "dir", "dir ", "dir 00", "tree " + hash(7).String(), hash(7).String(), "dir  " + hash(7).String(), "Dir " + hash(7).String()} {
		if ref, err := reach.ParseRef(text); err == nil {
			t.Errorf("ParseRef(%q) = %v, want an error", text, ref)
		}
	}
}

// reference loads a zip of the reference and returns its objects and the hash of its package.
func reference(t testing.TB, path string) (*objectstoretest.Mem, objectstore.Hash) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	s, pkg := new(objectstoretest.Mem), objectstore.Hash{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(f.Name, "objects/"):
			put(t, s, data)
		case strings.HasPrefix(f.Name, "packages/"):
			if pkg, err = objectstore.ParseHash(strings.TrimSpace(string(data))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s, pkg
}

// TestReference follows the packages in exports of the reference. All their objects are reached. The reference finds
// them by a search for 64 digits; reach finds them by their types.
func TestReference(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.zip")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no zips: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, pkg := reference(t, path)
			w := reach.NewWalker(t.Context(), s, reach.Options{})
			if err := w.Root(reach.Root{Ref: reach.Ref{Kind: reach.Package, Hash: pkg}}); err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(); err != nil {
				t.Fatal(err)
			}
			got := slices.Collect(w.Met().All())
			if diff := cmp.Diff(s.Hashes(), got); diff != "" {
				t.Errorf("objects (-in the zip +reached):\n%s", diff)
			}
			counts := map[reach.Kind]int{}
			for _, k := range []reach.Kind{reach.Package, reach.Task, reach.Node, reach.File} {
				counts[k] = w.Met().Of(k).Len()
			}
			if counts[reach.Package] != 1 || counts[reach.Task] == 0 || counts[reach.Node] < 3 || counts[reach.File] == 0 {
				t.Errorf("objects by kind: got %v, want one package, tasks, nodes and files", counts)
			}
			// As a snapshot: nothing but the trees.
			for root := range w.Met().Of(reach.Node).All() {
				children, err := reach.Refs(t.Context(), s, reach.Ref{Kind: reach.Nodes, Hash: root})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range children {
					if c.Kind != reach.Nodes || !w.Met().Of(reach.Node).Has(c.Hash) {
						t.Errorf("tree %s refers to %s as %s, want only trees", root, c.Name, c.Ref)
					}
				}
			}
		})
	}
}

func TestSet(t *testing.T) {
	s := reach.NewSet()
	for _, step := range []struct {
		kind reach.Kind
		hash byte
		want bool
	}{
		{reach.File, 1, true}, {reach.File, 1, false}, {reach.Dir, 1, true}, {reach.File, 1, false}, {reach.Dir, 1, false},
		{reach.Dirs, 2, true}, {reach.File, 2, false}, {reach.Dir, 2, true}, {reach.Dirs, 2, false}, {reach.FileOrDir, 2, false},
		{reach.Node, 3, true}, {reach.Nodes, 3, false}, {reach.Dir, 3, true}, {reach.Task, 4, true}, {reach.Package, 0, true},
	} {
		if got := s.Add(reach.Ref{Kind: step.kind, Hash: hash(step.hash)}); got != step.want {
			t.Errorf("Add(%s %d) = %v, want %v", step.kind, step.hash, got, step.want)
		}
	}
	if got, want := slices.Collect(s.All()), []objectstore.Hash{hash(0), hash(1), hash(2), hash(3), hash(4)}; !slices.Equal(got, want) {
		t.Errorf("All: got %v, want %v", got, want)
	}
	if !s.Has(hash(3)) || s.Has(hash(5)) {
		t.Errorf("Has: got %v, %v, want true, false", s.Has(hash(3)), s.Has(hash(5)))
	}
}

func FuzzRefs(f *testing.F) {
	s, pkg := reference(f, "testdata/run1-all-executed.zip")
	for _, h := range append(s.Hashes()[:8], pkg) {
		data, err := objectstore.ReadAll(f.Context(), s, h, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(reach.Package), data)
		f.Add(byte(reach.Node), data)
		f.Add(byte(reach.Task), data)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		var s objectstoretest.Mem
		ref := reach.Ref{Kind: reach.Kind(kind % 8), Hash: put(t, &s, data)}
		children, err := reach.Refs(context.Background(), &s, ref)
		var malformed *reach.MalformedError
		if err != nil && !errors.As(err, &malformed) {
			t.Errorf("%s: got %v, want a MalformedError or none", ref, err)
		}
		if len(children) > len(data) {
			t.Errorf("%d references in %d bytes", len(children), len(data))
		}
	})
}

// TestImage: a task in an image leads to the image's manifest, and this to its parts. All of it may be missing.
func TestImage(t *testing.T) {
	var s objectstoretest.Mem
	picture := testimage.Image{Layers: [][]byte{testimage.Layer(testimage.File("a", "1", 0o644)), testimage.Layer(testimage.File("b", "2", 0o644))}}
	manifest, blobs := picture.Blobs()
	inImage := task(record.KindFile)
	inImage.Room.Closed, inImage.Image = true, objectstore.Sum(manifest).String()
	h := put(t, &s, inImage.Encode())
	walk := func(follow func(objectstore.Hash) bool) (met int, faults []string) {
		w := reach.NewWalker(t.Context(), &s, reach.Options{Image: follow, Fault: func(f *reach.Fault) error {
			faults = append(faults, fmt.Sprint(f.Ref.Kind, f.Weak, errors.Is(f.Err, objectstore.ErrNotFound)))
			return nil
		}, Visit: func(ctx context.Context, r reach.Ref) (int64, error) {
			met++
			missing, err := s.Missing(ctx, []objectstore.Hash{r.Hash})
			if err == nil && len(missing) > 0 {
				err = objectstore.ErrNotFound
			}
			return -1, err
		}})
		if err := errors.Join(w.Root(reach.Root{Ref: reach.Ref{Kind: reach.Task, Hash: h}}), w.Wait()); err != nil {
			t.Fatal(err)
		}
		return met, faults
	}
	if met, faults := walk(nil); met != 2 || !slices.Equal(faults, []string{"image true true"}) {
		t.Errorf("without the image: %d objects, %q", met, faults)
	}
	for _, b := range blobs {
		put(t, &s, b)
	}
	if met, faults := walk(nil); met != 5 || len(faults) > 0 {
		t.Errorf("with the image: %d objects, %q", met, faults)
	}
	if met, faults := walk(func(objectstore.Hash) bool { return false }); met != 1 || len(faults) > 0 {
		t.Errorf("left out: %d objects, %q", met, faults)
	}
	shape, err := reach.TaskShapeOf(t.Context(), &s, h)
	if err != nil || shape.Output != reach.File {
		t.Errorf("its shape is %+v, %v", shape, err)
	}
}
