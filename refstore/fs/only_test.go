package fs_test

import (
	"testing"

	"e3/refstore"
	"e3/refstore/fs"
)

// Only a key with one execution has one for certain.
func TestOnlyExecution(t *testing.T) {
	s := open(t, t.TempDir(), fs.Options{})
	first := refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "01900000-0000-7000-8000-000000000001"}
	second := refstore.Key{Partition: first.Partition, Sort: "01900000-0000-7000-8000-000000000002"}
	if fs.OnlyExecution(s, first) {
		t.Error("one of none is the only one")
	}
	put := func(key refstore.Key) {
		t.Helper()
		if _, err := s.Put(t.Context(), refstore.Record{Key: key, Value: []byte("value")}); err != nil {
			t.Fatal(err)
		}
	}
	put(first)
	if !fs.OnlyExecution(s, first) {
		t.Skip("the file system does not count the folders in a folder: run this on ext4, XFS or tmpfs")
	}
	put(second)
	if fs.OnlyExecution(s, second) {
		t.Error("one of two is the only one")
	}
}
