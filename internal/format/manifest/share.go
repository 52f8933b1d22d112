package manifest

import "e3/internal/format/record"

// A sharer lets equal parts of tasks share memory, because a large package has few distinct commands, environments and
// policies. The shared parts are read-only. They are found by their bytes.
type sharer struct {
	texts        map[string]string
	lists        map[string][]string
	environments map[string]*Environment
	policies     map[string]*record.Policy
}

func newSharer() *sharer {
	return &sharer{
		texts:        map[string]string{},
		lists:        map[string][]string{},
		environments: map[string]*Environment{},
		policies:     map[string]*record.Policy{},
	}
}

const (
	maxShared = 1 << 14 // values of each map; after so many distinct ones, later ones are probably distinct too
	maxKey    = 4 << 10 // bytes of a key
)

// share returns the first value that had the bytes of key.
func share[K string | []byte, V any](known map[string]V, key K, value V) V {
	if len(key) > maxKey {
		return value
	}
	if first, ok := known[string(key)]; ok {
		return first
	}
	if len(known) < maxShared {
		known[string(key)] = value
	}
	return value
}

// text shares a short string.
func (s *sharer) text(t string) string {
	const longest = 64
	if len(t) > longest {
		return t
	}
	return share(s.texts, t, t)
}

func (s *sharer) strings(list []string) []string {
	return share(s.lists, appendTexts(make([]byte, 0, 256), list...), list)
}

func (s *sharer) environment(e Environment) *Environment {
	key := make([]byte, 0, 256)
	for _, v := range e.Set {
		key = appendTexts(key, v.Name, v.Value)
	}
	for _, names := range [][]string{e.Pass, e.Secrets, e.Keyed, e.Tools} {
		key = appendTexts(append(key, 1), names...) // no name begins with it
	}
	return share(s.environments, key, &e)
}

// policy compares policies by their bytes, so that no field can be forgotten.
func (s *sharer) policy(p record.Policy) *record.Policy { return share(s.policies, p.Encode(), &p) }

// appendTexts appends texts, none of which holds a NUL, until the key is too long.
func appendTexts(key []byte, texts ...string) []byte {
	for _, t := range texts {
		if key = append(append(key, t[:min(len(t), maxKey)]...), 0); len(key) > maxKey {
			break
		}
	}
	return key
}
