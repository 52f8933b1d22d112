package reach

import (
	"iter"

	"e3/objectstore"
)

// A Set is the result of a walk: objects, each with the kinds of the references that led to it. An object that is met
// as a file and then as a directory is read as a directory. It is safe for concurrent use.
type Set struct{ kind [kinds]objectstore.HashSet }

// NewSet returns an empty Set.
func NewSet() *Set { return new(Set) }

// covers are, by kind, the kinds that lead to the same objects and more, so that a reference of the first kind is
// needless.
var covers = [kinds][]Kind{
	File:      {Dir, Node, Task, Package, FileOrDir, Dirs, Nodes, Image},
	FileOrDir: {Dir},
	Dirs:      {Dir},
	Nodes:     {Node},
}

// Add adds r and reports whether to follow it.
func (s *Set) Add(r Ref) bool {
	for _, k := range covers[r.Kind] {
		if s.kind[k].Has(r.Hash) {
			return false
		}
	}
	return s.kind[r.Kind].Add(r.Hash)
}

// Has reports whether an object was met, as any kind.
func (s *Set) Has(h objectstore.Hash) bool {
	for k := range s.kind {
		if s.kind[k].Has(h) {
			return true
		}
	}
	return false
}

// Of returns the objects that were met as one kind, except those that another kind in the set covers.
func (s *Set) Of(k Kind) *objectstore.HashSet { return &s.kind[k] }

// All yields the objects in order, each once.
func (s *Set) All() iter.Seq[objectstore.Hash] {
	return func(yield func(objectstore.Hash) bool) {
		type head struct {
			h    objectstore.Hash
			next func() (objectstore.Hash, bool)
		}
		var heads []head
		for k := range s.kind {
			next, stop := iter.Pull(s.kind[k].All())
			defer stop()
			if h, ok := next(); ok {
				heads = append(heads, head{h, next})
			}
		}
		for len(heads) > 0 {
			least := heads[0].h
			for _, other := range heads[1:] {
				if other.h.Compare(least) < 0 {
					least = other.h
				}
			}
			if !yield(least) {
				return
			}
			left := heads[:0]
			for _, it := range heads {
				ok := true
				if it.h == least {
					it.h, ok = it.next()
				}
				if ok {
					left = append(left, it)
				}
			}
			heads = left
		}
	}
}
