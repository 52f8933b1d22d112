package beast2

// A shape is a type in a form for walks over values: backreferences are expanded, and each Recursive is replaced by an
// edge to the shape it refers to. Shapes are immutable once made.
type shape struct {
	kind  Kind
	empty bool     // values take no bytes
	typ   Type     // as written, for names and messages; may be open
	kids  []*shape // element; key and value; fields; cases; none for functions
}

// shapeOf makes the shape of t, which must be complete.
func shapeOf(t Type) *shape {
	c := shaper{}
	return c.shape(t)
}

type shaper struct {
	around     []*shape // the composites around the shape being made
	primitives [len(kindNames)]*shape
}

func (c *shaper) shape(t Type) *shape {
	k := t.Kind()
	if k == KindRecursive {
		return c.around[len(c.around)-t.n.up]
	}
	if k.primitive() {
		if c.primitives[k] == nil {
			c.primitives[k] = &shape{kind: k, typ: t, empty: k == KindNull}
		}
		return c.primitives[k]
	}
	s := &shape{kind: k, typ: t}
	c.around = append(c.around, s)
	switch k {
	case KindArray, KindSet, KindRef:
		s.kids = []*shape{c.shape(t.n.elem)}
	case KindDict:
		s.kids = []*shape{c.shape(t.n.key), c.shape(t.n.elem)}
	case KindStruct, KindVariant:
		s.kids = make([]*shape, len(t.n.list.fields))
		empty := k == KindStruct
		for i, f := range t.n.list.fields {
			s.kids[i] = c.shape(f.Type)
			empty = empty && s.kids[i].empty
		}
		// Set this last: meanwhile a struct that contains itself, whose values would be infinite, does not count as
		// empty.
		s.empty = empty
	}
	c.around = c.around[:len(c.around)-1]
	return s
}

// name returns the name of field or case i.
func (s *shape) name(i int) string { return s.typ.n.list.fields[i].Name }

// A unifier finds out whether shapes from different places are the same type, since a package repeats types. It
// remembers equal shapes, so that all comparisons together cost little more than one walk over the shapes. After a
// result of false, the unifier must not be used again.
type unifier map[*shape]*shape

func (u unifier) find(s *shape) *shape {
	for u[s] != nil {
		if up := u[u[s]]; up != nil {
			u[s] = up
		}
		s = u[s]
	}
	return s
}

func (u unifier) same(a, b *shape) bool {
	type pair struct{ a, b *shape }
	todo := []pair{{a, b}}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		a, b := u.find(p.a), u.find(p.b)
		if a == b {
			continue
		}
		if !a.alike(b) {
			return false
		}
		u[a] = b
		for i := range a.kids {
			todo = append(todo, pair{a.kids[i], b.kids[i]})
		}
	}
	return true
}

// alike compares two shapes themselves, without their kids.
func (s *shape) alike(t *shape) bool {
	if s.kind != t.kind || len(s.kids) != len(t.kids) {
		return false
	}
	switch s.kind {
	case KindStruct, KindVariant:
		for i := range s.kids {
			if s.name(i) != t.name(i) {
				return false
			}
		}
	case KindFunction, KindAsyncFunction:
		return s.typ.Equal(t.typ) // complete: signatures take no part in recursion
	}
	return true
}

// describe names a shape in messages.
func (s *shape) describe() string { return describe(s.typ) }
