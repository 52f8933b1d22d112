package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

const sizeFile = "size"

// fillAged puts n objects of size bytes, each used a minute after the one before, and returns them, the oldest first.
func fillAged(t *testing.T, d *objectstore.Dir, n, size int, first time.Time) []objectstore.Hash {
	t.Helper()
	var hs []objectstore.Hash
	for i := range n {
		h, err := d.PutBytes(t.Context(), fmt.Appendf(nil, "%*d", size, i))
		if err != nil {
			t.Fatal(err)
		}
		at := first.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(objectPath(d, h), at, at); err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	return hs
}

func objectPath(d *objectstore.Dir, h objectstore.Hash) string {
	return filepath.Join(d.Path(), h.String()[:2], h.String()[2:])
}

func left(t *testing.T, d *objectstore.Dir, hs []objectstore.Hash) (there []int) {
	t.Helper()
	for i, h := range hs {
		_, err := d.Stat(t.Context(), h)
		if err == nil {
			there = append(there, i)
		} else if !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatal(err)
		}
	}
	return there
}

func upTo(from, to int) (s []int) {
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

func TestTrim(t *testing.T) {
	ctx := t.Context()
	now := time.Now()
	const kib = 1 << 10
	for _, row := range []struct {
		name  string
		limit int64 // of 100 objects that occupy 8 KiB each
		first int   // first object that stays
	}{
		{"all fit", 800 * kib, 0},
		{"one too many", 799 * kib, 11}, // a tenth is freed
		{"half", 400 * kib, 55},
		{"none fits", 1, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := openDir(t)
			hs := fillAged(t, d, 100, 5000, now.Add(-200*time.Minute))
			if d.Grown() != 800*kib {
				t.Errorf("it has grown by %d, want %d", d.Grown(), 800*kib)
			}
			removed, err := d.Trim(ctx, row.limit, now)
			if err != nil || removed != int64(row.first)*8*kib {
				t.Errorf("got %d bytes removed, %v, want %d objects of 8 KiB", removed, err, row.first)
			}
			if got := left(t, d, hs); !slices.Equal(got, upTo(row.first, 100)) {
				t.Errorf("left: %v, want those from %d on", got, row.first)
			}
			if d.Grown() != 0 {
				t.Errorf("it has grown by %d since", d.Grown())
			}
		})
	}
}

func openDir(t *testing.T) *objectstore.Dir {
	t.Helper()
	d, err := objectstore.OpenDir(filepath.Join(t.TempDir(), "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTrimOneMinute: of objects that were all used in one minute only as many are removed as necessary, rounded up to
// whole shards.
func TestTrimOneMinute(t *testing.T) {
	now := time.Now()
	d := openDir(t)
	const n = 2000
	hs := fillAged(t, d, n, 100, now.Add(-n*time.Minute))
	at := now.Add(-time.Hour)
	for _, h := range hs {
		if err := os.Chtimes(objectPath(d, h), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Trim(t.Context(), n/2*4096, now); err != nil {
		t.Fatal(err)
	}
	if got := len(left(t, d, hs)); got > n/2*9/10 || got < n/2*9/10-30 {
		t.Errorf("%d of %d objects are left, want about %d", got, n, n/2*9/10)
	}
}

// TestTrimCounts: the objects are counted only when necessary.
func TestTrimCounts(t *testing.T) {
	ctx := t.Context()
	now := time.Now()
	d := openDir(t)
	if n, err := d.Trim(ctx, 1, now); n != 0 || err != nil {
		t.Errorf("trim what does not exist: got %d, %v", n, err)
	}
	size := func() string {
		b, err := os.ReadFile(filepath.Join(d.Path(), sizeFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	trim := func(now time.Time, want int64) {
		t.Helper()
		if _, err := d.Trim(ctx, 1<<20, now); err != nil {
			t.Fatal(err)
		}
		if got, want := size(), fmt.Sprintf("%d ", want); !strings.HasPrefix(got, want) {
			t.Errorf("the count is %q, want %q", got, want)
		}
	}
	hs := fillAged(t, d, 10, 100, now.Add(-time.Hour))
	trim(now, 40960)
	// Removals by other means are not noticed, additions are.
	if err := os.Remove(objectPath(d, hs[0])); err != nil {
		t.Fatal(err)
	}
	trim(now.Add(23*time.Hour), 40960)
	if _, err := d.PutBytes(ctx, []byte("more")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PutBytes(ctx, []byte("more")); err != nil { // exists already
		t.Fatal(err)
	}
	trim(now.Add(23*time.Hour), 45056)
	trim(now.Add(25*time.Hour), 40960) // a day later
	for _, doubt := range []string{"", "x", "-1 5", "12", fmt.Sprintf("5 %d\n", now.Add(48*time.Hour).Unix()), strings.Repeat("1", 100)} {
		if err := os.WriteFile(filepath.Join(d.Path(), sizeFile), []byte(doubt), 0o666); err != nil {
			t.Fatal(err)
		}
		trim(now.Add(25*time.Hour), 40960)
	}
	// All ways of adding are counted.
	b := bytes.Repeat([]byte("x"), 1<<20)
	if _, err := d.Put(ctx, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(d.Path()), "f")
	if err := os.WriteFile(path, b[1:], 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Adopt(ctx, suite.Paths{}, path); err != nil {
		t.Fatal(err)
	}
	f, err := d.Insert(ctx, objectstore.Sum(b[2:]), func(f *os.File) error {
		_, err := f.Write(b[2:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := d.Grown(); got != 3<<20 {
		t.Errorf("it has grown by %d, want 3 MiB", got)
	}
}

// TestTrimAbandoned: the files of a killed put are removed, those of a running put are not.
func TestTrimAbandoned(t *testing.T) {
	now := time.Now()
	d := openDir(t)
	fillAged(t, d, 1, 10, now)
	for name, ago := range map[string]time.Duration{"put-old": 25 * time.Hour, "put-new": 23 * time.Hour, "other": 100 * time.Hour} {
		path := filepath.Join(d.Path(), name)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-ago), now.Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Trim(t.Context(), 1<<20, now); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"put-old": false, "put-new": true, "other": true} {
		if _, err := os.Stat(filepath.Join(d.Path(), name)); (err == nil) != stays {
			t.Errorf("%s is there: %v, want %v", name, err == nil, stays)
		}
	}
}

func TestTrimCancelled(t *testing.T) {
	d := openDir(t)
	hs := fillAged(t, d, 10, 10, time.Now().Add(-time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Trim(ctx, 1, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if got := left(t, d, hs); len(got) != 10 {
		t.Errorf("left: %v", got)
	}
	if d.Grown() == 0 {
		t.Error("what was added is forgotten")
	}
}

// TestInsert: only the right bytes get the object's name, and an existing file of another size is replaced.
func TestInsert(t *testing.T) {
	ctx := t.Context()
	d := openDir(t)
	b := bytes.Repeat([]byte("object"), 200_000)
	h := objectstore.Sum(b)
	fault := errors.New("no")
	for name, write := range map[string]func(f *os.File) error{
		"nothing": func(f *os.File) error { return nil },
		"others":  func(f *os.File) error { _, err := f.WriteAt(b[1:], 0); return err },
		"a fault": func(f *os.File) error { f.Write(b); return fault },
	} {
		f, err := d.Insert(ctx, h, write)
		if f != nil || !errors.As(err, new(*objectstore.CorruptError)) && err != fault {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
		if _, err := d.Stat(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s: stat: got %v, want ErrNotFound", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(objectPath(d, h)), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(objectPath(d, h), b[1:], 0o444); err != nil {
		t.Fatal(err)
	}
	f, err := d.Insert(ctx, h, func(f *os.File) error {
		for off := len(b) / 1000 * 1000; off >= 0; off -= 1000 {
			if _, err := f.WriteAt(b[off:min(off+1000, len(b))], int64(off)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := objectstore.HashReader(ctx, f); err != nil || info.Hash != h {
		t.Errorf("the file that it returns: got %v, %v", info, err)
	}
	if err := d.Verify(ctx, h); err != nil {
		t.Error(err)
	}
}
