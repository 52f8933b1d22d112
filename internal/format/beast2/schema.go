package beast2

import (
	"fmt"
	"sort"
	"unicode/utf8"
)

const (
	// maxDepth bounds the nesting of composites, in a schema and in a value. Recursion over a schema or a value then
	// needs at most some 20 MB of stack. The reference crashes on shallower nesting.
	maxDepth = 1 << 15

	// freeTypes bounds the nodes of a schema with its backreferences expanded, unless
	// the schema has more bytes than that. It stops schemas that double at every level.
	freeTypes = 1 << 14
)

// Header returns the bytes in front of every value of type t: the magic and the schema. It panics
// if t is not complete, that is, if a Recursive in it points outside.
func Header(t Type) []byte { return must(appendHeader(nil, t)) }

func appendHeader(b []byte, t Type) ([]byte, error) {
	m := t.measure()
	if m.reach > 0 {
		return nil, fmt.Errorf("type %s is not complete: a Recursive points %d levels outside of it", describe(t), m.reach)
	}
	if m.height > maxDepth {
		return nil, fmt.Errorf("type nests deeper than %d", maxDepth)
	}
	b = append(b, Magic...)
	start := len(b)
	w := schemaWriter{b: b, at: map[*list]int{}}
	w.typ(t)
	if m.size > max(freeTypes, len(w.b)-start) {
		return nil, fmt.Errorf("type expands to more than %d nodes", freeTypes)
	}
	return w.b, nil
}

// describe shortens a type for an error message.
func describe(t Type) string {
	const most = 400
	if t.measure().size > freeTypes {
		return "a large " + t.Kind().String()
	}
	s := t.String()
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// A schemaWriter encodes a type as a value of the variant EastType.
type schemaWriter struct {
	b  []byte
	at map[*list]int // content position of each list's latest inline occurrence
}

func (w *schemaWriter) typ(t Type) {
	k := t.Kind()
	w.b = AppendVarint(w.b, uint64(k))
	switch k {
	case KindArray, KindSet, KindRef:
		w.typ(t.n.elem)
	case KindDict:
		w.typ(t.n.key)
		w.typ(t.n.elem)
	case KindRecursive:
		w.b = AppendInteger(w.b, int64(t.n.up))
	case KindStruct, KindVariant:
		w.list(t.n)
	case KindFunction, KindAsyncFunction:
		w.list(t.n)
		w.typ(t.n.elem)
	}
}

func (w *schemaWriter) list(n *node) {
	if n.use {
		if at, ok := w.at[n.list]; ok {
			w.b = AppendVarint(w.b, uint64(len(w.b)-at))
			return
		}
	}
	w.b = AppendInline(w.b)
	w.at[n.list] = len(w.b)
	w.b = AppendVarint(w.b, uint64(len(n.list.fields)))
	for _, f := range n.list.fields {
		if n.list.kind == fieldList {
			w.b = AppendString(w.b, f.Name)
		}
		w.typ(f.Type)
	}
}

// A schemaReader decodes a type. The Reader keeps the first fault.
type schemaReader struct {
	in    *Reader
	depth int          // composites around the type being read
	lists []listOffset // in order of their offsets
}

type listOffset struct {
	off  int // content position
	list *list
	kind listKind // known before the list is complete
}

// readHeader checks the magic and reads the schema behind it.
func readHeader(in *Reader) Type {
	for i := range len(Magic) {
		if in.off+i >= len(in.data) {
			in.Failf(in.off+i, "input ends inside the magic")
			return Null
		}
		if c := in.data[in.off+i]; c != Magic[i] {
			in.Failf(in.off+i, "not beast2: byte is %#02x, want %#02x", c, Magic[i])
			return Null
		}
	}
	in.off += len(Magic)
	return readSchema(in)
}

func readSchema(in *Reader) Type {
	start := in.off
	r := schemaReader{in: in}
	t := r.typ()
	if t.measure().size > max(freeTypes, in.off-start) {
		in.Failf(start, "schema expands to more than %d types", freeTypes)
	}
	if in.err != nil {
		return Null
	}
	return t
}

func (r *schemaReader) typ() Type {
	at := r.in.off
	k := Kind(r.in.Tag(len(kindNames)))
	if r.in.err != nil {
		return Null
	}
	if k.primitive() {
		return primitives[k]
	}
	if k == KindRecursive {
		return r.recursive()
	}
	if r.depth++; r.depth > maxDepth {
		r.in.Failf(at, "schema nests deeper than %d", maxDepth)
		return Null
	}
	n := node{kind: k}
	switch k {
	case KindArray, KindSet, KindRef:
		n.elem = r.typ()
	case KindDict:
		n.key = r.typ()
		n.elem = r.typ()
	case KindStruct, KindVariant:
		n.list, n.use = r.list(fieldList)
	case KindFunction, KindAsyncFunction:
		n.list, n.use = r.list(inputList)
		n.elem = r.typ()
	}
	r.depth--
	if r.in.err != nil {
		return Null
	}
	t, err := newType(n)
	if err != nil {
		r.in.Failf(at, "%v", err)
	}
	return t
}

func (r *schemaReader) recursive() Type {
	at := r.in.off
	n := r.in.Integer()
	if r.in.err != nil {
		return Null
	}
	t, err := newRecursive(n)
	if err != nil {
		r.in.Failf(at, "%v", err)
	} else if n > int64(r.depth) {
		r.in.Failf(at, "recursion number %d points outside the schema", n)
	}
	return t
}

// list reads a list or a backreference to a list; the result is true for a backreference.
func (r *schemaReader) list(kind listKind) (*list, bool) {
	at := r.in.off
	if back := r.in.length("backreference"); r.in.err != nil {
		return nil, false
	} else if back != 0 {
		return r.backreference(kind, at, back), true
	}
	mark := len(r.lists)
	r.lists = append(r.lists, listOffset{off: r.in.off, kind: kind})
	n := r.in.Count(1)
	fields := make([]Field, 0, min(n, 16))
	for range n {
		var f Field
		if kind == fieldList {
			f.Name = r.in.String()
		}
		f.Type = r.typ()
		if r.in.err != nil {
			return nil, false
		}
		fields = append(fields, f)
	}
	if r.in.err != nil {
		return nil, false
	}
	l, err := newList(kind, fields)
	if err != nil {
		r.in.Failf(at, "%v", err)
		return nil, false
	}
	r.lists[mark].list = l
	return l, false
}

func (r *schemaReader) backreference(kind listKind, at int, back uint64) *list {
	i, ok := sort.Find(len(r.lists), func(i int) int { return at - int(back) - r.lists[i].off })
	switch {
	case back > uint64(at) || !ok:
		r.in.Failf(at, "backreference to %d bytes before hits no container", back)
		return nil
	case r.lists[i].kind != kind:
		r.in.Failf(at, "backreference to %s where %s belongs", r.lists[i].kind, kind)
		return nil
	case r.lists[i].list == nil:
		r.in.Failf(at, "schema contains itself")
		return nil
	}
	l := r.lists[i].list
	switch {
	case l.reach > r.depth:
		r.in.Failf(at, "recursion number in the shared %s points outside the schema", kind)
	case l.height > maxDepth-r.depth:
		r.in.Failf(at, "schema nests deeper than %d", maxDepth)
	}
	return l
}
