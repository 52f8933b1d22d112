package overlay_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"e3/refstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
	"e3/refstore/internal/modeltest"
	"e3/refstore/mem"
	"e3/refstore/overlay"
	"e3/refstore/refstoretest"
)

// local is a folder with sums, as repositories use it.
type local struct {
	*checked.Records
	below
}

type below struct{ *reffs.Store }

func openLocal(t testing.TB) local {
	t.Helper()
	s, err := reffs.Open(t.TempDir(), reffs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return local{checked.New(s, false), below{s}}
}

// readOnly is a base that fails the test if anything is written.
type readOnly struct {
	*mem.Store
	closed atomic.Bool
}

func (r *readOnly) Put(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	if r.closed.Load() {
		return refstore.Absent, refstore.ErrReadOnly
	}
	return r.Store.Put(ctx, rec)
}

func (r *readOnly) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if r.closed.Load() {
		return refstore.ErrReadOnly
	}
	return r.Store.Delete(ctx, key, v)
}

func (r *readOnly) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if r.closed.Load() {
		return refstore.ErrReadOnly
	}
	return r.Store.Append(ctx, key, offset, data)
}

func (r *readOnly) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if r.closed.Load() {
		return refstore.ErrReadOnly
	}
	return r.Store.Cut(ctx, key, size)
}

func (r *readOnly) Seal(ctx context.Context, key refstore.Key) error {
	if r.closed.Load() {
		return refstore.ErrReadOnly
	}
	return r.Store.Seal(ctx, key)
}

func (r *readOnly) Remove(ctx context.Context, key refstore.Key) error {
	if r.closed.Load() {
		return refstore.ErrReadOnly
	}
	return r.Store.Remove(ctx, key)
}

func (r *readOnly) TryLock(context.Context, string, refstore.Mode, []byte) (refstore.Lock, error) {
	return nil, refstore.ErrReadOnly
}

func (r *readOnly) TryClaim(context.Context, [32]byte, []byte) (refstore.Lock, error) {
	return nil, refstore.ErrReadOnly
}

func empty() *readOnly {
	r := &readOnly{Store: mem.New()}
	r.closed.Store(true)
	return r
}

func TestConformance(t *testing.T) {
	for name, open := range map[string]func(t testing.TB) overlay.Local{
		"memory": func(testing.TB) overlay.Local { return mem.New() },
		"folder": func(t testing.TB) overlay.Local { return openLocal(t) },
	} {
		for _, c := range refstoretest.Cases() {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) { return overlay.New(empty(), open(t)), nil })
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip(err)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// handover is one store whose first writes go to the base, and all later ones to the overlay.
type handover struct {
	*overlay.Store
	base *readOnly
	left int
}

// early reports whether a write is one of the first.
func (h *handover) early() bool {
	h.left--
	if h.left < 0 {
		h.base.closed.Store(true)
	}
	return h.left >= 0
}

// ofBase is a version as the base knows it.
func ofBase(v refstore.Version) refstore.Version {
	return refstore.Version(strings.TrimPrefix(string(v), "b"))
}

func (h *handover) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if !h.early() {
		return h.Store.Put(ctx, r)
	}
	r.Version = ofBase(r.Version)
	v, err := h.base.Put(ctx, r)
	if err == nil {
		v = "b" + v
	}
	return v, err
}

func (h *handover) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if !h.early() {
		return h.Store.Delete(ctx, key, v)
	}
	return h.base.Delete(ctx, key, ofBase(v))
}

func (h *handover) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if !h.early() {
		return h.Store.Append(ctx, key, offset, data)
	}
	return h.base.Append(ctx, key, offset, data)
}

func (h *handover) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if !h.early() {
		return h.Store.Cut(ctx, key, size)
	}
	return h.base.Cut(ctx, key, size)
}

func (h *handover) Seal(ctx context.Context, key refstore.Key) error {
	if !h.early() {
		return h.Store.Seal(ctx, key)
	}
	return h.base.Seal(ctx, key)
}

func (h *handover) Remove(ctx context.Context, key refstore.Key) error {
	if !h.early() {
		return h.Store.Remove(ctx, key)
	}
	return h.base.Remove(ctx, key)
}

// TestModel compares an overlay, over a base that has a part of everything, with one store.
func TestModel(t *testing.T) {
	modeltest.Check(t, func(rt *rapid.T) modeltest.Store {
		base := &readOnly{Store: mem.New()}
		return &handover{Store: overlay.New(base, mem.New()), base: base, left: rapid.IntRange(0, 30).Draw(rt, "writes to the base")}
	})
}

// A change of the base's record holds until the base has another version of it; then the base's counts.
func TestBaseWins(t *testing.T) {
	ctx, base := t.Context(), mem.New()
	s := overlay.New(base, mem.New())
	key := refstore.Key{Partition: "WORKSPACE", Sort: "prod"}
	must := func(v refstore.Version, err error) refstore.Version {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := func(value string) refstore.Version {
		t.Helper()
		r, err := s.Get(ctx, key)
		if err != nil || string(r.Value) != value {
			t.Fatalf("got %q, %v, want %q", r.Value, err, value)
		}
		for list, err := range s.List(ctx, refstore.Query{Partition: key.Partition}) {
			if err != nil || string(list.Value) != value || list.Version != r.Version {
				t.Fatalf("listed %q %q, %v, want %q %q", list.Value, list.Version, err, value, r.Version)
			}
		}
		return r.Version
	}
	first := must(base.Put(ctx, refstore.Record{Key: key, Value: []byte("base 1")}))
	mine := must(s.Put(ctx, refstore.Record{Key: key, Value: []byte("mine"), Version: want("base 1")}))
	if now := want("mine"); now != mine {
		t.Fatalf("version %q, want %q", now, mine)
	}
	second := must(base.Put(ctx, refstore.Record{Key: key, Value: []byte("base 2"), Version: first}))
	again := want("base 2")
	if _, err := s.Put(ctx, refstore.Record{Key: key, Value: []byte("late"), Version: mine}); !errors.Is(err, refstore.ErrConflict) {
		t.Fatalf("a change of what the base has replaced: %v", err)
	}
	if err := s.Delete(ctx, key, again); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
		t.Fatalf("after its deletion: %v", err)
	}
	must(base.Put(ctx, refstore.Record{Key: key, Value: []byte("base 3"), Version: second}))
	want("base 3")
}

// A lock that is held in the base is refused, and says by which process.
func TestBaseHolds(t *testing.T) {
	ctx, base := t.Context(), mem.New()
	s := overlay.New(base, mem.New())
	lock, err := base.TryLock(ctx, "prod", refstore.Exclusive, []byte("a writer"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.TryLock(ctx, "prod", refstore.Exclusive, []byte("a reader"))
	if locked := (*refstore.LockedError)(nil); !errors.As(err, &locked) || string(locked.Holder) != "a writer" {
		t.Fatalf("got %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err = s.TryLock(ctx, "prod", refstore.Exclusive, []byte("a reader")); err != nil {
		t.Fatal(err)
	}
	if _, held, err := base.Holder(ctx, "prod"); held || err != nil {
		t.Fatalf("the base's lock: %v, %v", held, err)
	}
}
