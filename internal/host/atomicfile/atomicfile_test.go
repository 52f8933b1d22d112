package atomicfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"e3/internal/host/atomicfile"
)

func TestWriteFileReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, want := range []string{"old", "new and longer", ""} {
		if err := atomicfile.WriteFile(path, []byte(want), atomicfile.Options{Sync: true}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != want {
			t.Errorf("file holds %q, want %q", got, want)
		}
	}
	wantNames(t, filepath.Dir(path), "f")
}

func TestCreateFileKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	aside := filepath.Join(dir, "aside")
	if err := os.Mkdir(aside, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	if err := atomicfile.CreateFile(path, []byte("first"), atomicfile.Options{Aside: aside}); err != nil {
		t.Fatal(err)
	}
	err := atomicfile.CreateFile(path, []byte("second"), atomicfile.Options{Aside: aside})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: got %v, want fs.ErrExist", err)
	}
	if got := read(t, path); got != "first" {
		t.Errorf("file holds %q, want %q", got, "first")
	}
	wantNames(t, aside)
}

func TestCreateFileHasOneWinner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() { errs[i] = atomicfile.CreateFile(path, fmt.Appendf(nil, "%d", i), atomicfile.Options{}) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Errorf("both %d and %d created the file", winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, fs.ErrExist):
			t.Errorf("creator %d: got %v, want fs.ErrExist", i, err)
		}
	}
	if got, want := read(t, path), fmt.Sprint(winner); got != want {
		t.Errorf("file holds %q, want the winner's %q", got, want)
	}
	wantNames(t, filepath.Dir(path), "f")
}

func TestPerm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := atomicfile.WriteFile(path, nil, atomicfile.Options{Perm: 0o444}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != 0o444 {
		t.Errorf("mode is %v, want -r--r--r--", got)
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(path, "in it"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteFile(path, []byte("x"), atomicfile.Options{}); err == nil {
		t.Error("a file replaced a folder")
	}
	wantNames(t, dir, "folder")
}

func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	f, err := atomicfile.New(dir, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Discard(); err != nil {
			t.Errorf("discard: %v", err)
		}
	}
	if err := f.Replace(filepath.Join(dir, "f")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("replace after discard: got %v, want fs.ErrClosed", err)
	}
	wantNames(t, dir)
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}
