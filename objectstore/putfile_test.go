package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// hookContext calls hook at the n-th call of Err. The store calls Err before each chunk of a transfer, so a test can
// act in the middle of one.
type hookContext struct {
	context.Context
	n    int
	hook func()
}

func (c *hookContext) Err() error {
	if c.n--; c.n == 0 {
		c.hook()
	}
	return c.Context.Err()
}

// writeFile makes a file of size bytes that depend on seed.
func writeFile(t testing.TB, path string, seed byte, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	for i := range b {
		b[i] = seed + byte(i>>3)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestPutFile(t *testing.T) {
	stores := map[string]objectstore.Store{"dir": newDir(t), "mem": new(objectstoretest.Mem)}
	for name, s := range stores {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 4096, objectstore.ChunkSize, objectstore.ChunkSize + 1, 3 << 20} {
				for _, probe := range []bool{false, true} {
					path := filepath.Join(t.TempDir(), "in")
					b := writeFile(t, path, 5, size)
					f := openFile(t, path)
					f.Seek(int64(size/2), 0) // the position must not matter
					want := objectstore.Info{Hash: objectstore.Sum(b), Size: int64(size)}
					for range 2 {
						got, err := objectstore.PutFile(t.Context(), s, f, objectstore.FileOptions{Probe: probe})
						if err != nil || got != want {
							t.Errorf("%d bytes, probe %v: got %v, %v, want %v", size, probe, got, err, want)
						}
					}
					if got, err := objectstore.ReadAll(t.Context(), s, want.Hash, 1<<30); err != nil || !bytes.Equal(got, b) {
						t.Errorf("%d bytes: read back %d, %v", size, len(got), err)
					}
				}
			}
		})
	}
	checkAll(t, stores["dir"].(*objectstore.Dir))
}

func TestPutFileNotRegular(t *testing.T) {
	dir := openFile(t, t.TempDir())
	var special *objectstore.SpecialFileError
	for name, s := range map[string]objectstore.Store{"dir": newDir(t), "mem": new(objectstoretest.Mem)} {
		if _, err := objectstore.PutFile(t.Context(), s, dir, objectstore.FileOptions{}); !errors.As(err, &special) || special.Path != dir.Name() {
			t.Errorf("%s: got %v, want *SpecialFileError for %s", name, err, dir.Name())
		}
	}
}

func TestPutFileThatChanges(t *testing.T) {
	changes := map[string]func(path string) error{
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("more")
			return errors.Join(err, f.Close())
		},
		"shrinks": func(path string) error { return os.Truncate(path, 100) },
		"same size": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("other"), 10)
			return errors.Join(err, f.Close())
		},
		"same size, time set back": func(path string) error {
			fi, err := os.Stat(path)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("other"), 10)
			return errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, fi.ModTime()))
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			for _, probe := range []bool{false, true} {
				d := newDir(t)
				path := filepath.Join(t.TempDir(), "in")
				writeFile(t, path, 9, 3<<20)
				old := time.Now().Add(-time.Hour)
				os.Chtimes(path, old, old)
				ctx := &hookContext{t.Context(), 4, func() {
					if err := change(path); err != nil {
						t.Error(err)
					}
				}}
				_, err := d.PutFile(ctx, openFile(t, path), objectstore.FileOptions{Probe: probe})
				var changed *objectstore.ChangedError
				if !errors.As(err, &changed) || changed.Path != path {
					t.Errorf("probe %v: got %v, want *ChangedError for %s", probe, err, path)
				}
				checkAll(t, d) // every stored object has its right name
			}
		})
	}
}

func TestPutFileCancelled(t *testing.T) {
	d := newDir(t)
	path := filepath.Join(t.TempDir(), "in")
	writeFile(t, path, 9, 3<<20)
	ctx, cancel := context.WithCancel(t.Context())
	hook := &hookContext{ctx, 4, cancel}
	if _, err := d.PutFile(hook, openFile(t, path), objectstore.FileOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if n := checkAll(t, d); n != 0 {
		t.Errorf("got %d objects, want none", n)
	}
}
