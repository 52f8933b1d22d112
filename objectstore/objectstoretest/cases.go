// Package objectstoretest holds the promises of every objectstore.Store, as cases that any program can run (it does not
// import testing). It also has a store in memory, and a store that fails on demand.
package objectstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing/iotest"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// A Case is one promise of objectstore.Store.
type Case struct {
	Name string
	// Run returns nil if s keeps the promise. s must be fresh or at least hold nothing of earlier runs with the same
	// seed.
	Run func(ctx context.Context, s objectstore.Store) error
}

// Cases returns all promises.
func Cases() []Case {
	return []Case{
		{"put returns name and size and open returns the bytes", putOpen},
		{"put bytes and read all", putBytesReadAll},
		{"putting again succeeds", putTwice},
		{"a reader that fails stores nothing", putFailing},
		{"an absent object is not found", notFound},
		{"missing returns each absent object once and in order", missing},
		{"a read limit holds", readLimit},
		{"a cancelled context is refused", cancelled},
		{"many put the same and different objects at the same time", concurrent},
		{"an object is read while it is put again", readWhilePut},
		{"copy checks what it wrote", copyOut},
		{"trees are stored and looked up", trees},
	}
}

// sizes are near the limits at which implementations change their method.
var sizes = []int{0, 1, 31, 4096, 64 << 10, 512<<10 - 1, 512 << 10, 512<<10 + 1, 1 << 20, 3<<20 + 7}

// random returns n bytes that depend on seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), 0xe3}).Read(b)
	return b
}

func putOpen(ctx context.Context, s objectstore.Store) error {
	for _, size := range sizes {
		b := random(1, size)
		// Readers may return little at a time, and data together with io.EOF.
		for name, r := range map[string]io.Reader{
			"whole":  bytes.NewReader(b),
			"halves": iotest.HalfReader(bytes.NewReader(b)),
			"eof":    iotest.DataErrReader(bytes.NewReader(b)),
		} {
			info, err := s.Put(ctx, r)
			if err != nil {
				return fmt.Errorf("put %d bytes (%s): %w", size, name, err)
			}
			if want := (objectstore.Info{Hash: objectstore.Sum(b), Size: int64(size)}); info != want {
				return fmt.Errorf("put %d bytes (%s): got %v, want %v", size, name, info, want)
			}
		}
		if err := expect(ctx, s, b); err != nil {
			return err
		}
	}
	return nil
}

// expect opens the object of b and compares it.
func expect(ctx context.Context, s objectstore.Store, b []byte) error {
	h := objectstore.Sum(b)
	r, err := s.Open(ctx, h)
	if err != nil {
		return fmt.Errorf("open an object of %d bytes: %w", len(b), err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read an object of %d bytes: %w", len(b), err)
	}
	if !bytes.Equal(got, b) {
		return fmt.Errorf("object %s: got %d bytes that hash to %s, want %d", h, len(got), objectstore.Sum(got), len(b))
	}
	return nil
}

func putBytesReadAll(ctx context.Context, s objectstore.Store) error {
	for _, size := range sizes {
		b := random(2, size)
		h, err := objectstore.PutBytes(ctx, s, b)
		if err != nil {
			return fmt.Errorf("put %d bytes: %w", size, err)
		}
		if want := objectstore.Sum(b); h != want {
			return fmt.Errorf("put %d bytes: got %s, want %s", size, h, want)
		}
		got, err := objectstore.ReadAll(ctx, s, h, int64(size))
		if err != nil {
			return fmt.Errorf("read %d bytes: %w", size, err)
		}
		if !bytes.Equal(got, b) {
			return fmt.Errorf("read %d bytes: got %d others", size, len(got))
		}
	}
	return nil
}

func putTwice(ctx context.Context, s objectstore.Store) error {
	b := random(3, 100_000)
	for range 3 {
		if _, err := s.Put(ctx, bytes.NewReader(b)); err != nil {
			return err
		}
		if _, err := objectstore.PutBytes(ctx, s, b); err != nil {
			return err
		}
	}
	return expect(ctx, s, b)
}

func putFailing(ctx context.Context, s objectstore.Store) error {
	fault := errors.New("the reader failed")
	for _, size := range sizes {
		b := random(4, size)
		_, err := s.Put(ctx, io.MultiReader(bytes.NewReader(b), iotest.ErrReader(fault)))
		if !errors.Is(err, fault) {
			return fmt.Errorf("put from a reader that fails after %d bytes: got %v, want %v", size, err, fault)
		}
		h := objectstore.Sum(b)
		if absent, err := s.Missing(ctx, []objectstore.Hash{h}); err != nil || len(absent) != 1 {
			return fmt.Errorf("the %d bytes before the fault: missing = %v, %v, want them absent", size, absent, err)
		}
	}
	return nil
}

func notFound(ctx context.Context, s objectstore.Store) error {
	h := objectstore.Sum(random(5, 10))
	if r, err := s.Open(ctx, h); !errors.Is(err, objectstore.ErrNotFound) || r != nil {
		return fmt.Errorf("open an absent object: got %v, %v, want nil, ErrNotFound", r, err)
	}
	if _, err := objectstore.ReadAll(ctx, s, h, 10); !errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("read an absent object: got %v, want ErrNotFound", err)
	}
	return nil
}

func missing(ctx context.Context, s objectstore.Store) error {
	var ask, want []objectstore.Hash
	for i := range 1500 {
		b := random(uint64(i)+6000, 20)
		h := objectstore.Sum(b)
		ask = append(ask, h)
		if i%5 == 0 {
			if _, err := objectstore.PutBytes(ctx, s, b); err != nil {
				return err
			}
		} else {
			want = append(want, h)
		}
	}
	got, err := s.Missing(ctx, append(ask, ask[:100]...))
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("missing returned %d objects, want the %d absent ones in order", len(got), len(want))
	}
	if got, err := s.Missing(ctx, nil); err != nil || len(got) != 0 {
		return fmt.Errorf("missing of nothing: got %v, %v", got, err)
	}
	return nil
}

func readLimit(ctx context.Context, s objectstore.Store) error {
	b := random(7, 1000)
	h, err := objectstore.PutBytes(ctx, s, b)
	if err != nil {
		return err
	}
	var large *objectstore.TooLargeError
	if _, err := objectstore.ReadAll(ctx, s, h, 999); !errors.As(err, &large) {
		return fmt.Errorf("read 1000 bytes with limit 999: got %v, want *TooLargeError", err)
	}
	if _, err := objectstore.ReadAll(ctx, s, h, 1<<63-1); err != nil {
		return fmt.Errorf("read 1000 bytes with the largest limit: %w", err)
	}
	return nil
}

func cancelled(ctx context.Context, s objectstore.Store) error {
	b := random(8, 1000)
	h, err := objectstore.PutBytes(ctx, s, b)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Put(ctx, bytes.NewReader(b)); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("put: got %v, want context.Canceled", err)
	}
	if _, err := s.Open(ctx, h); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("open: got %v, want context.Canceled", err)
	}
	if _, err := s.Missing(ctx, []objectstore.Hash{h}); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("missing: got %v, want context.Canceled", err)
	}
	return nil
}

func concurrent(ctx context.Context, s objectstore.Store) error {
	var g errgroup.Group
	for worker := range 16 {
		g.Go(func() error {
			for i := range 40 {
				seed, size := uint64(9000+i), 100*i // the same for all workers
				if i%2 == 1 {
					seed += uint64(worker) * 100 // different for each worker
				}
				if i%20 == 7 {
					size = 600 << 10
				}
				b := random(seed, size)
				info, err := s.Put(ctx, bytes.NewReader(b))
				if err != nil {
					return err
				}
				if info.Hash != objectstore.Sum(b) {
					return fmt.Errorf("put of %d bytes returned %s, want %s", size, info.Hash, objectstore.Sum(b))
				}
				if err := expect(ctx, s, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func readWhilePut(ctx context.Context, s objectstore.Store) error {
	b := random(10, 1<<20)
	if _, err := objectstore.PutBytes(ctx, s, b); err != nil {
		return err
	}
	r, err := s.Open(ctx, objectstore.Sum(b))
	if err != nil {
		return err
	}
	defer r.Close()
	head := make([]byte, 1000)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	if _, err := s.Put(ctx, bytes.NewReader(b)); err != nil {
		return err
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(append(head, rest...), b) {
		return errors.New("the bytes changed under a reader")
	}
	return nil
}

func copyOut(ctx context.Context, s objectstore.Store) error {
	for _, size := range sizes {
		b := random(11, size)
		h, err := objectstore.PutBytes(ctx, s, b)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		n, err := objectstore.Copy(ctx, &out, s, h)
		if err != nil || n != int64(size) || !bytes.Equal(out.Bytes(), b) {
			return fmt.Errorf("copy %d bytes: got %d, %v", size, n, err)
		}
	}
	return nil
}

func trees(ctx context.Context, s objectstore.Store) error {
	file, err := objectstore.PutBytes(ctx, s, []byte("content"))
	if err != nil {
		return err
	}
	want := tree.Entry{Name: "f", Kind: tree.KindFile, Hash: file, Size: 7}
	h := objectstore.Hash{}
	for _, t := range []tree.Entries{
		{want},
		{{Name: "empty", Kind: tree.KindLink, Target: "sub"}, {Name: "sub", Kind: tree.KindDir}},
	} {
		for i := range t {
			if t[i].Kind == tree.KindDir {
				t[i].Hash = h
			}
		}
		b, err := tree.Encode(t)
		if err != nil {
			return err
		}
		if h, err = objectstore.PutBytes(ctx, s, b); err != nil {
			return err
		}
	}
	got, err := tree.Lookup(ctx, s, h, "sub/f")
	if err != nil || got != want {
		return fmt.Errorf("lookup: got %+v, %v, want %+v", got, err, want)
	}
	return nil
}
