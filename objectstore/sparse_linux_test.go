package objectstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

// A part of a sparse file: length bytes of data from at.
type part struct{ at, length int64 }

// sparse makes a file with the parts and holes between them.
func sparse(t testing.TB, path string, size int64, parts ...part) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, p := range parts {
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, int(p.length)), p.at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// occupies returns how many bytes of the disk a file takes.
func occupies(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestSparseFiles(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size  int64
		parts []part
	}{
		"nothing but a hole": {9 * mib, nil},
		"a hole first":       {9*mib + 5, []part{{8 * mib, mib + 5}}},
		"a hole last":        {9*mib + 5, []part{{0, mib}}},
		"holes between":      {9 * mib, []part{{0, 10}, {3*mib + 100, 70_000}, {9*mib - 1, 1}}},
		"no hole":            {2*mib + 1, []part{{0, 2*mib + 1}}},
		"islands":            {20 * mib, islands(20*mib, 50)},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			path := filepath.Join(base, "file")
			sparse(t, path, c.size, c.parts...)
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			h := objectstore.Sum(want)
			for _, how := range []string{"file", "stream", "adopted"} {
				d := newDirIn(t, t.TempDir())
				switch how {
				case "file":
					putPath(t, d, path)
				case "stream":
					if _, err := d.Put(t.Context(), bytes.NewReader(want)); err != nil {
						t.Fatal(err)
					}
				case "adopted":
					again := filepath.Join(base, "again")
					sparse(t, again, c.size, c.parts...)
					if _, err := d.Adopt(t.Context(), suite.Paths{}, again); err != nil {
						t.Fatal(err)
					}
				}
				same(t, how, d.File(h), path, want)
				// The first copy checks the bytes, and a later one may know them.
				for i := range 2 {
					out := filepath.Join(base, fmt.Sprint("out-", how, i))
					if err := d.Materialize(t.Context(), h, suite.Paths{}, out, 0o666); err != nil {
						t.Fatal(err)
					}
					same(t, fmt.Sprint(how, ", copy ", i), out, path, want)
				}
			}
		})
	}
}

// islands are n small parts in a file.
func islands(size int64, n int) []part {
	r := rand.New(rand.NewPCG(1, 2))
	parts := make([]part, n)
	for i := range parts {
		parts[i] = part{r.Int64N(size - 10_000), 1 + r.Int64N(9_999)}
	}
	return parts
}

// same checks that a file has the bytes, and takes no more of the disk than its model and the granularity allow.
func same(t *testing.T, what, path, model string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: other bytes (%d of %d)", what, len(got), len(want))
	}
	blocks := occupies(t, model)
	if takes := occupies(t, path); takes > 33*blocks+(128<<10) || blocks == 0 && takes > 0 {
		t.Errorf("%s takes %d bytes of the disk, its model %d", what, takes, blocks)
	}
}

func putPath(t testing.TB, d *objectstore.Dir, path string) objectstore.Hash {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := d.PutFile(t.Context(), f, objectstore.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info.Hash
}

// A large object that was just stored is known: its copies need no look at the bytes. Once it changes, it is not.
func TestLargeObjectIsVouchedFor(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	const size = objectstore.VouchedFrom + 1
	path := filepath.Join(base, "file")
	for _, how := range []string{"put", "adopted"} {
		sparse(t, path, size, part{5, 10})
		d := newDirIn(t, t.TempDir())
		d.ForceNoReflink()
		var h objectstore.Hash
		if how == "put" {
			h = putPath(t, d, path)
		} else {
			info, err := d.Adopt(t.Context(), suite.Paths{}, path)
			if err != nil {
				t.Fatal(err)
			}
			h = info.Hash
		}
		if !d.Knows(h) {
			t.Fatalf("%s: the object is not known", how)
		}
		if err := d.Materialize(t.Context(), h, suite.Paths{}, filepath.Join(base, how), 0o666); err != nil {
			t.Fatal(err)
		}

		// A change that keeps the size and the modification time.
		fi, err := os.Stat(d.File(h))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.File(h), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(d.File(h), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{1}, size/2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), os.Chtimes(d.File(h), fi.ModTime(), fi.ModTime()), os.Chmod(d.File(h), fi.Mode())); err != nil {
			t.Fatal(err)
		}
		var corrupt *objectstore.CorruptError
		err = d.Materialize(t.Context(), h, suite.Paths{}, filepath.Join(base, how+"2"), 0o666)
		if !errors.As(err, &corrupt) {
			t.Errorf("%s: a changed object was written out: %v", how, err)
		}
	}
}

// Write-back begins while a large object is made. That changes nothing about it, and does not keep it from being known.
func TestLargeObjectOfData(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	content := make([]byte, objectstore.VouchedFrom+(1<<20)+7)
	rand.NewChaCha8([32]byte{1}).Read(content)
	d := newDirIn(t, base)
	d.ForceNoReflink()
	info, err := d.Put(t.Context(), bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if info.Hash != objectstore.Sum(content) || !d.Knows(info.Hash) {
		t.Errorf("got %v, known: %v; want the hash of the content, known", info.Hash, d.Knows(info.Hash))
	}
	out := filepath.Join(base, "out")
	if err := d.Materialize(t.Context(), info.Hash, suite.Paths{}, out, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{d.File(info.Hash), out} {
		if !objectstore.Holds(t.Context(), suite.Paths{}, path, info.Hash) {
			t.Errorf("%s has other bytes", path)
		}
	}
}

// Where the kernel copies nothing, the copy of a known object goes through memory, and is the same.
func TestCopyThroughMemory(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "file")
	sparse(t, path, 9<<20, part{1 << 20, 3 << 20}, part{7 << 20, 1})
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	out, err := os.Create(filepath.Join(base, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := objectstore.CopyThrough(t.Context(), out, src, 9<<20); err != nil {
		t.Fatal(err)
	}
	same(t, "the copy", out.Name(), path, want)
	if err := objectstore.CopyThrough(t.Context(), out, src, 10<<20); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that ends early: %v", err)
	}
}
