package overlay_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/overlay"
)

func openDir(t testing.TB) *objectstore.Dir {
	t.Helper()
	d, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), overlay.New(openDir(t), openDir(t))); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is in the base is read from there, and nothing is put or removed there.
func TestBaseIsRead(t *testing.T) {
	ctx, base := t.Context(), openDir(t)
	s := overlay.New(base, openDir(t))
	there, err := base.PutBytes(ctx, []byte("there"))
	if err != nil {
		t.Fatal(err)
	}
	here, err := s.PutBytes(ctx, []byte("here"))
	if err != nil {
		t.Fatal(err)
	}
	none := objectstore.Sum([]byte("none"))
	for h, want := range map[objectstore.Hash]string{there: "there", here: "here"} {
		if b, err := s.ReadAll(ctx, h, 10); string(b) != want || err != nil {
			t.Errorf("read %q: %q, %v", want, b, err)
		}
		path := filepath.Join(t.TempDir(), "copy")
		if err := s.Materialize(ctx, h, suite.Paths{}, path, 0o600); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(path); string(b) != want || err != nil {
			t.Errorf("copy of %q: %q, %v", want, b, err)
		}
		if size, err := s.Stat(ctx, h); size != int64(len(want)) || err != nil {
			t.Errorf("size of %q: %d, %v", want, size, err)
		}
		if ok, err := s.Refresh(ctx, h); !ok || err != nil {
			t.Errorf("refresh %q: %v, %v", want, ok, err)
		}
	}
	if missing, err := s.Missing(ctx, []objectstore.Hash{there, none, here}); err != nil || !slices.Equal(missing, []objectstore.Hash{none}) {
		t.Errorf("missing %v, %v", missing, err)
	}
	if ok, err := s.Refresh(ctx, none); ok || err != nil {
		t.Errorf("refresh of nothing: %v, %v", ok, err)
	}
	if err := s.Delete(ctx, there); err != nil {
		t.Fatal(err)
	}
	if _, err := base.Stat(ctx, there); err != nil {
		t.Errorf("an object of the base was removed: %v", err)
	}
	if _, err := base.Stat(ctx, here); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("an object was put in the base: %v", err)
	}
}
