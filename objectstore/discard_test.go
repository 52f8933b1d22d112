package objectstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"e3/objectstore"
)

// Damaged objects are removed, so that a put of the same size stores the right bytes; intact ones stay.
func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	d, err := objectstore.OpenDir(dir, objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.PutBytes(t.Context(), []byte("right"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, h.String()[:2], h.String()[2:])
	for _, text := range []string{"right", "wrong", "wr", "", "gone"} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if text != "gone" {
			if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
				t.Fatal(err)
			}
		}
		lost, err := objectstore.Lost(t.Context(), d, h)
		if err != nil || lost != (text != "right") {
			t.Errorf("%q is lost: %v, %v", text, lost, err)
		}
		gone, err := objectstore.Discard(t.Context(), d, h)
		if err != nil || gone != (text != "right") {
			t.Errorf("%q is discarded: %v, %v", text, gone, err)
		}
		if _, err := d.PutBytes(t.Context(), []byte("right")); err != nil {
			t.Fatal(err)
		}
		if got, err := objectstore.ReadAll(t.Context(), d, h, 100); err != nil || string(got) != "right" {
			t.Errorf("put again after %q it is %q, %v", text, got, err)
		}
	}
}
