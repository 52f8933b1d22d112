package objectstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// setFile puts bytes into the file of an object, right or wrong.
func setFile(d *objectstore.Dir) func(objectstore.Hash, []byte) error {
	return func(h objectstore.Hash, b []byte) error {
		path := d.File(h)
		if b == nil {
			return os.RemoveAll(path)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o444)
	}
}

// damageable returns stores with a function that damages them.
func damageable(t *testing.T) map[string]func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
	return map[string]func() (objectstore.Store, func(objectstore.Hash, []byte) error){
		"dir": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			d := newDir(t)
			return d, setFile(d)
		},
		"dir without shared extents": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			d := newDir(t)
			d.ForceNoReflink()
			return d, setFile(d)
		},
		"dir without unnamed files": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			d := newDir(t)
			d.ForceNamed()
			return d, setFile(d)
		},
		"dir that clones": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			d := newDir(t)
			d.FakeReflink()
			return d, setFile(d)
		},
		"wrapped dir": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			d := newDir(t)
			return &objectstoretest.Faulty{Store: d}, setFile(d)
		},
		"mem": func() (objectstore.Store, func(objectstore.Hash, []byte) error) {
			m := new(objectstoretest.Mem)
			return m, func(h objectstore.Hash, b []byte) error {
				if b == nil {
					m.Delete(h)
				} else {
					m.Set(h, b)
				}
				return nil
			}
		},
	}
}

// objects is how many objects each store's tests damage.
func objects() int {
	if testing.Short() {
		return 5
	}
	return 15
}

// Whatever happens to an object's file, no reader returns bytes that do not match the name.
func TestDamage(t *testing.T) {
	suite.WithoutRace(t)
	seed, count := objectstoretest.DamageSeed(), objectstoretest.DamageCount(objects())
	t.Logf("seed %d, %d objects", seed, count)
	for name, open := range damageable(t) {
		t.Run(name, func(t *testing.T) {
			s, set := open()
			d := objectstoretest.Damage{Set: set, Scratch: t.TempDir(), Seed: seed, Count: count}
			if err := d.Run(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever happens to an object's file, a successful put leaves the right bytes.
func TestPutOverDamage(t *testing.T) {
	suite.WithoutRace(t)
	seed, count := objectstoretest.DamageSeed(), objectstoretest.DamageCount(objects())
	t.Logf("seed %d, %d objects", seed, count)
	for name, open := range damageable(t) {
		t.Run(name, func(t *testing.T) {
			s, set := open()
			d := objectstoretest.Damage{Set: set, Scratch: t.TempDir(), Seed: seed, Count: count}
			if err := d.RunPuts(t.Context(), s, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A checked file is cloned without another read until it changes, even if the change is in place and keeps size and
// modification time.
func TestChangeAfterCheck(t *testing.T) {
	seed := objectstoretest.DamageSeed()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	d := newDir(t)
	d.FakeReflink()
	dir := t.TempDir()
	out := func(i int, h objectstore.Hash) error {
		return d.Materialize(t.Context(), h, suite.Paths{}, filepath.Join(dir, fmt.Sprint(h, i)), 0o644)
	}
	for i := range objectstoretest.DamageCount(10) {
		b := bytes.Repeat([]byte{byte(i), byte(r.Uint32())}, objectstore.ChunkSize)
		h := put(t, d, b)
		if i%2 == 0 { // otherwise it changes directly after the check
			for n, deadline := 0, time.Now().Add(suite.Stuck); !d.Knows(h); n++ {
				if err := out(n, h); err != nil {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatal("it is never known to be whole")
				}
			}
		}
		if err := out(-1, h); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(d.File(h))
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(b)
		bad[r.IntN(len(bad))] ^= 1
		if err := errors.Join(os.Chmod(d.File(h), 0o644), os.WriteFile(d.File(h), bad, 0), os.Chtimes(d.File(h), time.Time{}, fi.ModTime())); err != nil {
			t.Fatal(err)
		}
		var corrupt *objectstore.CorruptError
		if err := out(-2, h); !errors.As(err, &corrupt) || corrupt.Want != h {
			t.Errorf("seed %d, object %d: got %v, want *CorruptError", seed, i, err)
		}
	}
}

// Sending a file fails if its content changes meanwhile, whatever the stat shows; a new time alone is no change.
func TestSentWhileChanged(t *testing.T) {
	d := newDir(t)
	for name, change := range map[string]func(path string) error{
		"dated":   func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)) },
		"changed": func(path string) error { return errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte("x"), 0)) },
	} {
		b := bytes.Repeat([]byte(name), objectstore.ChunkSize)
		k, err := d.KeepStream(t.Context(), bytes.NewReader(b))
		if err != nil || k.File == nil {
			t.Skipf("needs files without names (%v): run it on Linux, on ext4, xfs or tmpfs", err)
		}
		defer k.Close()
		r := k.ReaderAt()
		got := make([]byte, 1000)
		if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, b[:1000]) {
			t.Fatalf("%s: before: %v", name, err)
		}
		if err := change(d.File(k.Hash)); err != nil {
			t.Fatal(err)
		}
		_, err = r.ReadAt(got, 1000)
		var corrupt *objectstore.CorruptError
		if isCorrupt := errors.As(err, &corrupt); isCorrupt != (name == "changed") || !isCorrupt && err != nil {
			t.Errorf("%s: after: got %v", name, err)
		}
	}
}

// Several sessions put the same bytes over a damaged object, while other goroutines read it, discard it and collect old
// objects. No reader gets wrong bytes, no put fails, the last put can be read, and an intact object never becomes
// damaged.
func TestManyPutOverDamage(t *testing.T) {
	base := t.TempDir()
	open := func() *objectstore.Dir {
		d, err := objectstore.OpenDir(base, objectstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seed := objectstoretest.DamageSeed()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for round := range objectstoretest.DamageCount(20) {
		b := bytes.Repeat([]byte{byte(round), byte(r.Uint32())}, []int{10, 50_000, objectstore.ChunkSize}[round%3])
		first := open()
		h := put(t, first, b)
		what, bad := objectstoretest.Spoil(r, b)
		if err := setFile(first)(h, bad); err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		for i := range 4 {
			d := open()
			g.Go(func() error {
				for range 3 {
					if _, err := d.Put(t.Context(), bytes.NewReader(b)); err != nil {
						return err
					}
					if got, err := objectstore.ReadAll(t.Context(), d, h, 1<<30); err != nil || !bytes.Equal(got, b) {
						return fmt.Errorf("after its put: %d bytes, %w", len(got), err)
					}
				}
				return nil
			})
			g.Go(func() error {
				got, err := objectstore.ReadAll(t.Context(), d, h, 1<<30)
				if err == nil && !bytes.Equal(got, b) {
					return fmt.Errorf("a reader got %d wrong bytes", len(got))
				}
				if i%2 == 0 {
					return nil
				}
				_, err = objectstore.Discard(t.Context(), d, h)
				return err
			})
			g.Go(func() error {
				_, err := d.DeleteBefore(t.Context(), h, time.Now().Add(-time.Hour))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("seed %d, round %d, %d bytes, %s: %v", seed, round, len(b), what, err)
		}
		checkAll(t, first)
	}
}

// A large object that was compared is not read again until its file changes, whatever the change and its time are.
func TestPutComparesOnce(t *testing.T) {
	d := newDir(t)
	b := bytes.Repeat([]byte("e3"), objectstore.ChunkSize)
	h := put(t, d, b)
	for deadline := time.Now().Add(suite.Stuck); !d.Knows(h); put(t, d, b) {
		if time.Now().After(deadline) {
			t.Fatal("it is never known to be whole")
		}
	}
	fi, err := os.Stat(d.File(h))
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(b)
	bad[len(bad)/3] ^= 1
	if err := errors.Join(os.Chmod(d.File(h), 0o644), os.WriteFile(d.File(h), bad, 0), os.Chtimes(d.File(h), time.Time{}, fi.ModTime())); err != nil {
		t.Fatal(err)
	}
	put(t, d, b)
	checkAll(t, d)
}
