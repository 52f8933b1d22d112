package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/refstore"
	"e3/refstore/fs"
)

// TestExecutionsAfter lists the executions of a task after an id. Folders of inputs that have not changed since are not
// opened.
func TestExecutionsAfter(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	id := func(ms int64) string { return fmt.Sprintf("%08x-%04x-7000-8000-000000000001", ms>>16, ms&0xffff) }
	now := time.Now().UnixMilli()
	hour := time.Hour.Milliseconds()
	var made []refstore.Key
	for i := range int64(6) {
		for _, task := range []string{"one", "two"} {
			key := refstore.Key{Partition: fmt.Sprintf("EXECUTION/%s/inputs%d", task, i), Sort: id(now - i*hour)}
			if _, err := s.Put(t.Context(), refstore.Record{Key: key, Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			then := time.UnixMilli(now - i*hour)
			if err := os.Chtimes(filepath.Join(dir, "executions", task, fmt.Sprintf("inputs%d", i)), then, then); err != nil {
				t.Fatal(err)
			}
			if task == "one" {
				made = append(made, key)
			}
		}
	}
	after := func(id string) (list []refstore.Key) {
		t.Helper()
		for key, err := range s.ExecutionsAfter(t.Context(), "one", id) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, key)
		}
		slices.SortFunc(list, func(a, b refstore.Key) int { return strings.Compare(b.Sort, a.Sort) })
		return list
	}
	for i := range 6 {
		if got, want := after(id(now-int64(i)*hour)), made[:i]; !slices.Equal(got, want) {
			t.Errorf("after the execution of %d hours ago: got %v, want %v", i, got, want)
		}
	}
	// An execution in a folder that is said not to have changed is not seen: the folder was not opened.
	hidden := filepath.Join(dir, "executions", "one", "inputs0")
	if err := os.Chtimes(hidden, time.UnixMilli(now-3*hour), time.UnixMilli(now-3*hour)); err != nil {
		t.Fatal(err)
	}
	if got, want := after(id(now-2*hour)), made[1:2]; !slices.Equal(got, want) {
		t.Errorf("after the execution of 2 hours ago, with one folder that has not changed since: got %v, want %v", got, want)
	}
	if got := after("no id"); len(got) > 0 {
		t.Errorf("after a text that is no id: got %v", got)
	}
	if got := after(""); !slices.Equal(got, made) {
		t.Errorf("all: got %v, want %v", got, made)
	}
}
