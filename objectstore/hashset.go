package objectstore

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"sync"
)

// A HashSet is a set of hashes; each takes 43 to 59 bytes. The zero value is empty and ready; a set must not be copied.
// All methods may be called concurrently.
type HashSet struct {
	once   sync.Once
	seed   maphash.Seed // an attacker may choose the names in hostile records
	shards [Shards]hashShard
}

// hashShard is an open-addressing table of the hashes that begin with one byte. The zero hash marks a
// free slot.
type hashShard struct {
	mu    sync.Mutex
	slots []Hash
	n     int // slots in use
	zero  bool
}

// Add adds h and reports whether it is new.
func (s *HashSet) Add(h Hash) bool {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	t := &s.shards[h[0]]
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.IsZero() {
		added := !t.zero
		t.zero = true
		return added
	}
	if 4*(t.n+1) > 3*len(t.slots) {
		t.grow(s.seed)
	}
	i, found := t.find(s.seed, h)
	if !found {
		t.slots[i] = h
		t.n++
	}
	return !found
}

// Has reports whether h is in the set.
func (s *HashSet) Has(h Hash) bool {
	t := &s.shards[h[0]]
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.IsZero() {
		return t.zero
	}
	if t.n == 0 {
		return false
	}
	_, found := t.find(s.seed, h)
	return found
}

// Len returns the number of hashes.
func (s *HashSet) Len() int {
	n := 0
	for i := range s.shards {
		t := &s.shards[i]
		t.mu.Lock()
		n += t.n
		if t.zero {
			n++
		}
		t.mu.Unlock()
	}
	return n
}

// All yields the hashes in order. It may leave out hashes that are added meanwhile.
func (s *HashSet) All() iter.Seq[Hash] {
	return func(yield func(Hash) bool) {
		for i := range s.shards {
			for _, h := range s.shards[i].sorted() {
				if !yield(h) {
					return
				}
			}
		}
	}
}

func (t *hashShard) sorted() []Hash {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Hash, 0, t.n+1)
	if t.zero {
		list = append(list, Hash{})
	}
	for _, h := range t.slots {
		if !h.IsZero() {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, Hash.Compare)
	return list
}

// find returns the slot of h, or else the free slot for it. There must be a free slot.
func (t *hashShard) find(seed maphash.Seed, h Hash) (int, bool) {
	hi, _ := bits.Mul64(maphash.Bytes(seed, h[:]), uint64(len(t.slots)))
	for i := int(hi); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if t.slots[i] == h {
			return i, true
		}
		if t.slots[i].IsZero() {
			return i, false
		}
	}
}

// grow adds three eighths: doubling would leave half of the room unused.
func (t *hashShard) grow(seed maphash.Seed) {
	old := t.slots
	t.slots = make([]Hash, max(8, len(old)+len(old)*3/8))
	for _, h := range old {
		if !h.IsZero() {
			i, _ := t.find(seed, h)
			t.slots[i] = h
		}
	}
}
