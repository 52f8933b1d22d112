package fs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"e3/refstore"
	"e3/refstore/fs"
)

var folded = refstore.Key{Partition: "EXECUTION/t/i", Sort: "id"}

// list returns the names of the files of the execution folded.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "executions", "t", "i", "id"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFold(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	field := func(name, value string) refstore.Field { return refstore.Field{Name: name, Value: []byte(value)} }
	v, err := s.Put(t.Context(), refstore.Record{Key: folded, Value: []byte("running"), Fields: []refstore.Field{
		field("detail.beast2", "\ne3with x=1\n"), field("a b=c", ""), field("stdout.txt", "hello"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, dir), []string{"status.beast2", "stdout.txt"}; !slices.Equal(got, want) {
		t.Errorf("the execution has the files %q, want %q", got, want)
	}
	if _, err := s.Put(t.Context(), refstore.Record{Key: folded, Version: v, Value: []byte("success"), Fields: []refstore.Field{field("output", "o\n"), field("a b=c", "d")}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "executions", "t", "i", "id", "status.beast2"))
	if want := "successo\nd\ne3with x=1\n\ne3with output=2 a+b%3Dc=1 detail.beast2=12\n"; err != nil || string(data) != want {
		t.Errorf("the file holds %q (%v), want %q", data, err, want)
	}
	r, err := s.Get(t.Context(), folded, "stdout.txt", "a b=c", "none", "output", "detail.beast2")
	if err != nil || string(r.Value) != "success" {
		t.Fatalf("got %q, %v", r.Value, err)
	}
	want := []refstore.Field{field("stdout.txt", "hello"), field("a b=c", "d"), field("output", "o\n"), field("detail.beast2", "\ne3with x=1\n")}
	if !slices.EqualFunc(r.Fields, want, func(a, b refstore.Field) bool { return a.Name == b.Name && string(a.Value) == string(b.Value) }) {
		t.Errorf("got the fields %q, want %q", r.Fields, want)
	}
}

// TestFoldedLogs: logs come before their record and may outlive it, and a process may be killed at any moment. No
// reader, however fast, meets a folder that is empty, as that would be a damaged record.
func TestFoldedLogs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	stream := func(name string) refstore.Key { return refstore.Key{Partition: "LOG/t/i/id", Sort: name} }
	whole := func(when string) {
		t.Helper()
		if _, err := s.Get(t.Context(), folded); !errors.Is(err, refstore.ErrNotFound) {
			t.Fatalf("%s the record is read as: %v, want ErrNotFound", when, err)
		}
		if isEmpty(t, filepath.Join(dir, "executions", "t", "i", "id")) {
			t.Fatalf("%s the folder is empty", when)
		}
	}
	if err := s.AdoptStream(t.Context(), stream("stdout.txt"), filepath.Join(dir, "tmp", "none")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("adopt what is not there: %v, want ErrNotExist", err)
	}
	whole("after a log that could not be adopted")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 200 {
			for _, name := range []string{"stdout.txt", "other"} {
				if err := s.Append(t.Context(), stream(name), 0, []byte("hello")); err != nil {
					t.Error(err)
				}
			}
			for _, name := range []string{"stdout.txt", "other"} {
				if err := s.Remove(t.Context(), stream(name)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		whole("beside a writer of logs")
	}
	if _, err := os.Lstat(filepath.Join(dir, "executions", "t", "i", "id")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder after the last log was removed: %v, want ErrNotExist", err)
	}
}

// TestFoldedFileGone: an execution whose only file was removed is damaged, not one that never was.
func TestFoldedFileGone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	if _, err := s.Put(t.Context(), refstore.Record{Key: folded, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "executions", "t", "i", "id", "status.beast2")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), folded); !errors.Is(err, refstore.ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
	if err := s.Delete(t.Context(), folded, refstore.Absent); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), folded); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// isEmpty tells whether a folder is there and empty. A folder that was removed after it was opened lists nothing.
func isEmpty(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if names, err := f.Readdirnames(1); len(names) > 0 || !errors.Is(err, io.EOF) {
		return false
	}
	read, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Stat(dir)
	return err == nil && os.SameFile(read, there)
}
