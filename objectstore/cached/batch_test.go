package cached_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/objectstoretest"
)

// A batch that was sent behaves like the store.
func TestConformanceSent(t *testing.T) {
	for _, c := range objectstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			b := open(t, newFar(), newPact(), nil).Batch()
			if err := b.Send(t.Context(), none); err != nil {
				t.Fatal(err)
			}
			if err := c.Run(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
}

func putBytes(t *testing.T, s objectstore.Store, b []byte) objectstore.Hash {
	t.Helper()
	h, err := objectstore.PutBytes(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Puts of a batch can be read before Send. Send uploads them, except held objects.
func TestBatch(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	b := s.Batch()
	one, two := random(1, 1000), random(2, 1000)
	h1, h2 := putBytes(t, b, one), putBytes(t, b, two)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, random(3, 2000), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := b.PutFile(ctx, f, objectstore.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := b.Adopt(ctx, suite.Paths{}, path)
	if err != nil || adopted != file {
		t.Errorf("adopted %v, %v, want %v", adopted, err, file)
	}
	if got, err := objectstore.ReadAll(ctx, b, h1, 1000); err != nil || !bytes.Equal(got, one) {
		t.Errorf("read before it is sent: %v", err)
	}
	expectCalls(t, far)
	if err := b.Send(ctx, func(h objectstore.Hash) bool { return h == h2 }); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(slices.Values(far.takeCalls())), []string{call("put", h1), call("put", file.Hash)}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("requests: got %q, want %q", got, want)
	}
	for _, h := range []objectstore.Hash{h1, h2, file.Hash} {
		if ok, err := b.Refresh(ctx, h); !ok || err != nil {
			t.Errorf("refresh %s: got %v, %v", h, ok, err)
		}
	}
	putBytes(t, b, two)
	expectCalls(t, far)
	// Only the batch presumes that it is there; the store asks.
	if ok, err := s.Refresh(ctx, h2); ok || err != nil {
		t.Errorf("refresh in the store: got %v, %v, want false", ok, err)
	}
	expectCalls(t, far, call("stat", h2))
	putBytes(t, b, random(4, 10))
	expectCalls(t, far, call("put", objectstore.Sum(random(4, 10))))
}

// A batch relies on each name before it asks for or sends the object.
func TestBatchReliesFirst(t *testing.T) {
	far := newFar()
	for _, there := range []bool{true, false} {
		s := open(t, far, newPact(), nil)
		far.before = func(_ context.Context, op string, hs ...objectstore.Hash) error {
			for _, h := range hs {
				if !s.own.relies(h) {
					t.Errorf("%s %s came before the name was relied on", op, h)
				}
			}
			return nil
		}
		b := s.Batch()
		for i := range 100 {
			what := []byte{byte(i), 'x'}
			if !there {
				what[1] = 'y'
			}
			putBytes(t, b, what)
		}
		if err := b.Send(t.Context(), none); err != nil {
			t.Fatal(err)
		}
	}
}

// If the remote store has most objects of a large batch, Send asks for them and sends only the missing ones. Otherwise
// the sample costs only a few requests.
func TestBatchOfMany(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	const n = 200
	fill := func(there func(i int) bool) *cached.Batch {
		other := open(t, far, newPact(), nil)
		b := open(t, far, newPact(), nil).Batch()
		for i := range n {
			content := []byte{byte(i), byte(i >> 8), 'm'}
			if there(i) {
				mustPut(t, other, content)
			}
			putBytes(t, b, content)
		}
		far.takeCalls()
		return b
	}
	ops := func() map[string]int {
		count := map[string]int{}
		for _, c := range far.takeCalls() {
			op, _, _ := strings.Cut(c, " ")
			count[op]++
		}
		return count
	}
	if err := fill(func(int) bool { return false }).Send(ctx, none); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got["put"] != n || got["stat"] > 8 || got["open"] > 0 {
		t.Errorf("nothing is there: got %v", got)
	}
	if err := fill(func(int) bool { return true }).Send(ctx, none); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got["put"] > 0 || got["stat"]+got["list"] > n+8 || got["open"] > 0 {
		t.Errorf("all is there: got %v", got)
	}
	b := fill(func(int) bool { return true })
	for i := 1; i < n; i += 10 {
		far.remove(objectstore.Sum([]byte{byte(i), byte(i >> 8), 'm'}))
	}
	if err := b.Send(ctx, none); err != nil {
		t.Fatal(err)
	}
	if got := ops(); got["put"] != n/10 {
		t.Errorf("a tenth is missing: got %v, want %d puts", got, n/10)
	}
}

// An object that is in neither place must be put again.
func TestBatchUnsent(t *testing.T) {
	ctx := t.Context()
	far := newFar()
	s := open(t, far, newPact(), nil)
	gone := objectstore.Sum([]byte("gone"))
	b := s.Batch()
	if ok, err := b.Refresh(ctx, gone); !ok || err != nil {
		t.Errorf("refresh before it is sent: got %v, %v, want true", ok, err)
	}
	if err := b.Send(ctx, none); !errors.Is(err, objectstore.ErrUnsent) {
		t.Errorf("refreshed: got %v, want ErrUnsent", err)
	}
	if ok, err := b.Refresh(ctx, gone); ok || err != nil {
		t.Errorf("refresh after that: got %v, %v, want false", ok, err)
	}
	b = s.Batch()
	h := putBytes(t, b, []byte("evicted"))
	if err := s.local.Delete(ctx, h); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(ctx, none); !errors.Is(err, objectstore.ErrUnsent) {
		t.Errorf("evicted: got %v, want ErrUnsent", err)
	}
	b = s.Batch()
	if _, err := b.Refresh(ctx, h); err != nil {
		t.Fatal(err)
	}
	putBytes(t, b, []byte("evicted"))
	if err := b.Send(ctx, none); err != nil {
		t.Errorf("put after a refresh: %v", err)
	}
	if got, _ := far.get(h); !bytes.Equal(got, []byte("evicted")) {
		t.Error("it was not sent")
	}
}
