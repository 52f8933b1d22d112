package repo

import (
	"os"
	"path/filepath"
	"testing"
)

// Files of several names count once, links are not followed, and each folder of the repository has its kind.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	root, err := Create(filepath.Join(dir, "repo"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(CacheDirVariable, filepath.Join(dir, "cache"))
	r, err := Open(t.Context(), root, Options{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	take := func() map[string]Taken {
		t.Helper()
		list, err := r.Taken(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]Taken{}
		for _, x := range list {
			of[x.Kind] = x
		}
		return of
	}
	before := take()
	events := filepath.Join(root, "events", "w")
	large := filepath.Join(dir, "large")
	for _, err := range []error{
		os.MkdirAll(events, 0o700),
		os.WriteFile(filepath.Join(events, "a"), make([]byte, 5000), 0o600),
		os.Link(filepath.Join(events, "a"), filepath.Join(events, "b")),
		os.WriteFile(large, make([]byte, 1<<20), 0o600),
		os.Symlink(large, filepath.Join(events, "c")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	after := take()
	runs, was := after["runs"], before["runs"]
	if files := runs.Files - was.Files; files < 3 || files > 4 { // w, a and c, and events unless it was there
		t.Errorf("%d more files of runs, want 3 or 4", files)
	}
	if bytes := runs.Bytes - was.Bytes; bytes < 5000 || bytes > 5000+int64(len(large)) {
		t.Errorf("%d more bytes of runs, want 5000 and the text of a link", bytes)
	}
	if runs.Blocks-was.Blocks < 5000 {
		t.Errorf("%d more bytes in blocks, want at least 5000", runs.Blocks-was.Blocks)
	}
	delete(after, "runs")
	for kind, x := range after {
		if x != before[kind] {
			t.Errorf("%s: got %+v, want %+v", kind, x, before[kind])
		}
	}
}
