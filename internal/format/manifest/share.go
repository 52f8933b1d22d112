package manifest

import (
	"hash/maphash"
	"slices"

	"e3/internal/format/record"
)

// A sharer lets equal parts of tasks share memory, because a large package has few distinct commands, environments and
// policies. The shared parts are read-only.
type sharer struct {
	seed         maphash.Seed
	texts        map[string]string
	lists        map[uint64][]string
	environments map[uint64]*Environment
	policies     map[string]*record.Policy
}

func newSharer() *sharer {
	return &sharer{
		seed:         maphash.MakeSeed(),
		texts:        map[string]string{},
		lists:        map[uint64][]string{},
		environments: map[uint64]*Environment{},
		policies:     map[string]*record.Policy{},
	}
}

// maxShared bounds each map. After this many distinct values, later ones are probably distinct too.
const maxShared = 1 << 14

// remember enters a new value.
func remember[K comparable, V any](m map[K]V, key K, value V) V {
	if len(m) < maxShared {
		m[key] = value
	}
	return value
}

// text shares a short string.
func (s *sharer) text(t string) string {
	const longest = 64
	if len(t) > longest {
		return t
	}
	if known, ok := s.texts[t]; ok {
		return known
	}
	return remember(s.texts, t, t)
}

// strings shares a list. The maps' keys are hashes, which take less memory than lists; a found list is compared.
func (s *sharer) strings(list []string) []string {
	var h maphash.Hash
	h.SetSeed(s.seed)
	writeStrings(&h, list)
	key := h.Sum64()
	known, ok := s.lists[key]
	switch {
	case !ok:
		return remember(s.lists, key, list)
	case slices.Equal(known, list):
		return known
	}
	return list
}

func (s *sharer) environment(e Environment) *Environment {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, b := range e.Set {
		h.WriteString(b.Name)
		h.WriteByte(0)
		h.WriteString(b.Value)
		h.WriteByte(0)
	}
	h.WriteByte(1)
	writeStrings(&h, e.Pass)
	h.WriteByte(1)
	writeStrings(&h, e.Secrets)
	h.WriteByte(1)
	writeStrings(&h, e.Keyed)
	h.WriteByte(1)
	writeStrings(&h, e.Tools)
	key := h.Sum64()
	known, ok := s.environments[key]
	switch {
	case !ok:
		return remember(s.environments, key, &e)
	case slices.Equal(known.Set, e.Set) && slices.Equal(known.Pass, e.Pass) && slices.Equal(known.Secrets, e.Secrets) &&
		slices.Equal(known.Keyed, e.Keyed) && slices.Equal(known.Tools, e.Tools):
		return known
	}
	return &e
}

// policy compares policies by their bytes, so that no field can be forgotten.
func (s *sharer) policy(p record.Policy) *record.Policy {
	key := p.Encode()
	if known, ok := s.policies[string(key)]; ok {
		return known
	}
	return remember(s.policies, string(key), &p)
}

func writeStrings(h *maphash.Hash, list []string) {
	for _, s := range list {
		h.WriteString(s)
		h.WriteByte(0)
	}
}
