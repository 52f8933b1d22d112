// Package refstoretest is the suite that every backend of package refstore, and every decorator, passes.
//
// It does not link package testing, so that a command can check a live backend with it.
package refstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/refstore"
)

// Opener returns a store without any record, stream or lock, a new one at each call. The runner of the cases closes
// it.
type Opener func(ctx context.Context) (refstore.Store, error)

// Case is one behaviour.
type Case struct {
	Name string
	// Run returns an error if the store does not behave. The error matches [errors.ErrUnsupported] if the store lacks
	// the optional capability of the case.
	Run func(ctx context.Context, open Opener) error
	// Large says that the case makes more than a thousand requests. A layer over a store, or only another
	// setting of it, may leave such a case to a longer suite.
	Large bool
}

// large marks a case as [Case.Large].
func large(c Case) Case {
	c.Large = true
	return c
}

// Cases returns the suite.
func Cases() []Case {
	return slices.Concat(recordCases(), listCases(), watchCases(), streamCases(), HoldCases())
}

// onStore makes a case from a function of a fresh store.
func onStore(name string, run func(ctx context.Context, s refstore.Store) error) Case {
	return Case{Name: name, Run: func(ctx context.Context, open Opener) error {
		s, err := open(ctx)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		return run(ctx, s)
	}}
}

// capability returns s as a T, if it implements it.
func capability[T any](s refstore.Store) (T, error) {
	c, ok := s.(T)
	if !ok {
		return c, fmt.Errorf("%T is no %T: %w", s, (*T)(nil), errors.ErrUnsupported)
	}
	return c, nil
}

// Keys that look like those of a repository.
var (
	hash1 = strings.Repeat("0123456789abcdef", 4)
	hash2 = strings.Repeat("fedcba9876543210", 4)
)

// keys returns a key of each kind with the given name in its sort key.
func keys(name string) []refstore.Key {
	return []refstore.Key{
		{Partition: "EXECUTION/" + hash1 + "/" + hash2, Sort: name},
		{Partition: "DATAFLOW/prod", Sort: name},
		{Partition: "WORKSPACE", Sort: name},
		{Partition: "PACKAGE", Sort: name + "/1.0.0"},
		{Partition: "INDEX/history/prod/train", Sort: name},
		{Partition: "QUEUE/default", Sort: name},
		{Partition: "LEASE/run", Sort: name},
		{Partition: "TOMBSTONE", Sort: name},
		{Partition: "PIN", Sort: name},
		{Partition: "CANCEL", Sort: name},
		{Partition: "APPROVAL/prod", Sort: name + "/sum"},
		{Partition: "SETTINGS", Sort: name},
	}
}

// rounds is the length of a case for the k-th of [keys]: most for two kinds, executions and a partition of one workspace,
// and few for the others, which a backend treats like one of them.
func rounds(k, most, few int) int {
	if k < 2 {
		return most
	}
	return few
}

func index(sort string) refstore.Key { return refstore.Key{Partition: "INDEX/test", Sort: sort} }

// create puts a record that does not exist.
func create(ctx context.Context, s refstore.Store, key refstore.Key, value string, fields ...refstore.Field) (refstore.Version, error) {
	v, err := s.Put(ctx, refstore.Record{Key: key, Value: []byte(value), Fields: fields})
	if err == nil && v == refstore.Absent {
		err = fmt.Errorf("put %q: got the version of an absent record", key)
	}
	return v, err
}

func update(ctx context.Context, s refstore.Store, key refstore.Key, v refstore.Version, value string, fields ...refstore.Field) (refstore.Version, error) {
	return s.Put(ctx, refstore.Record{Key: key, Value: []byte(value), Fields: fields, Version: v})
}

func field(name, value string) refstore.Field {
	return refstore.Field{Name: name, Value: []byte(value)}
}

// wantRecord gets a record with its fields and compares them.
func wantRecord(ctx context.Context, s refstore.Store, key refstore.Key, v refstore.Version, value string, ask []string, fields ...refstore.Field) error {
	r, err := s.Get(ctx, key, ask...)
	if err != nil {
		return err
	}
	return equal(r, refstore.Record{Key: key, Value: []byte(value), Fields: fields, Version: v})
}

func equal(got, want refstore.Record) error {
	same := got.Key == want.Key && got.Version == want.Version && bytes.Equal(got.Value, want.Value) &&
		slices.EqualFunc(got.Fields, want.Fields, func(a, b refstore.Field) bool {
			return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
		})
	if !same {
		return fmt.Errorf("got record %s, want %s", show(got), show(want))
	}
	return nil
}

func show(r refstore.Record) string {
	s := fmt.Sprintf("{%q version %q value %.60q", r.Key, r.Version, r.Value)
	for _, f := range r.Fields {
		s += fmt.Sprintf(" %s=%.60q", f.Name, f.Value)
	}
	return s + "}"
}

// wantErr compares an error with a sentinel.
func wantErr(what string, got, want error) error {
	if !errors.Is(got, want) {
		return fmt.Errorf("%s: got error %v, want %v", what, got, want)
	}
	return nil
}
