package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/host/atomicfile"
)

type newHidden func(dir, name string, perm fs.FileMode) (*atomicfile.File, error)

// hidden runs a test with unnamed files, if this system has them, and with hidden names.
func hidden(t *testing.T, test func(t *testing.T, begin newHidden)) {
	t.Run("as this system can", func(t *testing.T) { test(t, atomicfile.NewHidden) })
	t.Run("with a hidden name", func(t *testing.T) { test(t, atomicfile.NewHiddenNamed) })
}

func TestNewHidden(t *testing.T) {
	hidden(t, func(t *testing.T, begin newHidden) {
		dir := t.TempDir()
		path := filepath.Join(dir, "out.zip")
		write := func(text string) *atomicfile.File {
			f, err := begin(dir, "out.zip", 0o666)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, text); err != nil {
				t.Fatal(err)
			}
			return f
		}
		if err := write("first").Create(path); err != nil {
			t.Fatal(err)
		}
		wantNames(t, dir, "out.zip")
		if err := write("second").Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create onto something: got %v, want fs.ErrExist", err)
		}
		wantNames(t, dir, "out.zip")
		if got := read(t, path); got != "first" {
			t.Errorf("file holds %q, want %q", got, "first")
		}
		f := write("third")
		if err := f.Replace(path); err != nil {
			t.Fatal(err)
		}
		if err := f.Discard(); err != nil {
			t.Errorf("discard after replace: %v", err)
		}
		if got := read(t, path); got != "third" {
			t.Errorf("file holds %q, want %q", got, "third")
		}
		if err := write("fourth").Discard(); err != nil {
			t.Errorf("discard: %v", err)
		}
		if err := write("fifth").Replace(filepath.Join(dir, "other")); err != nil {
			t.Errorf("replace of nothing: %v", err)
		}
		wantNames(t, dir, "other", "out.zip")
	})
}

func TestNewHiddenFails(t *testing.T) {
	hidden(t, func(t *testing.T, begin newHidden) {
		dir := t.TempDir()
		if _, err := begin(filepath.Join(dir, "none"), "f", 0o666); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in no folder: got %v, want fs.ErrNotExist", err)
		}
		folder := filepath.Join(dir, "folder")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := begin(dir, "folder", 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Replace(folder); err == nil {
			t.Error("a file replaced a folder")
		}
		if f, err = begin(dir, "f", 0o666); err != nil {
			t.Fatal(err)
		}
		if err := f.Create(filepath.Join(dir, "none", "f")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create in no folder: got %v, want fs.ErrNotExist", err)
		}
		wantNames(t, dir, "folder")
	})
}

// A hidden name shortens a long name, even within a character.
func TestNewHiddenLongName(t *testing.T) {
	hidden(t, func(t *testing.T, begin newHidden) {
		dir := t.TempDir()
		name := "x" + strings.Repeat("é", 120)
		for _, commit := range []func(*atomicfile.File, string) error{(*atomicfile.File).Create, (*atomicfile.File).Replace} {
			f, err := begin(dir, name, 0o666)
			if err != nil {
				t.Fatal(err)
			}
			if err := commit(f, filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		wantNames(t, dir, name)
	})
}

func TestHiddenPerm(t *testing.T) {
	hidden(t, func(t *testing.T, begin newHidden) {
		dir := t.TempDir()
		like := filepath.Join(dir, "like")
		if err := os.WriteFile(like, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := begin(dir, "f", 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Create(filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
		got, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.Stat(like); err != nil || got.Mode() != want.Mode() {
			t.Errorf("mode is %v, that of another new file is %v (%v)", got.Mode(), want.Mode(), err)
		}
	})
}

func TestNewScratch(t *testing.T) {
	dir := t.TempDir()
	f, err := atomicfile.NewScratch(dir, "f")
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir)
	if _, err := io.WriteString(f, "text"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "text" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := f.Discard(); err != nil {
		t.Error(err)
	}
}
