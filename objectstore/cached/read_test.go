package cached_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/cached"
)

// reads are all ways to read an object.
var reads = map[string]func(ctx context.Context, s *fixture, h objectstore.Hash, dir string) ([]byte, error){
	"open": func(ctx context.Context, s *fixture, h objectstore.Hash, _ string) ([]byte, error) {
		r, err := s.Open(ctx, h)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	},
	"read all": func(ctx context.Context, s *fixture, h objectstore.Hash, _ string) ([]byte, error) {
		return objectstore.ReadAll(ctx, s, h, 1<<30)
	},
	"copy": func(ctx context.Context, s *fixture, h objectstore.Hash, _ string) ([]byte, error) {
		var b bytes.Buffer
		_, err := objectstore.Copy(ctx, &b, s, h)
		return b.Bytes(), err
	},
	"materialize": func(ctx context.Context, s *fixture, h objectstore.Hash, dir string) ([]byte, error) {
		path := filepath.Join(dir, "out")
		if err := s.Materialize(ctx, h, suite.Paths{}, path, 0o666); err != nil {
			if _, statErr := os.Lstat(path); statErr == nil {
				err = errors.Join(err, errors.New("the file exists nevertheless"))
			}
			return nil, err
		}
		return os.ReadFile(path)
	},
}

// Only the first read fetches.
func TestReads(t *testing.T) {
	ctx := t.Context()
	for _, size := range []int{0, 1, 99_999, 100_000, 100_001, 3 << 20} {
		for name, read := range reads {
			far := newFar()
			s := open(t, far, newPact(), nil)
			b := random(1, size)
			h := objectstore.Sum(b)
			far.set(h, b)
			for range 2 {
				got, err := read(ctx, s, h, t.TempDir())
				if err != nil || !bytes.Equal(got, b) {
					t.Errorf("%s %d bytes: got %d bytes, %v", name, size, len(got), err)
				}
			}
			expectCalls(t, far, call("fetch", h))
		}
	}
}

func TestReadAbsent(t *testing.T) {
	for name, read := range reads {
		s := open(t, newFar(), newPact(), nil)
		if _, err := read(t.Context(), s, objectstore.Sum(nil), t.TempDir()); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", name, err)
		}
	}
}

// A wrong or interrupted fetch leaves nothing in the cache, and the next read works.
func TestRemoteFaults(t *testing.T) {
	ctx := t.Context()
	b := random(1, 300_000)
	h := objectstore.Sum(b)
	wrong := slices.Clone(b)
	wrong[100_000] ^= 1
	for name, remote := range map[string]struct {
		bytes []byte
		fault error
	}{
		"other bytes": {bytes: wrong},
		"cut off":     {bytes: b[:200_000]},
		"longer":      {bytes: append(slices.Clone(b), 0)},
		"empty":       {bytes: []byte{}},
		"refused":     {bytes: b, fault: errors.New("no")},
		"broken off":  {bytes: b, fault: lost{}},
	} {
		for how, read := range reads {
			far := newFar()
			s := open(t, far, newPact(), nil)
			far.set(h, remote.bytes)
			far.before = func(context.Context, string, ...objectstore.Hash) error { return remote.fault }
			_, err := read(ctx, s, h, t.TempDir())
			var corrupt *objectstore.CorruptError
			switch {
			case remote.fault != nil && !errors.Is(err, remote.fault):
				t.Errorf("%s, %s: got %v, want the fault", name, how, err)
			case remote.fault == nil && (!errors.As(err, &corrupt) || corrupt.Want != h || corrupt.Got != objectstore.Sum(remote.bytes)):
				t.Errorf("%s, %s: got %v, want a *CorruptError that says what is there", name, how, err)
			}
			for e, err := range s.local.Walk(ctx) {
				t.Errorf("%s, %s: the cache has %v, %v", name, how, e, err)
			}
			if len(s.warns) > 0 {
				t.Errorf("%s, %s: warned of %v", name, how, s.warns)
			}
			far.before = nil
			far.set(h, b)
			if got, err := read(ctx, s, h, t.TempDir()); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s, %s, once it is repaired: got %d bytes, %v", name, how, len(got), err)
			}
		}
	}
}

// A reader whose limit is too small is refused; a concurrent reader with a larger limit gets the object.
func TestReadLimit(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := random(1, 300_000)
	h := objectstore.Sum(b)
	far.set(h, b)
	var large *objectstore.TooLargeError
	for _, limit := range []int64{0, 1, 250_000, 299_999} {
		if _, err := s.ReadAll(ctx, h, limit); !errors.As(err, &large) || large.Limit != limit {
			t.Errorf("limit %d: got %v, want a *TooLargeError", limit, err)
		}
	}
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			limit := int64(300_000 - i%2)
			got, err := s.ReadAll(ctx, h, limit)
			if limit < 300_000 != errors.As(err, new(*objectstore.TooLargeError)) || err == nil && !bytes.Equal(got, b) {
				t.Errorf("limit %d beside others: got %d bytes, %v", limit, len(got), err)
			}
			return nil
		})
	}
	g.Wait()
	if len(s.warns) > 0 {
		t.Errorf("warned of %v", s.warns)
	}
}

func TestOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := newFar()
		b := random(1, 300_000)
		h := objectstore.Sum(b)
		far.set(h, b)
		gate := make(chan struct{})
		var fetches atomic.Int32
		far.before = func(ctx context.Context, _ string, _ ...objectstore.Hash) error {
			fetches.Add(1)
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s := open(t, far, newPact(), nil)
		first, cancel := context.WithCancel(t.Context())
		gave := make(chan error, 1)
		go func() {
			_, err := s.Open(first, h)
			gave <- err
		}()
		synctest.Wait()
		var g errgroup.Group
		dir := t.TempDir()
		for i := range 8 {
			g.Go(func() error {
				return s.Materialize(t.Context(), h, suite.Paths{}, filepath.Join(dir, string(rune('a'+i))), 0o666)
			})
		}
		synctest.Wait()
		if n := fetches.Load(); n != 1 {
			t.Errorf("got %d fetches, want 1", n)
		}
		cancel()
		if err := <-gave; !errors.Is(err, context.Canceled) {
			t.Errorf("a fetch that was cancelled: got %v", err)
		}
		synctest.Wait()
		close(gate)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if n := fetches.Load(); n != 2 {
			t.Errorf("got %d fetches, want one more after one was cancelled", n)
		}
	})
}

// Reading a whole copy detects damage, and a copy from before the machine's start is checked first.
func TestDamagedCopy(t *testing.T) {
	ctx := t.Context()
	b := random(1, 300_000)
	h := objectstore.Sum(b)
	for name, change := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[7] ^= 1; return b },
		"cut off": func(b []byte) []byte { return b[:100] },
		"zeros":   func(b []byte) []byte { clear(b[4096:]); return b },
		"longer":  func(b []byte) []byte { return append(b, 1) },
		"empty":   func([]byte) []byte { return nil },
	} {
		for how, read := range reads {
			for _, rebooted := range []bool{false, true} {
				if !rebooted && how != "read all" {
					continue
				}
				far := newFar()
				far.set(h, b)
				s := open(t, far, newPact(), func(o *cached.Options) {
					o.Booted = time.Now().Add(-24 * time.Hour)
				})
				if _, err := objectstore.ReadAll(ctx, s, h, 1<<30); err != nil {
					t.Fatal(err)
				}
				damage(t, s.local, h, change)
				if rebooted {
					old := time.Now().Add(-25 * time.Hour)
					if err := os.Chtimes(copyPath(s.local, h), old, old); err != nil {
						t.Fatal(err)
					}
				}
				far.takeCalls()
				for range 2 {
					got, err := read(ctx, s, h, t.TempDir())
					if err != nil || !bytes.Equal(got, b) {
						t.Errorf("%s, %s, rebooted %v: got %d bytes, %v", name, how, rebooted, len(got), err)
					}
				}
				expectCalls(t, far, call("fetch", h))
			}
		}
	}
}

// An undamaged copy from before the machine's start is hashed once and dated.
func TestEarlierBoot(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), func(o *cached.Options) { o.Booted = time.Now().Add(-time.Minute) })
	h := mustPut(t, s, random(1, 1000))
	for name, at := range map[string]time.Time{"before": time.Now().Add(-time.Hour), "in the future": time.Now().Add(48 * time.Hour)} {
		if err := os.Chtimes(copyPath(s.local, h), at, at); err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(ctx, h)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		fi, err := os.Stat(copyPath(s.local, h))
		if err != nil {
			t.Fatal(err)
		}
		if ago := time.Since(fi.ModTime()); ago < 0 || ago > time.Minute {
			t.Errorf("a copy from %s has a time %v ago, want the present", name, ago)
		}
	}
	// The system's boot time is in the past and constant.
	boot := cached.Booted(time.Now())
	if again := cached.Booted(time.Now()); boot.After(time.Now()) || again.Sub(boot).Abs() > time.Second {
		t.Errorf("this machine started at %v, then at %v", boot, again)
	}
}

// The time of a copy is set at most once per touchAfter.
func TestUseIsDated(t *testing.T) {
	ctx := t.Context()
	s := open(t, newFar(), newPact(), func(o *cached.Options) { o.Booted = time.Unix(0, 0).Add(1) })
	h := mustPut(t, s, random(1, 1000))
	for _, row := range []struct {
		ago   time.Duration
		dated bool
	}{{time.Minute, false}, {59 * time.Minute, false}, {61 * time.Minute, true}, {1000 * time.Hour, true}} {
		for how, read := range reads {
			at := time.Now().Add(-row.ago).Truncate(time.Second)
			if err := os.Chtimes(copyPath(s.local, h), at, at); err != nil {
				t.Fatal(err)
			}
			if _, err := read(ctx, s, h, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			fi, err := os.Stat(copyPath(s.local, h))
			if err != nil {
				t.Fatal(err)
			}
			if dated := !fi.ModTime().Equal(at); dated != row.dated {
				t.Errorf("%s of a copy used %v ago: dated %v, want %v", how, row.ago, dated, row.dated)
			}
		}
	}
}

// If the cache cannot be written, reads continue, still checked, with one warning. Puts fail.
func TestNoRoom(t *testing.T) {
	ctx := t.Context()
	b := random(1, 300_000)
	h := objectstore.Sum(b)
	for how, read := range reads {
		far := newFar()
		far.set(h, b)
		s := open(t, far, newPact(), nil)
		if err := os.WriteFile(filepath.Dir(copyPath(s.local, h)), nil, 0o666); err != nil { // a file in the way
			t.Fatal(err)
		}
		for range 2 {
			got, err := read(ctx, s, h, t.TempDir())
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s: got %d bytes, %v", how, len(got), err)
			}
		}
		if len(s.warns) != 1 {
			t.Errorf("%s: warned of %v, want one warning", how, s.warns)
		}
		far.set(h, b[1:])
		var corrupt *objectstore.CorruptError
		if _, err := read(ctx, s, h, t.TempDir()); !errors.As(err, &corrupt) {
			t.Errorf("%s of other bytes: got %v, want a *CorruptError", how, err)
		}
		var large *objectstore.TooLargeError
		if _, err := s.ReadAll(ctx, h, 1000); !errors.As(err, &large) {
			t.Errorf("read with a limit: got %v, want a *TooLargeError", err)
		}
		far.takeCalls()
		if _, err := s.PutBytes(ctx, b); err == nil {
			t.Error("a put succeeded")
		}
		expectCalls(t, far)
	}
}

// An open copy stays readable after its removal, and the next read fetches the object again.
func TestTrimmedWhileReading(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := random(1, 3<<20)
	h := mustPut(t, s, b)
	r, err := s.Open(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.local.Delete(ctx, h); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, b) {
		t.Errorf("an open copy that went away: got %d bytes, %v", len(got), err)
	}
	far.takeCalls()
	if n, err := s.Stat(ctx, h); err != nil || n != int64(len(b)) {
		t.Errorf("stat: got %d, %v", n, err)
	}
	if got, err := objectstore.ReadAll(ctx, s, h, 1<<30); err != nil || !bytes.Equal(got, b) {
		t.Errorf("read again: got %d bytes, %v", len(got), err)
	}
	expectCalls(t, far, call("stat", h), call("fetch", h))
}

// The cache stays within its bound, and keeps the copies that were used last.
func TestBound(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	const limit = 1 << 20
	s := open(t, far, newPact(), func(o *cached.Options) { o.MaxBytes = limit })
	var hot objectstore.Hash
	for i := range 200 {
		h := mustPut(t, s, random(byte(i), 50_000+i))
		at := time.Now().Add(time.Duration(i-1000) * time.Minute)
		if i == 0 {
			hot = h
			at = time.Now()
		}
		// A trim may have removed it already.
		if err := os.Chtimes(copyPath(s.local, h), at, at); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var size int64
	for e, err := range s.local.Walk(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		size += e.Size
	}
	if size > limit || size < limit/2 {
		t.Errorf("the cache has %d bytes, want up to %d and not much less", size, limit)
	}
	if _, err := s.local.Stat(ctx, hot); err != nil {
		t.Errorf("the copy that was used last: %v", err)
	}
	if n := len(far.objects); n != 200 {
		t.Errorf("the remote store has %d objects, want 200", n)
	}
}

// Missing asks one by one, or lists, whichever is cheaper.
func TestMissing(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	// Names of one shard; content does not matter here.
	name := func(i int) objectstore.Hash { return objectstore.Hash{0x7f, byte(i >> 8), byte(i)} }
	for i := range 3000 {
		if i%3 > 0 {
			far.set(name(i), nil)
		}
	}
	for _, row := range []struct{ ask, lists, stats int }{
		{0, 0, 0}, {1, 0, 1}, {11, 0, 11}, {12, 1, 12 - 8}, {23, 1, 23 - 15}, {36, 1, 0}, {3000, 1, 0},
	} {
		var ask, want []objectstore.Hash
		for i := range row.ask {
			ask = append(ask, name(i))
			if i%3 == 0 {
				want = append(want, name(i))
			}
		}
		slices.Reverse(ask)
		slices.Reverse(want)
		far.takeCalls()
		got, err := s.Missing(ctx, append(ask, ask...))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d names: got %d missing, %v, want %d", row.ask, len(got), err, len(want))
		}
		lists, stats := 0, 0
		for _, call := range far.takeCalls() {
			if call == "list" {
				lists++
			} else {
				stats++
			}
		}
		if lists != row.lists || stats != row.stats {
			t.Errorf("%d names: got %d lists and %d questions, want %d and %d", row.ask, lists, stats, row.lists, row.stats)
		}
	}
	for _, n := range []int{5, 500} {
		fault := errors.New("no")
		far.before = func(context.Context, string, ...objectstore.Hash) error { return fault }
		var ask []objectstore.Hash
		for i := range n {
			ask = append(ask, name(i))
		}
		if _, err := s.Missing(ctx, ask); !errors.Is(err, fault) {
			t.Errorf("%d names and a fault: got %v", n, err)
		}
		far.before = nil
	}
}
