package objectstoretest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// RunPuts damages objects of s, each in one way, and puts the bytes again in every possible way. Readers must then get
// the right bytes. again, if it is not nil, returns the store for the second put, which stands for another process with
// no memory of the first.
func (d Damage) RunPuts(ctx context.Context, s objectstore.Store, again func() objectstore.Store) error {
	if again == nil {
		again = func() objectstore.Store { return s }
	}
	r := rand.New(rand.NewPCG(d.Seed, 0xe4))
	for i := range d.Count {
		b := random(r.Uint64(), sizes[r.IntN(len(sizes))])
		h, err := objectstore.PutBytes(ctx, s, b)
		if err != nil {
			return err
		}
		for name, put := range putters(d.Scratch) {
			what, bad := Spoil(r, b)
			if err := d.Set(h, bad); err != nil {
				return err
			}
			if err := d.putAgain(ctx, again(), b, put); err != nil {
				return fmt.Errorf("seed %d, object %d of %d bytes, %s, %s: %w", d.Seed, i, len(b), what, name, err)
			}
		}
	}
	return nil
}

// putAgain puts b, twice, and reads it.
func (d Damage) putAgain(ctx context.Context, s objectstore.Store, b []byte, put putter) error {
	want := objectstore.Info{Hash: objectstore.Sum(b), Size: int64(len(b))}
	for range 2 {
		got, err := put(ctx, s, b)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("got %v, want %v", got, want)
		}
	}
	if d.Get != nil {
		if got, err := d.Get(want.Hash); err != nil || !bytes.Equal(got, b) {
			return fmt.Errorf("it was put, and the store holds %d other bytes: %v", len(got), err)
		}
	}
	return expect(ctx, s, b)
}

type putter func(context.Context, objectstore.Store, []byte) (objectstore.Info, error)

// putters are all ways to put bytes into a store.
func putters(scratch string) map[string]putter {
	file := func(b []byte, use func(f *os.File) (objectstore.Info, error)) (objectstore.Info, error) {
		path := filepath.Join(scratch, "in")
		defer os.Remove(path)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return objectstore.Info{}, err
		}
		f, err := os.Open(path)
		if err != nil {
			return objectstore.Info{}, err
		}
		defer f.Close()
		return use(f)
	}
	return map[string]putter{
		"put": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			return s.Put(ctx, bytes.NewReader(b))
		},
		"put bytes": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			h, err := objectstore.PutBytes(ctx, s, slices.Clone(b))
			return objectstore.Info{Hash: h, Size: int64(len(b))}, err
		},
		"put a file": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			return file(b, func(f *os.File) (objectstore.Info, error) {
				return objectstore.PutFile(ctx, s, f, objectstore.FileOptions{})
			})
		},
		"put a file that is probably there": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			return file(b, func(f *os.File) (objectstore.Info, error) {
				return objectstore.PutFile(ctx, s, f, objectstore.FileOptions{Probe: true})
			})
		},
		"adopt": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			return file(b, func(f *os.File) (objectstore.Info, error) {
				a, ok := s.(objectstore.Adopter)
				if !ok {
					return objectstore.PutFile(ctx, s, f, objectstore.FileOptions{})
				}
				root, err := os.OpenRoot(filepath.Dir(f.Name()))
				if err != nil {
					return objectstore.Info{}, err
				}
				defer root.Close()
				return objectstore.Adopt(ctx, a, root, filepath.Base(f.Name()))
			})
		},
		"put a tree": func(ctx context.Context, s objectstore.Store, b []byte) (objectstore.Info, error) {
			return file(b, func(f *os.File) (objectstore.Info, error) {
				dir := filepath.Join(scratch, "tree")
				defer os.RemoveAll(dir)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return objectstore.Info{}, err
				}
				if err := os.Rename(f.Name(), filepath.Join(dir, "f")); err != nil {
					return objectstore.Info{}, err
				}
				h, _, err := tree.Put(ctx, s, dir, tree.PutOptions{})
				if err != nil {
					return objectstore.Info{}, err
				}
				e, err := tree.Lookup(ctx, s, h, "f")
				return objectstore.Info{Hash: e.Hash, Size: e.Size}, err
			})
		},
	}
}
