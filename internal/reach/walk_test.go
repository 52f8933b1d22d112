package reach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// walk follows roots and returns the objects met, and the faults as text in order.
func walk(t *testing.T, s objectstore.Store, roots ...reach.Root) (*reach.Set, []string) {
	t.Helper()
	var faults []string
	w := reach.NewWalker(t.Context(), s, reach.Options{Fault: func(f *reach.Fault) error {
		text := f.Error()
		if f.Weak {
			text += " (weak)"
		}
		faults = append(faults, text)
		return nil
	}})
	for _, r := range roots {
		if err := w.Root(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(faults)
	return w.Met(), faults
}

func root(k reach.Kind, h objectstore.Hash) reach.Root {
	return reach.Root{Ref: reach.Ref{Kind: k, Hash: h}}
}

// An object that one reference has as a file and another as a directory is followed as a directory, in either order.
func TestWalkFileThatIsADirectory(t *testing.T) {
	var s objectstoretest.Mem
	inner := dir(t, &s, map[string]objectstore.Hash{"x": put(t, &s, []byte("x"))})
	for _, order := range [][]reach.Kind{{reach.File, reach.Dir}, {reach.Dir, reach.File}, {reach.Dirs, reach.Dir}, {reach.FileOrDir, reach.File}} {
		var roots []reach.Root
		for _, k := range order {
			roots = append(roots, root(k, inner))
		}
		met, _ := walk(t, &s, roots...)
		if !met.Has(objectstore.Sum([]byte("x"))) {
			t.Errorf("%v: the file in the directory was not met", order)
		}
	}
	met, _ := walk(t, &s, root(reach.File, inner), root(reach.Dirs, inner))
	if met.Has(objectstore.Sum([]byte("x"))) {
		t.Errorf("the file was met, though only the directory is needed")
	}
}

func TestWalkVisitsOnce(t *testing.T) {
	var s objectstoretest.Mem
	// Each level names the one below many times: 20 to the power of 12 paths.
	below := dir(t, &s, map[string]objectstore.Hash{"f": put(t, &s, []byte("f"))})
	for range 12 {
		entries := map[string]objectstore.Hash{}
		for i := range 20 {
			entries[fmt.Sprintf("%d/", i)] = below
		}
		below = dir(t, &s, entries)
	}
	var mu sync.Mutex
	visits := map[objectstore.Hash]int{}
	counting := &objectstoretest.Faulty{Store: &s}
	w := reach.NewWalker(t.Context(), counting, reach.Options{Workers: 4, Visit: func(_ context.Context, r reach.Ref) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		visits[r.Hash]++
		return -1, nil
	}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := w.Root(root(reach.Dir, below)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	for h, n := range visits {
		if n != 1 {
			t.Errorf("object %s: visited %d times, want once", h, n)
		}
	}
	if len(visits) != 14 || counting.Calls() != 13 {
		t.Errorf("visited %d objects and read %d, want 14 and 13", len(visits), counting.Calls())
	}
}

// Foreign directory objects may nest deeper than any that e3 makes.
func TestWalkDeep(t *testing.T) {
	var s objectstoretest.Mem
	h := dir(t, &s, nil)
	for range 20_000 {
		h = dir(t, &s, map[string]objectstore.Hash{"d/": h})
	}
	met, faults := walk(t, &s, root(reach.Dir, h))
	if met.Of(reach.Dir).Len() != 20_001 || len(faults) > 0 {
		t.Errorf("met %d directories with faults %q, want 20001 without", met.Of(reach.Dir).Len(), faults)
	}
}

func TestWalkReportsFaults(t *testing.T) {
	var s objectstoretest.Mem
	broken := put(t, &s, []byte("no directory"))
	set := dir(t, &s, map[string]objectstore.Hash{"gone/": hash(1), "broken/": broken, "whole": put(t, &s, []byte("w"))})
	inputs := record.Node{{Name: "images", Leaf: record.Leaf{Kind: record.LeafDir, Hash: set.String()}}}
	top := record.Node{{Name: "inputs", Leaf: record.Leaf{Kind: record.LeafNode, Hash: put(t, &s, inputs.Encode()).String()}}}
	r := root(reach.Node, put(t, &s, top.Encode()))
	r.Owner = reach.Owner{Kind: reach.AWorkspace, Name: "prod", Role: "tree"}
	weak := root(reach.Nodes, hash(2))
	weak.Weak, weak.Owner = true, reach.Owner{Kind: reach.ARun, Name: "prod", ID: "0190", Role: "inputs"}
	met, faults := walk(t, &s, r, weak)
	want := []string{
		"run 0190 of workspace prod: inputs: object " + hash(2).String() + ": object not found (weak)",
		"workspace prod: tree/inputs/images/broken: directory object " + broken.String() + " cannot be read: ",
		"workspace prod: tree/inputs/images/gone: object " + hash(1).String() + ": object not found",
	}
	if len(faults) != len(want) {
		t.Fatalf("faults: got %q, want %q", faults, want)
	}
	for i := range want {
		if !strings.HasPrefix(faults[i], want[i]) {
			t.Errorf("fault: got %q, want %q", faults[i], want[i])
		}
	}
	if !met.Has(objectstore.Sum([]byte("w"))) {
		t.Error("what lies beside the faults was not met")
	}
}

func TestWalkEnds(t *testing.T) {
	var s objectstoretest.Mem
	var roots []reach.Root
	for i := range 100 {
		roots = append(roots, root(reach.Dir, dir(t, &s, map[string]objectstore.Hash{fmt.Sprint(i) + "/": hash(byte(i))})))
	}
	add := func(w *reach.Walker) error {
		for _, r := range roots {
			w.Root(r)
		}
		return w.Wait()
	}
	t.Run("at the first fault", func(t *testing.T) {
		w := reach.NewWalker(t.Context(), &s, reach.Options{})
		var fault *reach.Fault
		if err := add(w); !errors.As(err, &fault) || !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("got %v, want the first fault", err)
		}
		if err := w.Root(roots[0]); err == nil {
			t.Error("a root was taken after the end")
		}
	})
	t.Run("when the caller has enough", func(t *testing.T) {
		enough := errors.New("enough")
		n := 0
		w := reach.NewWalker(t.Context(), &s, reach.Options{Fault: func(*reach.Fault) error {
			if n++; n == 10 {
				return enough
			}
			return nil
		}})
		if err := add(w); !errors.Is(err, enough) {
			t.Errorf("got %v, want %v", err, enough)
		}
	})
	t.Run("when a visit fails", func(t *testing.T) {
		stop := errors.New("stop")
		w := reach.NewWalker(t.Context(), &s, reach.Options{Visit: func(context.Context, reach.Ref) (int64, error) { return -1, stop }})
		if err := add(w); !errors.Is(err, stop) {
			t.Errorf("got %v, want %v", err, stop)
		}
	})
	t.Run("with the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := reach.NewWalker(ctx, &s, reach.Options{Fault: func(*reach.Fault) error { cancel(); return nil }})
		if err := add(w); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	t.Run("when the store fails", func(t *testing.T) {
		w := reach.NewWalker(t.Context(), &objectstoretest.Faulty{Store: &s, Nth: 7}, reach.Options{Fault: func(f *reach.Fault) error {
			if errors.Is(f.Err, objectstore.ErrNotFound) {
				return nil
			}
			return f
		}})
		if err := add(w); !errors.Is(err, objectstoretest.ErrInjected) {
			t.Errorf("got %v, want %v", err, objectstoretest.ErrInjected)
		}
	})
}
