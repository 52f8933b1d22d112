package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

func put(t testing.TB, d *objectstore.Dir, b []byte) objectstore.Hash {
	t.Helper()
	h, err := d.PutBytes(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// spoil overwrites an object's file.
func spoil(t testing.TB, d *objectstore.Dir, h objectstore.Hash, b []byte) {
	t.Helper()
	if err := errors.Join(os.Chmod(d.File(h), 0o644), os.WriteFile(d.File(h), b, 0o644), os.Chmod(d.File(h), 0o444)); err != nil {
		t.Fatal(err)
	}
}

func TestDirLayout(t *testing.T) {
	d := newDir(t)
	h := put(t, d, []byte("abc"))
	want := filepath.Join(d.Path(), "ba", "7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
	b, err := os.ReadFile(want)
	if err != nil || string(b) != "abc" {
		t.Errorf("%s: got %q, %v, want abc", want, b, err)
	}
	if size, err := d.Stat(t.Context(), h); err != nil || size != 3 {
		t.Errorf("Stat = %d, %v, want 3", size, err)
	}
	if _, err := d.Stat(t.Context(), objectstore.Hash{}); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of an absent object: got %v, want ErrNotFound", err)
	}
	checkAll(t, d)
}

func TestOpenDirIsLazy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objects")
	asked := 0
	d, err := objectstore.OpenDir(path, objectstore.Options{Session: func() (string, time.Time, error) {
		if asked++; asked == 1 {
			return "", time.Time{}, errors.New("no session")
		}
		return filepath.Dir(path), time.Now(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenFile(objectstore.Hash{}); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("OpenFile in an empty store: got %v, want ErrNotFound", err)
	}
	if missing, err := d.Missing(t.Context(), []objectstore.Hash{{1}, {2}}); err != nil || len(missing) != 2 {
		t.Errorf("Missing in an empty store: got %v, %v", missing, err)
	}
	if times, err := d.ShardTimes(); err != nil || times != [256]int64{} {
		t.Errorf("ShardTimes of an empty store: got %v, %v", times, err)
	}
	for range d.Walk(t.Context()) {
		t.Error("Walk found something in an empty store")
	}
	if deleted, err := d.DeleteBefore(t.Context(), objectstore.Hash{}, time.Now()); err != nil || deleted {
		t.Errorf("DeleteBefore in an empty store: got %v, %v", deleted, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || asked != 0 {
		t.Errorf("reading made the store (%v) or asked for scratch %d times", err, asked)
	}
	if _, err := d.PutBytes(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no session") {
		t.Errorf("put without scratch: got %v", err)
	}
	put(t, d, nil)
	put(t, d, []byte("x"))
	if asked != 2 {
		t.Errorf("scratch was asked for %d times, want 2", asked)
	}
}

// Whatever is in the place of the store's folder, or of a shard, is named, and nothing behind it is touched.
func TestForeignInTheWay(t *testing.T) {
	h := objectstore.Sum([]byte("x"))
	for _, deep := range []bool{false, true} {
		for kind, make := range map[string]func(path, outside string) error{
			"link": func(path, outside string) error { return os.Symlink(outside, path) },
			"file": func(path, _ string) error { return os.WriteFile(path, nil, 0o666) },
		} {
			t.Run(fmt.Sprint(kind, deep), func(t *testing.T) {
				base, outside := t.TempDir(), t.TempDir()
				at, canary := filepath.Join(base, "objects"), filepath.Join(outside, h.String()[:2], h.String()[2:])
				if deep {
					at, canary = filepath.Join(at, h.String()[:2]), filepath.Join(outside, h.String()[2:])
				}
				old := time.Now().Add(-time.Hour)
				err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.MkdirAll(filepath.Dir(canary), 0o777), os.WriteFile(canary, []byte("secret"), 0o666), os.Chtimes(canary, old, old), make(at, outside))
				if err != nil {
					t.Fatal(err)
				}
				d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				_, opened := d.Open(t.Context(), h)
				_, put := d.PutBytes(t.Context(), []byte("x"))
				_, refreshed := d.Refresh(t.Context(), h)
				_, deleted := d.DeleteBefore(t.Context(), h, time.Now())
				swept := d.SweepShard(t.Context(), h[0], time.Now(), func(objectstore.Hash) bool { return false }, func(objectstore.Entry) {})
				var walked error
				for _, err := range d.WalkShard(t.Context(), h[0]) {
					walked = err
				}
				for what, err := range map[string]error{"open": opened, "put": put, "refresh": refreshed, "delete": deleted, "sweep": swept, "walk": walked} {
					if !errors.Is(err, objectstore.ErrForeign) || !strings.Contains(err.Error(), at+": it is a ") {
						if kind == "file" && (what == "delete" || what == "refresh") && err != nil {
							continue
						}
						t.Errorf("%s: got %v, want ErrForeign at %s", what, err, at)
					}
				}
				info, err := os.Lstat(canary)
				if err != nil || info.Size() != 6 || !info.ModTime().Equal(old) {
					t.Errorf("what lies outside: %v, %v", info, err)
				}
			})
		}
	}
}

func TestDeleteBefore(t *testing.T) {
	d := newDir(t)
	h := put(t, d, []byte("x"))
	old := time.Now().Add(-5 * time.Hour)
	os.Chtimes(d.File(h), old, old)
	if deleted, err := d.DeleteBefore(t.Context(), h, old.Add(-time.Second)); err != nil || deleted {
		t.Errorf("younger than the cutoff: got %v, %v, want it kept", deleted, err)
	}
	put(t, d, []byte("x"))
	if deleted, err := d.DeleteBefore(t.Context(), h, old.Add(time.Second)); err != nil || deleted {
		t.Errorf("refreshed: got %v, %v, want it kept", deleted, err)
	}
	os.Chtimes(d.File(h), old, old)
	if deleted, err := d.DeleteBefore(t.Context(), h, old.Add(time.Second)); err != nil || !deleted {
		t.Errorf("old: got %v, %v, want it deleted", deleted, err)
	}
	if err := d.Delete(t.Context(), h); err != nil {
		t.Errorf("delete of an absent object: %v", err)
	}
	put(t, d, []byte("x"))
	if err := d.Delete(t.Context(), h); err != nil {
		t.Error(err)
	}
	if _, err := d.Stat(t.Context(), h); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
}

// The next put repairs an object that lost its end with the power.
func TestPutReplacesTruncated(t *testing.T) {
	for name, named := range map[string]bool{"unnamed": false, "named": true} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			if named {
				d.ForceNamed()
			}
			small, large := []byte("small object"), bytes.Repeat([]byte("large "), 200_000)
			hashes := []objectstore.Hash{put(t, d, small), put(t, d, large)}
			for _, h := range hashes {
				spoil(t, d, h, nil)
			}
			put(t, d, small)
			if _, err := d.Put(t.Context(), bytes.NewReader(large)); err != nil {
				t.Fatal(err)
			}
			if n := checkAll(t, d); n != 2 {
				t.Errorf("got %d objects, want 2", n)
			}
		})
	}
}

func TestCorruptObject(t *testing.T) {
	d := newDir(t)
	for _, b := range [][]byte{[]byte("some bytes"), bytes.Repeat([]byte{7}, 2<<20)} {
		h := put(t, d, b)
		if err := d.Verify(t.Context(), h); err != nil {
			t.Error(err)
		}
		bad := slices.Clone(b)
		bad[len(bad)/2] ^= 1
		spoil(t, d, h, bad)
		var corrupt *objectstore.CorruptError
		if err := d.Verify(t.Context(), h); !errors.As(err, &corrupt) || *corrupt != (objectstore.CorruptError{Want: h, Got: objectstore.Sum(bad), Size: int64(len(bad))}) {
			t.Errorf("Verify: got %v, want a *CorruptError", err)
		}
		if _, err := objectstore.ReadAll(t.Context(), d, h, 1<<30); !errors.As(err, &corrupt) {
			t.Errorf("ReadAll: got %v, want a *CorruptError", err)
		}
	}
}

func TestWalk(t *testing.T) {
	d := newDir(t)
	var want []objectstore.Hash
	for i := range 600 {
		want = append(want, put(t, d, []byte{byte(i), byte(i >> 8)}))
	}
	slices.SortFunc(want, objectstore.Hash.Compare)
	for _, junk := range []string{"00", "zz", "put-1"} {
		os.Mkdir(filepath.Join(d.Path(), junk), 0o777)
		os.WriteFile(filepath.Join(d.Path(), junk, "junk"), nil, 0o666)
	}
	os.Mkdir(filepath.Join(d.Path(), "00", strings.Repeat("0", 62)), 0o777)
	var got []objectstore.Hash
	for e, err := range d.Walk(t.Context()) {
		if err != nil || e.Size != 2 || time.Since(e.Time) > time.Minute {
			t.Errorf("got %+v, %v", e, err)
		}
		got = append(got, e.Hash)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d objects, want %d in order", len(got), len(want))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range d.Walk(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled walk: got %v", err)
		}
	}
	for range d.Walk(t.Context()) {
		break // must not go on
	}
}

func TestShardTimes(t *testing.T) {
	d := newDir(t)
	h := put(t, d, []byte("x"))
	past := time.Unix(1_000_000, 5000)
	shard := filepath.Dir(d.File(h))
	os.Chtimes(shard, past, past)
	times, err := d.ShardTimes()
	if err != nil || times[h[0]] != past.UnixNano() || times[h[0]^1] != 0 {
		t.Errorf("got %d, %d, %v, want %d, 0", times[h[0]], times[h[0]^1], err, past.UnixNano())
	}
	put(t, d, []byte("x")) // there already
	if times, _ := d.ShardTimes(); times[h[0]] != past.UnixNano() {
		t.Error("putting an object that is there changed its shard")
	}
	if err := d.Delete(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if times, _ := d.ShardTimes(); times[h[0]] == past.UnixNano() {
		t.Error("deleting an object did not change its shard")
	}
}

func TestUmask(t *testing.T) {
	// The umask belongs to the process, so use another process.
	base := t.TempDir()
	runChild(t, "put", base, "E3_UMASK=077").Wait()
	d := newDirIn(t, base)
	if n := checkAll(t, d); n == 0 {
		t.Error("the child stored nothing")
	}
}

func TestMaterialize(t *testing.T) {
	d := newDir(t)
	for _, size := range []int{0, 1, 4096, objectstore.ChunkSize, objectstore.ChunkSize + 1, 5 << 20} {
		b := bytes.Repeat([]byte("e3"), size/2+1)[:size]
		h := put(t, d, b)
		dst := filepath.Join(t.TempDir(), "out")
		if err := d.Materialize(t.Context(), h, suite.Paths{}, dst, 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(dst)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
		}
		fi, _ := os.Lstat(dst)
		object, _ := os.Lstat(d.File(h))
		if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o100 == 0 || os.SameFile(fi, object) {
			t.Errorf("got %v, want an executable file of its own", fi.Mode())
		}
		if err := os.WriteFile(dst, []byte("changed"), 0o666); err != nil {
			t.Error(err)
		}
		if err := d.Verify(t.Context(), h); err != nil {
			t.Error(err)
		}
		if err := d.Materialize(t.Context(), h, suite.Paths{}, dst, 0o644); !errors.Is(err, fs.ErrExist) {
			t.Errorf("onto a file: got %v, want fs.ErrExist", err)
		}
		if got, _ := os.ReadFile(dst); string(got) != "changed" {
			t.Errorf("the file in the way is now %.20q", got)
		}
	}
	dst := filepath.Join(t.TempDir(), "out")
	if err := d.Materialize(t.Context(), objectstore.Hash{}, suite.Paths{}, dst, 0o644); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("absent object: got %v, want ErrNotFound", err)
	}
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent object: the file was made: %v", err)
	}
}
