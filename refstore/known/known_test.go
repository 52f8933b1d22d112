package known_test

import (
	"context"
	"errors"
	"testing"

	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/known"
	"e3/refstore/mem"
	"e3/refstore/refstoretest"
)

func open(t testing.TB) *reffs.Store {
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
	return s
}

// remembering is a whole store whose reads are remembered.
type remembering struct {
	*known.Records
	rest
}

type rest struct{ *mem.Store }

func TestConformance(t *testing.T) {
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) {
				s, m := mem.New(), known.NewMemory(open(t))
				t.Cleanup(func() { m.Close() })
				return remembering{known.Remember(s, m), rest{s}}, nil
			})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOffline reads what was read before, as it was, and nothing else.
func TestOffline(t *testing.T) {
	ctx, base, local := t.Context(), mem.New(), open(t)
	put := func(sort, value string, v refstore.Version, fields ...refstore.Field) refstore.Version {
		t.Helper()
		v, err := base.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/t/i", Sort: sort}, Value: []byte(value), Fields: fields, Version: v})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	key := func(sort string) refstore.Key { return refstore.Key{Partition: "EXECUTION/t/i", Sort: sort} }
	first := put("a", "one", refstore.Absent, refstore.Field{Name: "output", Value: []byte("x")}, refstore.Field{Name: "other", Value: []byte("y")})
	put("b", "two", refstore.Absent)
	put("c", "three", refstore.Absent)

	put("d", "old", refstore.Absent, refstore.Field{Name: "kept", Value: []byte("k")})
	m := known.NewMemory(local)
	s := known.Remember(base, m)
	for _, sort := range []string{"a", "b", "none"} {
		if _, err := s.Get(ctx, key(sort), "output"); err != nil && sort != "none" {
			t.Fatal(err)
		}
	}
	second := put("a", "one again", first)
	for r, err := range s.List(ctx, refstore.Query{Partition: "EXECUTION/t/i", Limit: 1, Fields: []string{"output"}}) {
		if err != nil || string(r.Value) != "one again" {
			t.Fatalf("%q, %v", r.Value, err)
		}
	}
	b, err := base.Get(ctx, key("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := base.Delete(ctx, b.Key, b.Version); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, key("b")); !errors.Is(err, refstore.ErrNotFound) {
		t.Fatal(err)
	}
	// A write keeps the fields that it does not have.
	d, err := s.Get(ctx, key("d"), "kept")
	if err != nil {
		t.Fatal(err)
	}
	d.Value, d.Fields = []byte("new"), nil
	if d.Version, err = s.Put(ctx, d); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	o := known.NewMemory(local).Offline()
	a, err := o.Get(ctx, key("a"), "output", "other")
	if err != nil || string(a.Value) != "one again" || a.Version != second || len(a.Fields) != 1 || string(a.Fields[0].Value) != "x" {
		t.Fatalf("got %q %v, %v", a.Value, a.Fields, err)
	}
	if again, err := o.Get(ctx, key("d"), "kept"); err != nil || string(again.Value) != "new" || again.Version != d.Version || len(again.Fields) != 1 {
		t.Errorf("after a write: %q %v, %v", again.Value, again.Fields, err)
	}
	for _, sort := range []string{"b", "c", "none"} {
		if _, err := o.Get(ctx, key(sort)); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("%s: %v", sort, err)
		}
	}
	n := 0
	for r, err := range o.List(ctx, refstore.Query{Partition: "EXECUTION/t/i", Prefix: "a"}) {
		if n++; err != nil || r.Key.Sort != "a" || r.Version != second || len(r.Fields) != 0 {
			t.Errorf("listed %v, %v", r, err)
		}
	}
	if n != 1 {
		t.Errorf("%d records are listed", n)
	}
	if _, err := o.Put(ctx, a); !errors.Is(err, refstore.ErrReadOnly) {
		t.Errorf("put: %v", err)
	}
}
