package watch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/watch"
)

const packageFile = `e3: 1
name: p
inputs:
  one: {file: data/one.txt}
  dir: {dir: tree, except: [old/]}
  src: {glob: "src/**/*.py"}
tasks: {t: {out: o, run: [x]}}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// next returns what the watcher tells of, relative to dir.
func next(t *testing.T, w *watch.Watcher, dir string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
	defer cancel()
	changed, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range changed {
		if changed[i], err = filepath.Rel(dir, path); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}

// Changes of the package file and of what its inputs name are told, and no others, with and without notifications.
func TestNext(t *testing.T) {
	for _, poll := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, "e3.yaml")
		write(t, file, packageFile)
		write(t, filepath.Join(dir, "data/one.txt"), "1")
		write(t, filepath.Join(dir, "tree/a"), "a")
		write(t, filepath.Join(dir, "src/a.py"), "a")
		var why error
		w, err := watch.New(file, watch.Options{Poll: poll, Quiet: 20 * time.Millisecond, Every: 10 * time.Millisecond, Polling: func(err error) { why = err }})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if w.Files() != 4 || why != nil {
			t.Errorf("poll %t: %d files are watched, want 4; %v", poll, w.Files(), why)
		}
		for _, step := range []struct {
			what string
			do   func()
			want string
		}{
			{"an edit, beside files that are left out", func() {
				write(t, filepath.Join(dir, "tree/a~"), "a")
				write(t, filepath.Join(dir, "tree/old/b"), "b")
				write(t, filepath.Join(dir, "src/__pycache__/a.py"), "a")
				write(t, filepath.Join(dir, "data/one.txt"), "two")
			}, "data/one.txt"},
			{"an edit by rename", func() {
				write(t, filepath.Join(dir, "data/.one.txt.swp"), "six")
				if err := os.Rename(filepath.Join(dir, "data/.one.txt.swp"), filepath.Join(dir, "data/one.txt")); err != nil {
					t.Fatal(err)
				}
			}, "data/one.txt"},
			{"a file in a new folder", func() {
				write(t, filepath.Join(dir, "other.txt"), "")     // which nothing names
				write(t, filepath.Join(dir, "src/notes.txt"), "") // nor this one
				write(t, filepath.Join(dir, "src/new/deep/b.py"), "b")
			}, "src/new/deep/b.py"},
			{"a file in a folder", func() { write(t, filepath.Join(dir, "tree/sub/b"), "b") }, "tree/sub/b"},
			{"an edit in the new folder", func() { write(t, filepath.Join(dir, "src/new/deep/b.py"), "longer") }, "src/new/deep/b.py"},
			{"a removal", func() { os.Remove(filepath.Join(dir, "src/a.py")) }, "src/a.py"},
			{"a faulty package file", func() { write(t, file, "e3: [") }, "e3.yaml"},
			{"an edit meanwhile", func() { write(t, filepath.Join(dir, "data/one.txt"), "eleven") }, "data/one.txt"},
			{"a folder made anew", func() {
				if err := os.RemoveAll(filepath.Join(dir, "tree")); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "tree/a"), "another")
				os.Remove(filepath.Join(dir, "tree/a"))
			}, "tree/a tree/sub/b"},
			{"its next file", func() { write(t, filepath.Join(dir, "tree/c"), "c") }, "tree/c"},
		} {
			step.do()
			var got []string
			for want := len(strings.Fields(step.want)); len(got) < want; {
				got = append(got, next(t, w, dir)...)
			}
			if !slices.Equal(got, strings.Fields(step.want)) {
				t.Errorf("poll %t: after %s: %q, want %q", poll, step.what, got, step.want)
			}
		}
	}
}

// Waiting ends with its context.
func TestNextCancelled(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "e3.yaml"), packageFile)
	w, err := watch.New(filepath.Join(dir, "e3.yaml"), watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := w.Next(ctx); !errors.Is(err, enough) {
		t.Errorf("got %v, want the cause", err)
	}
}

// Files that the cells of a sheet name are watched, as long as they are named.
func TestSheet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "e3.yaml")
	write(t, file, "e3: 1\nname: p\ninputs: {s: {file: s.csv, paths: [f]}}\ntasks: {t: {out: o, run: [x]}}\n")
	write(t, filepath.Join(dir, "s.csv"), "id,f\na,raw/a\nb,far/\nc,\n")
	for _, name := range []string{"raw/a", "raw/b", "far/x"} {
		write(t, filepath.Join(dir, name), name)
	}
	w, err := watch.New(file, watch.Options{Quiet: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, step := range []struct{ path, text, want string }{
		{"raw/a", "edited", "raw/a"}, {"far/y", "new", "far/y"}, {"s.csv", "id,f\na,raw/b\n", "far/x far/y raw/a raw/b s.csv"}, {"raw/b", "edited", "raw/b"},
	} {
		write(t, filepath.Join(dir, step.path), step.text)
		if got := strings.Join(next(t, w, dir), " "); got != step.want {
			t.Errorf("after a change of %s: %s, want %s", step.path, got, step.want)
		}
	}
}

// Each of several files of parameters is watched, whole or by a value of them.
func TestSeveralParams(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "e3.yaml")
	write(t, file, "e3: 1\nname: p\ninputs: {c: {params: [conf/a.yaml, conf/b.json]}}\ntasks: {t: {in: {x: c.x}, out: o, run: echo}}\n")
	write(t, filepath.Join(dir, "conf/a.yaml"), "x: 1\n")
	write(t, filepath.Join(dir, "conf/b.json"), "{}")
	w, err := watch.New(file, watch.Options{Poll: true, Quiet: 20 * time.Millisecond, Every: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Files() != 3 {
		t.Errorf("%d files are watched, want 3", w.Files())
	}
	for _, name := range []string{"conf/a.yaml", "conf/b.json"} {
		write(t, filepath.Join(dir, name), `{"x": 200}`)
		if got := next(t, w, dir); len(got) != 1 || got[0] != name {
			t.Errorf("after an edit of %s: %q", name, got)
		}
	}
}
