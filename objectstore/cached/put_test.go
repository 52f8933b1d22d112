package cached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/tree"
)

func TestOpenNeeds(t *testing.T) {
	local, err := objectstore.OpenDir(t.TempDir(), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]cached.Options{
		"no cache":  {Remote: newFar(), Guard: newPact().begin()},
		"no remote": {Local: local, Guard: newPact().begin()},
		"no guard":  {Local: local, Remote: newFar()},
	} {
		if _, err := cached.Open(o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestRequests lists the requests of puts.
func TestRequests(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	little, large := random(1, 1000), random(2, 1<<20)
	h := mustPut(t, s, little)
	expectCalls(t, far, call("put", h))
	mustPut(t, s, little)
	expectCalls(t, far) // known
	if ok, err := s.Refresh(ctx, h); !ok || err != nil {
		t.Errorf("refresh: got %v, %v, want true", ok, err)
	}
	if missing, err := s.Missing(ctx, []objectstore.Hash{h}); err != nil || len(missing) > 0 {
		t.Errorf("missing: got %v, %v", missing, err)
	}
	if n, err := s.Stat(ctx, h); err != nil || n != 1000 {
		t.Errorf("stat: got %d, %v", n, err)
	}
	if _, err := objectstore.ReadAll(ctx, s, h, 1000); err != nil {
		t.Error(err)
	}
	expectCalls(t, far)

	g, err := s.Put(ctx, bytes.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	expectCalls(t, far, call("stat", g.Hash), call("put", g.Hash))

	// Another process on the same machine has the copies, which prove nothing.
	other := openIn(t, s.local.Path(), far, newPact(), nil)
	if _, err := other.Put(ctx, bytes.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, far, call("stat", g.Hash))
	mustPut(t, other, little)
	expectCalls(t, far, call("open", h)) // as many requests, and its bytes are compared
	if _, err := other.Put(ctx, bytes.NewReader(random(3, 1000))); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, far, call("put", objectstore.Sum(random(3, 1000))))
	if ok, err := other.Refresh(ctx, objectstore.Sum([]byte("nobody's"))); ok || err != nil {
		t.Errorf("refresh of an absent object: got %v, %v, want false", ok, err)
	}
}

// A process relies on a name before its first request for the object.
func TestRelyFirst(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	far.before = func(_ context.Context, op string, hs ...objectstore.Hash) error {
		for _, h := range hs {
			if !s.own.relies(h) {
				t.Errorf("%s %s came before the name was relied on", op, h)
			}
		}
		return nil
	}
	mustPut(t, s, random(1, 10))
	if _, err := s.Put(ctx, bytes.NewReader(random(2, 1<<20))); err != nil {
		t.Error(err)
	}
	for i, size := range []int{10, 1 << 20} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, random(byte(3+i), size), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutFile(ctx, f, objectstore.FileOptions{Probe: true}); err != nil {
			t.Error(err)
		}
		f.Close()
		if err := os.WriteFile(path, random(byte(5+i), size), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Adopt(ctx, suite.Paths{}, path); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Refresh(ctx, objectstore.Sum(nil)); err != nil {
		t.Error(err)
	}

	s.own.err = errors.New("the lease is lost")
	far.takeCalls()
	if _, err := s.PutBytes(ctx, random(1, 10)); !errors.Is(err, s.own.err) {
		t.Errorf("put of a known object, without a session: got %v, want %v", err, s.own.err)
	}
	if _, err := s.Refresh(ctx, objectstore.Sum(nil)); !errors.Is(err, s.own.err) {
		t.Errorf("refresh without a session: got %v, want %v", err, s.own.err)
	}
	expectCalls(t, far)
}

// A process that only reads begins no session.
func TestReadersRelyOnNothing(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	b := random(1, 1000)
	h := objectstore.Sum(b)
	far.set(h, b)
	s := open(t, far, newPact(), nil)
	s.own.err = errors.New("relied")
	if _, err := objectstore.ReadAll(ctx, s, h, 1000); err != nil {
		t.Error(err)
	}
	if _, err := s.Stat(ctx, h); err != nil {
		t.Error(err)
	}
	if _, err := s.Missing(ctx, []objectstore.Hash{h}); err != nil {
		t.Error(err)
	}
	if err := s.Verify(ctx, h); err != nil {
		t.Error(err)
	}
}

func TestOneUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		gate := make(chan struct{})
		var puts atomic.Int32
		far.before = func(_ context.Context, op string, _ ...objectstore.Hash) error {
			if op == "put" {
				puts.Add(1)
				<-gate
			}
			return nil
		}
		s := open(t, far, newPact(), nil)
		b := random(1, 1000)
		h := objectstore.Sum(b)

		first, cancel := context.WithCancel(t.Context())
		gave := make(chan error, 1)
		go func() {
			_, err := s.PutBytes(first, b)
			gave <- err
		}()
		synctest.Wait()
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				_, err := s.PutBytes(t.Context(), b)
				return err
			})
		}
		impatient, stop := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := s.PutBytes(impatient, b)
			left <- err
		}()
		synctest.Wait()
		stop()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("a put that stopped waiting: got %v, want context.Canceled", err)
		}
		if n := puts.Load(); n != 1 {
			t.Errorf("got %d uploads under way, want 1", n)
		}
		far.before = func(ctx context.Context, _ string, _ ...objectstore.Hash) error { return ctx.Err() }
		cancel()
		close(gate)
		<-gave // done or cancelled
		if err := g.Wait(); err != nil {
			t.Errorf("a put that waited for one that was cancelled: %v", err)
		}
		if _, ok := far.get(h); !ok {
			t.Error("the object is not there")
		}
	})
}

// TestUploadsAreBounded holds many uploads at the same time.
func TestUploadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		gate := make(chan struct{})
		var now, most atomic.Int32
		far.before = func(_ context.Context, op string, _ ...objectstore.Hash) error {
			most.Store(max(most.Load(), now.Add(1)))
			<-gate
			now.Add(-1)
			return nil
		}
		s := open(t, far, newPact(), func(o *cached.Options) { o.Parallel = 3 })
		var g errgroup.Group
		for i := range 10 {
			g.Go(func() error {
				_, err := s.PutBytes(t.Context(), random(byte(i), 100<<10))
				return err
			})
		}
		synctest.Wait()
		if n := now.Load(); n != 3 {
			t.Errorf("got %d uploads at a time, want 3", n)
		}
		close(gate)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// After an error an object does not count as uploaded, and the next put uploads it.
func TestPutFaults(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{1000, 1 << 20} {
		for name, fault := range map[string]error{"refused": errors.New("no"), "lost": lost{}} {
			for _, op := range []string{"stat", "put"} {
				t.Run(fmt.Sprintf("%d bytes, %s %s", size, op, name), func(t *testing.T) {
					far := newFar()
					s := open(t, far, newPact(), nil)
					b := random(1, size)
					failed := false
					far.before = func(_ context.Context, asked string, _ ...objectstore.Hash) error {
						if asked == op && !failed {
							failed = true
							return fault
						}
						return nil
					}
					_, err := s.Put(ctx, bytes.NewReader(b))
					if failed != errors.Is(err, fault) {
						t.Errorf("put: got %v, want the fault: %v", err, failed)
					}
					mustPut(t, s, b)
					if got, _ := far.get(objectstore.Sum(b)); !bytes.Equal(got, b) {
						t.Error("the second put did not upload it")
					}
				})
			}
		}
	}
}

// A put may find a copy with the right size and wrong bytes. It does not upload that copy.
func TestDamagedCopyIsNotUploaded(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{1000, 1 << 20} {
		b := random(1, size)
		h := objectstore.Sum(b)
		puts := map[string]func(s *fixture, path string) error{
			"bytes": func(s *fixture, _ string) error {
				_, err := s.PutBytes(ctx, b)
				return err
			},
			"stream": func(s *fixture, _ string) error {
				_, err := s.Put(ctx, bytes.NewReader(b))
				return err
			},
			"file": func(s *fixture, path string) error {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = s.PutFile(ctx, f, objectstore.FileOptions{Probe: true})
				return err
			},
			"adopted": func(s *fixture, path string) error {
				_, err := s.Adopt(ctx, suite.Paths{}, path)
				return err
			},
		}
		for name, put := range puts {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				far := newFar()
				s := open(t, far, newPact(), nil)
				mustPut(t, s, b)
				damage(t, s.local, h, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
				far.remove(h)
				// Another process, to which the object is not known.
				s = openIn(t, s.local.Path(), far, newPact(), nil)
				path := filepath.Join(t.TempDir(), "f")
				if err := os.WriteFile(path, b, 0o666); err != nil {
					t.Fatal(err)
				}
				if err := put(s, path); err != nil {
					t.Fatal(err)
				}
				if got, _ := far.get(h); !bytes.Equal(got, b) {
					t.Errorf("got %d other bytes", len(got))
				}
			})
		}
	}
}

// damage changes the copy of h.
func damage(t testing.TB, d *objectstore.Dir, h objectstore.Hash, change func([]byte) []byte) {
	t.Helper()
	path := copyPath(d, h)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func copyPath(d *objectstore.Dir, h objectstore.Hash) string {
	return filepath.Join(d.Path(), h.String()[:2], h.String()[2:])
}

// Puts succeed although all copies are removed at each request.
func TestTrimmedWhileUploading(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	far.before = func(ctx context.Context, _ string, hs ...objectstore.Hash) error {
		for _, h := range hs {
			if err := s.local.Delete(ctx, h); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	for i, size := range []int{1000, 2 << 20} {
		for j, put := range []func(path string) error{
			func(path string) error {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = s.Put(ctx, io.MultiReader(f))
				return err
			},
			func(path string) error {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = s.PutFile(ctx, f, objectstore.FileOptions{})
				return err
			},
			func(path string) error {
				_, err := s.Adopt(ctx, suite.Paths{}, path)
				return err
			},
		} {
			b := random(byte(10*i+j), size)
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := put(path); err != nil {
				t.Errorf("put %d of %d bytes: %v", j, size, err)
			}
			if got, _ := far.get(objectstore.Sum(b)); !bytes.Equal(got, b) {
				t.Errorf("put %d of %d bytes did not arrive", j, size)
			}
		}
	}
}

// A remote object of another size is replaced.
func TestOtherSize(t *testing.T) {
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := random(1, 1<<20)
	h := objectstore.Sum(b)
	far.set(h, b[:1000])
	mustPut(t, s, b)
	expectCalls(t, far, call("stat", h), call("replace", h))
	if got, _ := far.get(h); !bytes.Equal(got, b) {
		t.Errorf("got %d other bytes", len(got))
	}
}

// The requests of a put of an object that the remote store has, damaged or not.
func TestRequestsOfStored(t *testing.T) {
	for _, size := range []int{1000, 100_000, 1 << 20} {
		for _, damaged := range []bool{false, true} {
			for name, tt := range map[string]struct {
				copied, sums, doubt bool
				want, small         []string // before a replacement; small: of small objects, if different
				blind               bool     // the damage is not noticed
			}{
				"new here":              {want: []string{"stat"}, small: []string{"put", "open"}, blind: size > 1<<19},
				"new here, with sums":   {sums: true, want: []string{"stat"}, small: []string{"put", "open"}},
				"copied here":           {copied: true, want: []string{"stat"}, small: []string{"open"}, blind: size > 1<<16},
				"copied here, sums":     {copied: true, sums: true, want: []string{"stat"}, small: []string{"open"}},
				"doubted":               {doubt: true, want: []string{"open"}, small: []string{"put", "open"}},
				"copied here, doubted":  {copied: true, doubt: true, want: []string{"open"}},
				"copied, sums, doubted": {copied: true, sums: true, doubt: true, want: []string{"open"}},
			} {
				t.Run(fmt.Sprintf("%s, %d, damaged %v", name, size, damaged), func(t *testing.T) {
					far := newFar()
					far.sums = tt.sums
					b := random(1, size)
					h := objectstore.Sum(b)
					s := open(t, far, newPact(), nil)
					if tt.copied {
						if _, err := s.local.PutBytes(t.Context(), b); err != nil {
							t.Fatal(err)
						}
					}
					kept := bytes.Clone(b)
					if damaged {
						kept[size/2] ^= 1
					}
					far.set(h, kept)
					if tt.doubt {
						defer s.Distrust()()
					}
					mustPut(t, s, b)
					want := tt.want
					if tt.small != nil && (size <= 1<<16 || size <= 1<<19 && !tt.copied) {
						want = tt.small
					}
					want = slices.Clone(want)
					if damaged && !tt.blind {
						if want[0] == "stat" {
							want = append(want, "open")
						}
						want = append(want, "replace")
					}
					for i := range want {
						want[i] = call(want[i], h)
					}
					expectCalls(t, far, want...)
					if got, _ := far.get(h); bytes.Equal(got, b) == (damaged && tt.blind) {
						t.Errorf("the remote store has the right bytes: %v", bytes.Equal(got, b))
					}
				})
			}
		}
	}
}

// TestTrees puts a folder by adopting its files, and checks it out elsewhere.
func TestTrees(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	// On the file system of the cache, where a task's scratch folder is.
	dir := filepath.Join(filepath.Dir(s.local.Path()), "task")
	want := map[string]string{}
	for i := range 40 {
		name := fmt.Sprintf("sub%d/f%d", i%3, i)
		want[name] = strings.Repeat(name, 1+i*1000)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(want[name]), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	h, _, err := tree.Put(ctx, s, dir, tree.PutOptions{Adopt: true})
	if err != nil {
		t.Fatal(err)
	}
	if calls := far.takeCalls(); len(calls) != len(slices.Compact(slices.Sorted(slices.Values(calls)))) {
		t.Errorf("a request was made twice: %q", calls)
	}
	// Another machine.
	other := open(t, far, newPact(), nil)
	out := filepath.Join(t.TempDir(), "out")
	if _, err := tree.Checkout(ctx, other, h, out, tree.CheckoutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(b) != content {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(b), err, len(content))
		}
	}
	far.takeCalls()
	if ok, err := tree.Refresh(ctx, other, h, objectstore.Hash{}); err != nil || !ok {
		t.Errorf("refresh the tree: got %v, %v", ok, err)
	}
	if calls := far.takeCalls(); len(calls) != 44 {
		t.Errorf("to refresh 44 objects took %d requests", len(calls))
	}
	if ok, err := tree.Refresh(ctx, other, h, objectstore.Hash{}); err != nil || !ok {
		t.Errorf("refresh the tree: got %v, %v", ok, err)
	}
	expectCalls(t, far)
}
