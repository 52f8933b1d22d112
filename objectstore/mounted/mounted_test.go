package mounted_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/mounted"
	"e3/objectstore/objectstoretest"
)

// made returns a store in a new folder.
func made(t *testing.T, o mounted.Options) *mounted.Folder {
	t.Helper()
	if o.Base == "" {
		o.Base = t.TempDir()
	}
	o.Below = "e3/forecast"
	f := mounted.Open(o)
	t.Cleanup(func() { f.Close() })
	if err := f.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// alone is the guard of objects that no other process knows.
type alone struct{}

func (alone) Rely(context.Context, objectstore.Hash) error { return nil }
func (alone) Held() error                                  { return nil }
func (alone) Condemn(_ context.Context, _ byte, hs []objectstore.Hash) ([]objectstore.Hash, func(context.Context) error, error) {
	return hs, func(context.Context) error { return nil }, nil
}

func TestConformance(t *testing.T) {
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			local, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := cached.Open(cached.Options{Local: local, Remote: made(t, mounted.Options{}), Guard: alone{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.Run(t.Context(), s), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func put(t *testing.T, f *mounted.Folder, content string) objectstore.Hash {
	t.Helper()
	h := objectstore.Sum([]byte(content))
	if _, err := f.Put(t.Context(), h, strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return h
}

// path is the file of an object.
func path(f *mounted.Folder, h objectstore.Hash) string {
	return filepath.Join(f.Path(), "objects", h.String()[:2], h.String()[2:])
}

// TestPut: an object is put once, and again where a file of another size has its name; what it holds is what others
// open, list and date.
func TestPut(t *testing.T) {
	a := made(t, mounted.Options{})
	b := mounted.Open(mounted.Options{Base: strings.TrimSuffix(a.Path(), "/e3/forecast"), Below: "e3/forecast"})
	defer b.Close()
	if _, err := b.Stat(t.Context(), objectstore.Sum([]byte("content"))); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("look at an absent object: got error %v, want ErrNotFound", err)
	}
	before, err := b.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := put(t, a, "content")
	for range 2 {
		e, err := b.Stat(t.Context(), h)
		if err != nil || e.Size != 7 || e.Time.Before(before) {
			t.Errorf("it is %+v, %v, want 7 bytes, not before %v", e, err, before)
		}
		r, err := b.Open(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != "content" || err != nil {
			t.Errorf("it has %q, %v, want its content", got, err)
		}
		r.Close()
		if created, err := b.Put(t.Context(), h, strings.NewReader("content"), 7); created || err != nil {
			t.Errorf("put again: got %v, %v, want nothing created", created, err)
		}
		// A server that has crashed may leave an end that is missing.
		if err := os.Truncate(path(a, h), 3); err != nil {
			t.Fatal(err)
		}
		if created, err := b.Put(t.Context(), h, strings.NewReader("content"), 7); !created || err != nil {
			t.Errorf("put over a truncated object: got %v, %v, want it created", created, err)
		}
	}
	var listed []objectstore.Hash
	for e, err := range b.List(t.Context(), h[0]) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, e.Hash)
	}
	if len(listed) != 1 || listed[0] != h {
		t.Errorf("its shard has %v, want it alone", listed)
	}
	if left, err := os.ReadDir(filepath.Join(a.Path(), "aside")); err != nil || len(left) > 0 {
		t.Errorf("aside are %v, %v, want nothing", left, err)
	}
}

// TestDelete: a removal whose lease ended while the file system hung is undone, and reported as refused.
func TestDelete(t *testing.T) {
	var asked int
	lost := errors.New("the lease is lost")
	permitted := 1 << 30
	f := made(t, mounted.Options{Permit: func(context.Context) error {
		if asked++; asked > permitted {
			return lost
		}
		return nil
	}})
	hs := []objectstore.Hash{put(t, f, "a"), put(t, f, "b"), put(t, f, "c")}
	permitted = 3 // the second is renamed by then
	if err := f.Delete(t.Context(), hs); !errors.Is(err, lost) || !errors.Is(err, objectstore.ErrRefused) {
		t.Errorf("delete while the lease ends: got error %v, want ErrRefused for the lease's sake", err)
	}
	there := func(want ...bool) {
		t.Helper()
		for i, h := range hs {
			if _, err := f.Stat(t.Context(), h); (err == nil) != want[i] {
				t.Errorf("object %d: got error %v, want it there: %v", i, err, want[i])
			}
		}
	}
	there(false, true, true)
	permitted = 1 << 30
	if err := f.Delete(t.Context(), hs); err != nil {
		t.Error(err)
	}
	there(false, false, false)
}

// TestAccess: what is made is for those that the folder is for, whatever the umask is.
func TestAccess(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	for _, c := range []struct{ base, folder, file fs.FileMode }{
		{0o700, 0o700, 0o600},
		{0o770, 0o770, 0o660},
		{0o775, 0o775, 0o664},
	} {
		base := t.TempDir()
		if err := os.Chmod(base, c.base); err != nil {
			t.Fatal(err)
		}
		f := made(t, mounted.Options{Base: base})
		h := put(t, f, "content")
		for name, want := range map[string]fs.FileMode{path(f, h): c.file, filepath.Dir(path(f, h)): c.folder, f.Path(): c.folder, filepath.Join(f.Path(), "aside"): c.folder} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
				t.Errorf("below a folder of %v: %s is %v, %v, want %v", c.base, name, info.Mode(), err, want)
			}
		}
	}
}

// TestMissing: a base that does not exist, as where nothing is mounted, is never made.
func TestMissing(t *testing.T) {
	base := filepath.Join(t.TempDir(), "mnt")
	f := mounted.Open(mounted.Options{Base: base, Below: "e3"})
	_, err := f.Open(t.Context(), objectstore.Sum(nil))
	for what, err := range map[string]error{"create": f.Create(t.Context()), "open": err} {
		if err == nil || !strings.Contains(err.Error(), "is its file system mounted here?") || errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s: got error %v, want one that asks for the mount", what, err)
		}
	}
	if _, err := os.Stat(base); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the base: got error %v, want that it does not exist", err)
	}
}

// TestBlobs: a blob is created once, and replaced; what a crash leaves of a put is removed by its age.
func TestBlobs(t *testing.T) {
	f := made(t, mounted.Options{})
	for i, want := range []bool{true, false} {
		if created, err := f.CreateBlob(t.Context(), "repository.json", []byte{byte(i)}); created != want || err != nil {
			t.Errorf("creation %d: got %v, %v, want %v", i, created, err, want)
		}
	}
	if err := f.PutBlob(t.Context(), "repository.json", []byte("second")); err != nil {
		t.Error(err)
	}
	r, err := f.OpenBlob(t.Context(), "repository.json", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); !bytes.Equal(got, []byte("cond")) || err != nil {
		t.Errorf("it has %q, %v, want cond", got, err)
	}
	left := filepath.Join(f.Path(), "aside", "LEFT")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := f.RemoveUploads(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("remove what is older than an hour: got %d, %v, want none", n, err)
	}
	if n, err := f.RemoveUploads(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("remove all: got %d, %v, want 1", n, err)
	}
}
