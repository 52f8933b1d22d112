package reach_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/reach"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// sized is a store with sizes that counts reads.
type sized struct {
	objectstoretest.Mem
	reads atomic.Int64
}

func (s *sized) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	data, err := objectstore.ReadAll(ctx, &s.Mem, h, 1<<30)
	return int64(len(data)), err
}

func (s *sized) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	s.reads.Add(1)
	return objectstore.ReadAll(ctx, &s.Mem, h, limit)
}

func (s *sized) checker() *reach.DirChecker {
	return reach.NewDirChecker(s, tree.MaxBytes, s.Stat)
}

// tree stores a directory object.
func (s *sized) tree(t failer, entries ...tree.Entry) objectstore.Hash {
	t.Helper()
	sorted := tree.Entries(entries)
	sorted.Sort()
	data, err := tree.Encode(sorted)
	if err != nil {
		t.Fatalf("%v", err)
	}
	h, err := objectstore.PutBytes(context.Background(), &s.Mem, data)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return h
}

// check follows a directory, and returns the first fault.
func (s *sized) check(c *reach.DirChecker, top objectstore.Hash) error {
	w := reach.NewWalker(context.Background(), s, reach.Options{Dirs: c, Workers: 2})
	if err := w.Root(reach.Root{Ref: reach.Ref{Kind: reach.Dir, Hash: top}}); err != nil {
		return err
	}
	return w.Wait()
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func link(name, target string) tree.Entry {
	return tree.Entry{Name: name, Kind: tree.KindLink, Target: target}
}

func below(name string, h objectstore.Hash) tree.Entry {
	return tree.Entry{Name: name, Kind: tree.KindDir, Hash: h}
}

// A directory is valid exactly if it can be checked out, or if its only fault is links that lead in circles. Each
// directory is tried by itself, and most occur several times in other directories.
func TestDirCheckerAgreesWithCheckout(t *testing.T) {
	base := t.TempDir()
	n, bad := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var s sized
		text := []byte("text")
		file, err := objectstore.PutBytes(context.Background(), &s.Mem, text)
		if err != nil {
			t.Fatalf("%v", err)
		}
		dirs := []objectstore.Hash{s.tree(t)}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		parts := rapid.SampledFrom([]string{"..", "..", ".", "a", "b", "c", "d", ""})
		for range rapid.IntRange(1, 8).Draw(t, "directories") {
			var entries []tree.Entry
			for _, name := range rapid.SliceOfNDistinct(names, 0, 4, rapid.ID[string]).Draw(t, "names") {
				switch rapid.IntRange(0, 4).Draw(t, "kind") {
				case 0:
					size := int64(len(text))
					if rapid.IntRange(0, 60).Draw(t, "wrong size") == 0 {
						size++
					}
					entries = append(entries, tree.Entry{Name: name, Kind: tree.KindFile, Hash: file, Size: size})
				case 1, 2:
					to := strings.TrimLeft(strings.Join(rapid.SliceOfN(parts, 1, 4).Draw(t, "target"), "/"), "/")
					if to == "" {
						to = "."
					}
					entries = append(entries, link(name, to))
				default:
					entries = append(entries, below(name, rapid.SampledFrom(dirs).Draw(t, "below")))
				}
			}
			dirs = append(dirs, s.tree(t, entries...))
		}
		c := s.checker() // one checker for all of them, since its memory must not change results
		for _, top := range dirs {
			n++
			dst := filepath.Join(base, fmt.Sprint(n))
			_, want := tree.Checkout(context.Background(), &s, top, dst, tree.CheckoutOptions{})
			os.RemoveAll(dst)
			got := s.check(c, top)
			if want != nil {
				bad++
			}
			var malformed *tree.Error
			circle := got == nil && want != nil && strings.Contains(want.Error(), "too many links")
			if (got == nil) != (want == nil) && !circle || got != nil && !errors.As(got, &malformed) {
				t.Errorf("directory %s: the check says %v, writing it out %v", top, got, want)
			}
		}
	})
	t.Logf("%d directories, %d not in order", n, bad)
}

func TestDirCheckerSays(t *testing.T) {
	var s sized
	file, err := objectstore.PutBytes(t.Context(), &s.Mem, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	deep := s.tree(t)
	for range tree.MaxDepth {
		deep = s.tree(t, below("d", deep))
	}
	out := s.tree(t, link("l", "../x"))
	for name, c := range map[string]struct {
		top  objectstore.Hash
		want string // "" if it is in order
	}{
		"link out":          {out, `directory entry "l": the link points to "../x", outside the directory`},
		"the same inside":   {s.tree(t, below("d", out)), ""},
		"twice outside":     {s.tree(t, below("d", s.tree(t, link("l", "../../x")))), `directory entry "d/l": the link points to "../../x", outside`},
		"through a link":    {s.tree(t, link("here", "."), link("l", "here/../x")), `directory entry "l": the link points to "here/../x", outside`},
		"in a circle":       {s.tree(t, link("a", "b/.."), link("b", "a")), "which leads through too many links"},
		"size":              {s.tree(t, below("d", s.tree(t, tree.Entry{Name: "f", Kind: tree.KindFile, Hash: file, Size: 5}))), `directory entry "f": the size is said to be 5, and the file has 4 bytes`},
		"as deep as can be": {deep, ""},
		"deeper":            {s.tree(t, below("d", deep)), "directories nest deeper than 256 levels"},
		"absent":            {objectstore.Hash{1}, "not found"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			for _, checker := range []*reach.DirChecker{s.checker(), s.checker()} {
				err := s.check(checker, c.top)
				if again := s.check(checker, c.top); (again == nil) != (err == nil) {
					t.Errorf("first it says %v, then %v", err, again)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("it says %v, want %q", err, c.want)
				}
			}
		})
	}
}

// A few objects make an astronomical number of paths, and links lead through all of them: each object is read once, and
// twice more if links lead through it.
func TestDirCheckerIsQuick(t *testing.T) {
	var s sized
	top := s.tree(t, link("up", "../../../a/b"), link("l", "../b"))
	const levels = 200
	for range levels {
		top = s.tree(t, below("a", top), below("b", top), link("c", "a/b/a/../../a"))
	}
	suite.Cheap(t, 5*time.Second, func() {
		if err := s.checker().Check(t.Context(), top); err != nil {
			t.Fatal(err)
		}
	})
	if s.reads.Load() > 3*(levels+1) {
		t.Errorf("%d objects were read %d times", levels+1, s.reads.Load())
	}
}
