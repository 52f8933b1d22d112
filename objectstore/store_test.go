package objectstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// newDir opens a fresh store whose scratch directory must be empty when the test ends.
func newDir(t testing.TB) *objectstore.Dir {
	t.Helper()
	return newDirIn(t, t.TempDir())
}

func newDirIn(t testing.TB, base string) *objectstore.Dir {
	t.Helper()
	scratch := filepath.Join(base, "scratch")
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{
		Session: func() (string, time.Time, error) { return scratch, time.Now(), os.MkdirAll(scratch, 0o700) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(scratch)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		for _, e := range left {
			t.Errorf("%s is left in the scratch directory", e.Name())
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	stores := map[string]func(t *testing.T) objectstore.Store{
		"dir": func(t *testing.T) objectstore.Store { return newDir(t) },
		"dir without unnamed files": func(t *testing.T) objectstore.Store {
			d := newDir(t)
			d.ForceNamed()
			return d
		},
		"dir without scratch": func(t *testing.T) objectstore.Store {
			d, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		"mem":    func(t *testing.T) objectstore.Store { return new(objectstoretest.Mem) },
		"faulty": func(t *testing.T) objectstore.Store { return &objectstoretest.Faulty{Store: newDir(t)} },
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			for _, c := range objectstoretest.Cases() {
				t.Run(c.Name, func(t *testing.T) {
					s := open(t)
					if err := c.Run(t.Context(), s); err != nil {
						t.Error(err)
					}
					if d, ok := s.(*objectstore.Dir); ok {
						checkAll(t, d)
					}
				})
			}
		})
	}
}

// checkAll verifies every object and its mode, and that the store has no other files.
func checkAll(t testing.TB, d *objectstore.Dir) int {
	t.Helper()
	n := 0
	for e, err := range d.Walk(t.Context()) {
		if err != nil {
			t.Error(err)
			continue
		}
		n++
		if err := d.Verify(t.Context(), e.Hash); err != nil {
			t.Error(err)
		}
		fi, err := os.Lstat(d.File(e.Hash))
		if err != nil || fi.Mode() != 0o444 || fi.Size() != e.Size || !fi.ModTime().Equal(e.Time) {
			t.Errorf("object %s: got %v, %v, want a file of mode 0444 with %+v", e.Hash, fi, err, e)
		}
	}
	files := 0
	filepath.WalkDir(d.Path(), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), "lock-") {
			files++
		}
		return nil
	})
	if files != n {
		t.Errorf("the store has %d files, of which %d are objects", files, n)
	}
	return n
}

func TestCorruptObjectFromAnyStore(t *testing.T) {
	var m objectstoretest.Mem
	h := objectstore.Sum([]byte("right"))
	m.Set(h, []byte("wrong"))
	var corrupt *objectstore.CorruptError
	if _, err := objectstore.ReadAll(t.Context(), &m, h, 100); !errors.As(err, &corrupt) || corrupt.Want != h || corrupt.Got != objectstore.Sum([]byte("wrong")) {
		t.Errorf("ReadAll: got %v, want a *CorruptError for %s", err, h)
	}
	if _, err := objectstore.Copy(t.Context(), new(discard), &m, h); !errors.As(err, &corrupt) {
		t.Errorf("Copy: got %v, want a *CorruptError", err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestFaulty(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := &objectstoretest.Faulty{Store: new(objectstoretest.Mem), Nth: 2, Late: late}
		h, err := objectstore.PutBytes(t.Context(), f, []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objectstore.ReadAll(t.Context(), f, h, 10); !errors.Is(err, objectstoretest.ErrInjected) {
			t.Errorf("late=%v: second call: got %v, want ErrInjected", late, err)
		}
		if !f.Fired() {
			t.Errorf("late=%v: Fired = false after %d calls", late, f.Calls())
		}
		if _, err := objectstore.ReadAll(t.Context(), f, h, 10); err != nil {
			t.Errorf("late=%v: third call: %v", late, err)
		}
	}
}
