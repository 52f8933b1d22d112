package objectstore_test

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"e3/objectstore"
)

func TestHashSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few values for each byte, so that hashes recur, and share shards.
		hashes := rapid.SliceOf(rapid.Custom(func(t *rapid.T) (h objectstore.Hash) {
			h[0], h[7], h[31] = rapid.Byte().Draw(t, "first"), rapid.ByteMax(3).Draw(t, "middle"), rapid.ByteMax(3).Draw(t, "last")
			if rapid.Bool().Draw(t, "one shard") {
				h[0] = 0
			}
			return h
		})).Draw(t, "hashes")
		var s objectstore.HashSet
		model := map[objectstore.Hash]bool{}
		for _, h := range hashes {
			if got, want := s.Has(h), model[h]; got != want {
				t.Fatalf("Has(%s) = %v, want %v", h, got, want)
			}
			if got, want := s.Add(h), !model[h]; got != want {
				t.Fatalf("Add(%s) = %v, want %v", h, got, want)
			}
			model[h] = true
			if !s.Has(h) || s.Len() != len(model) {
				t.Fatalf("after Add(%s): Has = %v, Len = %d, want %d", h, s.Has(h), s.Len(), len(model))
			}
		}
		want := slices.SortedFunc(maps.Keys(model), objectstore.Hash.Compare)
		if got := slices.Collect(s.All()); !slices.Equal(got, want) {
			t.Fatalf("All: got %v, want %v", got, want)
		}
		for range s.All() {
			break // must not go on
		}
	})
}

func TestHashSetOfMany(t *testing.T) {
	const n, limit = 300_000, 300_000 * 60
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := new(objectstore.HashSet)
	for i := range n {
		s.Add(numbered(i))
	}
	used := int64(heap() - before)
	t.Logf("%d hashes take %d bytes", n, used)
	if used > limit || s.Len() != n {
		t.Errorf("Len = %d, want %d; it takes %d bytes, want at most %d", s.Len(), n, used, limit)
	}
}

// numbered is a hash that stands for i.
func numbered(i int) objectstore.Hash {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(i))
	return objectstore.Sum(b[:])
}

func TestHashSetOfSeveral(t *testing.T) {
	const n = 20_000
	var s objectstore.HashSet
	var added atomic.Int64
	var wg sync.WaitGroup
	for range 4 { // all goroutines add the same hashes
		wg.Go(func() {
			for i := range n {
				if s.Add(numbered(i)) {
					added.Add(1)
				}
				if !s.Has(numbered(i)) {
					t.Errorf("Has(%d) = false after Add", i)
				}
			}
		})
	}
	wg.Wait()
	if added.Load() != n || s.Len() != n {
		t.Errorf("%d were new and Len = %d, want %d", added.Load(), s.Len(), n)
	}
}

// Lookups of names that were chosen to collide, similar and in one shard, are not slower.
func TestHashSetOfChosenNames(t *testing.T) {
	var s objectstore.HashSet
	for i := range 200_000 {
		var h objectstore.Hash
		binary.LittleEndian.PutUint32(h[20:], uint32(i))
		s.Add(h)
	}
	if s.Len() != 200_000 {
		t.Errorf("Len = %d, want 200000", s.Len())
	}
}

func BenchmarkHashSetAdd(b *testing.B) {
	var s objectstore.HashSet
	var h objectstore.Hash
	n := uint64(0)
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint64(h[:], n*0x9e3779b97f4a7c15)
		s.Add(h)
	}
}
