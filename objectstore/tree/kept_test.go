package tree_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/host/beneath"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// state describes everything below dir that a command can see and change: types, modes, contents and targets.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		case info.Mode()&os.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, _ := filepath.Rel(dir, path)
		all[rel] = fmt.Sprint(info.Mode(), " ", content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A keeper is a directory that is renewed for one tree after another.
type keeper struct {
	*objectstore.Dir
	in   *beneath.Dir
	dir  string
	kept *tree.Kept
}

func newKeeper(t *testing.T) *keeper {
	in, err := beneath.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return &keeper{Dir: newDir(t), in: in, dir: filepath.Join(in.Name(), "kept")}
}

func (k *keeper) store(t *testing.T, l layout) objectstore.Hash {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	l.write(t, dir)
	h, _, err := tree.Put(t.Context(), k.Dir, dir, tree.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// renew passes what is known of the checkout through its encoding.
func (k *keeper) renew(t *testing.T, h objectstore.Hash) {
	t.Helper()
	if k.kept != nil {
		var err error
		if k.kept, err = tree.DecodeKept(k.kept.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if k.kept, err = tree.Renew(t.Context(), k.Dir, k.in, "kept", h, k.kept, tree.CheckoutOptions{Strips: true}); err != nil {
		t.Fatal(err)
	}
}

// fresh is the state of an ordinary checkout.
func (k *keeper) fresh(t *testing.T, h objectstore.Hash) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fresh")
	if _, err := tree.Checkout(t.Context(), k.Dir, h, dir, tree.CheckoutOptions{Fixed: true, Strips: true}); err != nil {
		t.Fatal(err)
	}
	return state(t, dir)
}

var keptTrees = []layout{
	{"a": "one", "b": "two", "d/x": "ex", "d/e/y": "#!y", "d/l": "->x", "l": "->d/e/y"},
	{"a": "ONE", "b": "two", "d/x": "ex", "d/e/y": "#!y", "d/l": "->x", "l": "->d/e/y"}, // of the same size
	{"a": "#!a", "b/x": "now a folder", "d": "now a file", "l": "->b/x"},
	{"a": "->b", "b": "two", "d/e/y": "y", "d/l/": "", "empty/": ""},
	{},
}

// Whatever a command does to a checkout, the next one is as if it were new.
func TestRenew(t *testing.T) {
	for i, harm := range []func(dir string) error{
		func(string) error { return nil },
		func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("two"), 0o644) }, // the size stays
		func(dir string) error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o644) },
		func(dir string) error { return os.Remove(filepath.Join(dir, "b")) },
		func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")) },
		func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o755) },
		func(dir string) error { return os.Chmod(filepath.Join(dir, "d"), 0o700) },
		func(dir string) error { return os.Chmod(dir, 0o777) },
		func(dir string) error { return os.Chmod(filepath.Join(dir, "d"), 0) },
		func(dir string) error { return os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "d", "same")) },
		func(dir string) error { return os.Link(filepath.Join(dir, "a"), dir+".elsewhere") },
		func(dir string) error { return os.RemoveAll(dir) },
		func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "l")), os.Symlink("/", filepath.Join(dir, "l")))
		},
		func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "d")), os.Symlink(filepath.Dir(dir), filepath.Join(dir, "d")))
		},
		func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a")), os.Mkdir(filepath.Join(dir, "a"), 0o755))
		},
		func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")) }, // as many entries
		func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "l"), filepath.Join(dir, "d", "z")), os.Rename(filepath.Join(dir, "d", "e"), filepath.Join(dir, "l")))
		},
	} {
		for from, first := range keptTrees {
			for to, second := range keptTrees {
				t.Run(fmt.Sprint(i, from, to), func(t *testing.T) {
					k := newKeeper(t)
					one, two := k.store(t, first), k.store(t, second)
					k.renew(t, one)
					if diff := cmp.Diff(k.fresh(t, one), state(t, k.dir)); diff != "" {
						t.Fatalf("the first checkout (-want +got):\n%s", diff)
					}
					_ = harm(k.dir) // some trees lack the file
					k.renew(t, two)
					if diff := cmp.Diff(k.fresh(t, two), state(t, k.dir)); diff != "" {
						t.Errorf("the second checkout (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the system does not number files")
	}
	return st.Ino
}

// settle renews a checkout until its times prove its content, and returns the inodes of two files.
func (k *keeper) settle(t *testing.T, h objectstore.Hash) (a, b uint64) {
	t.Helper()
	k.unchanged(t, h)
	return inode(t, filepath.Join(k.dir, "a")), inode(t, filepath.Join(k.dir, "b"))
}

// unchanged renews until times prove that every file is as it was written.
func (k *keeper) unchanged(t *testing.T, h objectstore.Hash) {
	t.Helper()
	for k.renew(t, h); k.kept.Doubtful(); k.renew(t, h) {
	}
}

// An inode that no command has touched stays, also under new content. It does not stay if a command has touched the
// file, or if a process has it open.
func TestRenewKeepsInodes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whether a file is open")
	}
	k := newKeeper(t)
	one, two := k.store(t, layout{"a": "one", "b": "two"}), k.store(t, layout{"a": "#!1", "b": "two"})
	path := filepath.Join(k.dir, "a")

	a, b := k.settle(t, one)
	k.renew(t, two)
	if inode(t, path) != a || inode(t, filepath.Join(k.dir, "b")) != b {
		t.Error("files were made anew, although no command has touched them")
	}

	a, b = k.settle(t, one)
	if err := os.WriteFile(path, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(path) // so that its number is not used again
	if err != nil {
		t.Fatal(err)
	}
	k.renew(t, one)
	open.Close()
	if inode(t, path) == a || inode(t, filepath.Join(k.dir, "b")) != b {
		t.Error("the touched file stays, or another was made anew")
	}

	for what, flag := range map[string]int{"reading": os.O_RDONLY, "writing": os.O_WRONLY} {
		a, _ = k.settle(t, one)
		open, err := os.OpenFile(path, flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		k.renew(t, two)
		if inode(t, path) == a {
			t.Errorf("a file that is open for %s took other content", what)
		}
		open.Close()
	}

	a, _ = k.settle(t, one)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := syscall.Mmap(int(f.Fd()), 0, 3, syscall.PROT_READ, syscall.MAP_SHARED)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	k.renew(t, two)
	if inode(t, path) == a || string(mapped) != "one" {
		t.Errorf("a file that is mapped took other content: %q", mapped)
	}
}

// reads counts what is read of a store.
type reads struct {
	*objectstore.Dir
	opened map[objectstore.Hash]int
}

func (r *reads) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	r.opened[h]++
	return r.Dir.Open(ctx, h)
}

func (r *reads) ReadAll(ctx context.Context, h objectstore.Hash, most int64) ([]byte, error) {
	r.opened[h]++
	return r.Dir.ReadAll(ctx, h, most)
}

// One changed file among many costs the directories above it, one file, and a little for each other one.
func TestRenewReadsWhatDiffers(t *testing.T) {
	k := newKeeper(t)
	const folders, files = 20, 100
	source := layout{}
	for i := range folders * files {
		source[fmt.Sprintf("%d/%d", i%folders, i)] = "file"
	}
	one := k.store(t, source)
	source["7/7"] = "changed"
	two := k.store(t, source)
	k.unchanged(t, one)
	counted := &reads{Dir: k.Dir, opened: map[objectstore.Hash]int{}}
	renew := func(h objectstore.Hash) {
		t.Helper()
		var err error
		if k.kept, err = tree.Renew(t.Context(), counted, k.in, "kept", h, k.kept, tree.CheckoutOptions{Strips: true}); err != nil {
			t.Fatal(err)
		}
	}
	renew(two)
	if len(counted.opened) != 3 {
		t.Errorf("of one changed file %d objects are read, want 3: two directories and the file", len(counted.opened))
	}
	if diff := cmp.Diff(k.fresh(t, two), state(t, k.dir)); diff != "" {
		t.Errorf("the checkout (-want +got):\n%s", diff)
	}
	clear(counted.opened)
	k.kept.Trust()
	if got := testing.AllocsPerRun(3, func() { renew(two) }) / (folders * files); got > 3 {
		t.Errorf("%.1f allocations for each unchanged file, want at most 3", got)
	}
	if len(counted.opened) != 0 {
		t.Errorf("of an unchanged tree %d objects are read, want none", len(counted.opened))
	}
}

// After a crash of the machine a file may have other bytes with the old times.
func TestRenewInDoubt(t *testing.T) {
	k := newKeeper(t)
	h := k.store(t, layout{"a": "one", "b": "two"})
	k.settle(t, h)
	lost := filepath.Join(k.dir, "a")
	if err := os.WriteFile(lost, []byte("\x00\x00\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	k.kept.Believe(lost, "a")
	k.renew(t, h)
	if got := readLayout(t, k.dir); got["a"] != "\x00\x00\x00" {
		t.Fatalf("the test does not play its case: %q", got)
	}
	k.kept.Doubt()
	k.renew(t, h)
	if diff := cmp.Diff(layout{"a": "one", "b": "two"}, readLayout(t, k.dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A hostile tree is refused as Checkout refuses it, whatever is there already.
func TestRenewRefusesLinksOut(t *testing.T) {
	k := newKeeper(t)
	k.renew(t, k.store(t, layout{"d/x": "x", "l": "->d"}))
	sub, err := tree.Encode(tree.Entries{{Name: "x", Kind: tree.KindLink, Target: "../.."}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := tree.Encode(tree.Entries{{Name: "d", Kind: tree.KindDir, Hash: put(t, k.Dir, sub)}, {Name: "l", Kind: tree.KindLink, Target: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	var bad *tree.Error
	if _, err := tree.Renew(t.Context(), k.Dir, k.in, "kept", put(t, k.Dir, data), k.kept, tree.CheckoutOptions{}); !errors.As(err, &bad) {
		t.Errorf("got %v, want a *tree.Error", err)
	}
}

// A damaged description is an error.
func TestDecodeKept(t *testing.T) {
	k := newKeeper(t)
	k.renew(t, k.store(t, keptTrees[0]))
	b := k.kept.Encode()
	for i := range b {
		if _, err := tree.DecodeKept(b[:i]); err == nil {
			t.Fatalf("the first %d of %d bytes are no error", i, len(b))
		}
		c := []byte(strings.Clone(string(b)))
		c[i] ^= 1
		if _, err := tree.DecodeKept(c); err == nil {
			t.Fatalf("a change of byte %d is no error", i)
		}
	}
}
