package tree_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// A directory becomes one object per level; any entry of it can be found and written out.
func Example() {
	ctx := context.Background()
	base, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(base)
	src, out := filepath.Join(base, "src"), filepath.Join(base, "out")
	os.MkdirAll(filepath.Join(src, "data"), 0o777)
	os.WriteFile(filepath.Join(src, "data", "sales.csv"), []byte("a,b\n"), 0o666)

	store, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{})
	if err != nil {
		panic(err)
	}
	dir, stats, err := tree.Put(ctx, store, src, tree.PutOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d file, %d bytes\n", stats.Files, stats.Bytes)

	entry, err := tree.Lookup(ctx, store, dir, "data/sales.csv")
	if err != nil {
		panic(err)
	}
	if err := store.Materialize(ctx, entry.Hash, suite.Paths{}, out, 0o644); err != nil {
		panic(err)
	}
	b, err := os.ReadFile(out)
	fmt.Printf("%q %v\n", b, err)
	// Output:
	// 1 file, 4 bytes
	// "a,b\n" <nil>
}
