package fs_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"e3/refstore"
	"e3/refstore/fs"
)

// BenchmarkCreateExecution is the hot path of a cold run: a new task and inputs each time, a value and two fields.
func BenchmarkCreateExecution(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	value, side := make([]byte, 180), make([]byte, 64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, err := s.Put(b.Context(), refstore.Record{
			Key:    refstore.Key{Partition: fmt.Sprintf("EXECUTION/%064x/%064x", i, i), Sort: "019a0000-0000-7000-8000-000000000001"},
			Value:  value,
			Fields: []refstore.Field{{Name: "output", Value: side}, {Name: "detail.beast2", Value: side}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetExecution(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	key := refstore.Key{Partition: "EXECUTION/" + strings.Repeat("a", 64) + "/" + strings.Repeat("b", 64), Sort: "019a0000-0000-7000-8000-000000000001"}
	put(b, s, refstore.Record{Key: key, Value: make([]byte, 180), Fields: []refstore.Field{{Name: "output"}}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(b.Context(), key, "output"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLookup lists a partition with one execution, newest first, as a cache lookup does.
func BenchmarkLookup(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	key := refstore.Key{Partition: "EXECUTION/" + strings.Repeat("a", 64) + "/" + strings.Repeat("b", 64), Sort: "019a0000-0000-7000-8000-000000000001"}
	put(b, s, refstore.Record{Key: key, Value: make([]byte, 180)})
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range s.List(b.Context(), refstore.Query{Partition: key.Partition, Descending: true}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkCreateFile(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	for i := 0; b.Loop(); i++ {
		put(b, s, refstore.Record{Key: refstore.Key{Partition: "QUEUE/default", Sort: fmt.Sprint(i)}, Value: make([]byte, 300)})
	}
}

func BenchmarkUpdate(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	r := refstore.Record{Key: refstore.Key{Partition: "WORKSPACE", Sort: "prod"}, Value: make([]byte, 300)}
	r.Version = put(b, s, r)
	for b.Loop() {
		r.Version = put(b, s, r)
	}
}

func BenchmarkClaim(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	key := sha256.Sum256(nil)
	for b.Loop() {
		l, err := s.TryClaim(b.Context(), key, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLock(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	for b.Loop() {
		l, err := s.TryLock(b.Context(), "workspace/prod", refstore.Exclusive, []byte("holder"))
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	s := open(b, b.TempDir(), fs.Options{})
	key := refstore.Key{Partition: "EVENTS/prod", Sort: "run"}
	line := make([]byte, 200)
	for i := int64(0); b.Loop(); i++ {
		if err := s.Append(b.Context(), key, i*int64(len(line)), line); err != nil {
			b.Fatal(err)
		}
	}
}

func put(t testing.TB, s refstore.Store, r refstore.Record) refstore.Version {
	t.Helper()
	v, err := s.Put(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
