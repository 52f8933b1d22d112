package atomicfile_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"e3/internal/host/atomicfile"
)

// The file has the written bytes after several steps, also where parts were changed after their write-back had begun.
func TestEarly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, 40<<20)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(want)
	w := &atomicfile.Early{File: f}
	for at := 0; at < len(want); at += 3 << 20 {
		n := min(3<<20, len(want)-at)
		if _, err := w.WriteAt(want[at:at+n], int64(at)); err != nil {
			t.Fatal(err)
		}
		copy(want[at:], "header")
		if _, err := w.WriteAt([]byte("header"), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v; want the %d that were written", len(got), err, len(want))
	}
}
