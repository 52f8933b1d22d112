package fs_test

import (
	"errors"
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

// plant writes a file below dir and makes it and the folders above it old.
func plant(t *testing.T, dir, rel string, at time.Time) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(rel))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	age(t, dir, path, at)
	return path
}

// age sets the time of path and of the folders above it.
func age(t *testing.T, dir, path string, at time.Time) {
	t.Helper()
	for ; len(path) > len(dir); path = filepath.Dir(path) {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// Names as e3 gives them to executions.
var (
	aTask = strings.Repeat("0a", 32)
	anID  = "01980000-0000-7000-8000-000000000001"
)

// named gives such names to what is in executions/t/i.
func named(rel string) string {
	rel = strings.Replace(rel, "executions/t/i", "executions/"+aTask+"/"+aTask, 1) + "/"
	rel = strings.Replace(strings.Replace(rel, "/e/", "/"+anID+"/", 1), "/f/", "/01980000-0000-7000-8000-000000000002/", 1)
	return strings.TrimSuffix(rel, "/")
}

func TestRemoveLeftovers(t *testing.T) {
	long := strings.Repeat("long", 75)
	for _, test := range []struct {
		name  string
		plant []string // relative to the root, old
		young []string
		gone  int // folders that are removed; with 0, everything stays
	}{
		{name: "nothing"},
		{name: "logs of an execution", plant: []string{"executions/t/i/e/stdout.txt", "executions/t/i/e/log~/a", "executions/t/i/e/log~/b%/c"}, gone: 3},
		{name: "an execution", plant: []string{"executions/t/i/e/status.beast2", "executions/t/i/e/stdout.txt"}},
		{name: "logs beside an execution", plant: []string{"executions/t/i/e/status.beast2", "executions/t/i/f/stdout.txt"}, gone: 1},
		{name: "a young log", plant: []string{"executions/t/i/e/stdout.txt"}, young: []string{"executions/t/i/e/stdout.txt"}},
		{name: "a young log among others", plant: []string{"executions/t/i/e/log~/a", "executions/t/i/e/log~/b"}, young: []string{"executions/t/i/e/log~/a"}},
		{name: "what a user has put into an execution", plant: []string{"executions/t/i/e/notes/a"}},
		{name: "folders that are no executions", plant: []string{"executions/x/i/e/stdout.txt"}},
		{name: "a young folder", plant: []string{"executions/t/i/e/stdout.txt"}, young: []string{"executions/t/i/e"}},
		{name: "fields of an index", plant: []string{"index/a/b/c.rec~/f", "index/a/b/d.rec~/f", "index/a/b/d.rec"}, gone: 1},
		{name: "young fields", plant: []string{"index/a/c.rec~/f"}, young: []string{"index/a/c.rec~"}},
		{name: "fields of a run", plant: []string{"dataflows/w/r.beast2~/provenance.beast2"}, gone: 1},
		{name: "fields of a package", plant: []string{"packages/p/1.0~/f"}, gone: 1},
		{name: "fields of a pin", plant: []string{"pins/e.rec~/f", "settings/a.json~/f", "tombstones/t.rec~/f", "workspaces/w.beast2~/f"}, gone: 4},
		{name: "fields of a long name", plant: []string{"queue/" + long[:199] + "%/" + long[199:] + ".rec~/f"}, gone: 1},
		{name: "what is nobody's", plant: []string{"index/a/%zz.rec~/f", "packages/p/.hidden~/f", "dataflows/w/note~/f", "index/a/x.rec~x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, fs.Options{})
			cutoff := began(t, s)
			for _, list := range [][]string{test.plant, test.young} {
				for i, rel := range list {
					if strings.HasPrefix(rel, "executions/t/") {
						list[i] = named(rel)
					}
				}
			}
			for _, rel := range test.plant {
				plant(t, dir, rel, cutoff.Add(-time.Hour))
			}
			for _, rel := range test.plant { // since a later write has changed folders of an earlier one
				age(t, dir, filepath.Join(dir, filepath.FromSlash(rel)), cutoff.Add(-time.Hour))
			}
			for _, rel := range test.young {
				path := filepath.Join(dir, filepath.FromSlash(rel))
				if err := os.Chtimes(path, cutoff, cutoff); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			n, err := s.RemoveLeftovers(t.Context(), cutoff)
			if err != nil || n != test.gone {
				t.Errorf("got %d, %v, want %d folders", n, err, test.gone)
			}
			for _, rel := range test.plant {
				_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(rel)))
				if _, had := before[rel]; test.gone == 0 && (err != nil || !had) {
					t.Errorf("%s: %v, want it kept", rel, err)
				}
			}
			if n, err := s.RemoveLeftovers(t.Context(), cutoff); err != nil || n != 0 {
				t.Errorf("again: got %d, %v, want nothing to do", n, err)
			}
			for path := range tree(t, dir) {
				if strings.Contains(path, "~") && test.gone > 0 && !strings.HasPrefix(path, "index/a/b/d.rec") {
					t.Errorf("%s was left", path)
				}
			}
		})
	}
}

func TestRemoveLeftoversEmptyFolders(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	cutoff := began(t, s)
	other := strings.Repeat("0b", 32)
	for rel, at := range map[string]time.Time{"executions/" + aTask + "/" + aTask: cutoff.Add(-time.Hour), "executions/" + other + "/" + aTask: cutoff, "executions/a/b": cutoff.Add(-time.Hour)} {
		path := filepath.Join(dir, filepath.FromSlash(rel))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		age(t, dir, path, at)
	}
	if n, err := s.RemoveLeftovers(t.Context(), cutoff); err != nil || n != 2 {
		t.Errorf("got %d, %v, want 2", n, err)
	}
	if left := names(t, filepath.Join(dir, "executions")); !slices.Equal(left, []string{other, "a"}) {
		t.Errorf("left are %q, want the young one and a, which is nothing of e3's", left)
	}
}

// TestRemoveLeftoversBesideAppender has a writer in the middle of an append to an old log.
func TestRemoveLeftoversBesideAppender(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	cutoff := began(t, s)
	key := refstore.Key{Partition: "LOG/" + aTask + "/" + aTask + "/" + anID, Sort: "stdout.txt"}
	plant(t, dir, "executions/"+aTask+"/"+aTask+"/"+anID+"/stdout.txt", cutoff.Add(-time.Hour))
	unlock := fs.LockStream(t, s, key)
	removed := make(chan int)
	go func() {
		n, err := s.RemoveLeftovers(t.Context(), cutoff)
		if err != nil {
			t.Error(err)
		}
		removed <- n
	}()
	select {
	case n := <-removed:
		t.Errorf("a log that is locked: %d folders are removed, want it kept", n)
	case <-time.After(50 * time.Millisecond): // it waits
		unlock()
		if n := <-removed; n != 3 {
			t.Errorf("got %d, want 3", n)
		}
	}
}

// TestRemoveLeftoversBesideWriters treats everything as old: whatever it removes, no record is lost or refused.
func TestRemoveLeftoversBesideWriters(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	done := make(chan struct{})
	removed := make(chan int)
	go func() {
		n := 0
		for {
			some, err := s.RemoveLeftovers(t.Context(), time.Now().Add(time.Hour))
			if err != nil {
				t.Error(err)
			}
			n += some
			select {
			case <-done:
				removed <- n
				return
			default:
			}
		}
	}()
	together(t, "leftovers", dir, 3)
	close(done)
	if n := <-removed; n == 0 {
		t.Error("nothing was removed: the test has shown nothing")
	}
	records := 0
	for task, err := range s.List(t.Context(), refstore.Query{Partition: "TASKS", KeysOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range s.List(t.Context(), refstore.Query{Partition: fmt.Sprintf("EXECUTION/%s/%064x", task.Key.Sort, 0), Fields: []string{"f"}}) {
			if err != nil || len(r.Fields) != 1 {
				t.Errorf("got %+v, %v, want a field", r, err)
			}
			records++
		}
	}
	if records != 3*75 {
		t.Errorf("got %d executions, want %d", records, 3*75)
	}
}
