package fs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"e3/refstore"
	"e3/refstore/fs"
)

// A record whose sum cannot be written is not made.
func TestCreateWithoutSum(t *testing.T) {
	dir := t.TempDir()
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "full"}, Value: []byte("value"), Fields: []refstore.Field{{Name: refstore.SumField, Value: []byte("sum")}}}
	inTheWay := filepath.Join(dir, "workspaces", "full.beast2~sum")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), r); err == nil {
		t.Fatalf("put succeeded with a folder at %s", inTheWay)
	}
	if got, err := s.Get(t.Context(), r.Key); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("after the failed put the record is %q, %v, want none", got.Value, err)
	}
	put(t, s, r)
}
