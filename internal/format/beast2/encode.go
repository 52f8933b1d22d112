package beast2

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode returns the complete file of a value of type t. Decode reads every file that it returns. A decoded value
// encodes to the bytes that it came from. A value that does not fit the type is a *ValueError.
func Encode(t Type, v Value) ([]byte, error) { return encode(t, v, nil) }

// encode reports faults at paths under at.
func encode(t Type, v Value, at path) ([]byte, error) {
	b, err := appendHeader(nil, t)
	if err != nil {
		return nil, &ValueError{at.String(), err.Error()}
	}
	e := encoder{b: b, marks: map[Value]mark{}, same: unifier{}, path: at}
	if err := e.value(shapeOf(t), v); err != nil {
		return nil, err
	}
	if e.free > freeValues+freePerByte*len(e.b) {
		return nil, &ValueError{at.String(), fmt.Sprintf(
			"%d values without bytes: at most %d and %d for each byte of the file",
			e.free, freeValues, freePerByte)}
	}
	return e.b, nil
}

type encoder struct {
	b     []byte
	marks map[Value]mark
	same  unifier
	path  path
	depth int
	inKey int // enclosing keys
	free  int // Nulls and Structs written
}

// A mark is the place where a container was written.
type mark struct {
	off   int // content position
	shape *shape
}

func (e *encoder) fail(format string, args ...any) error {
	return &ValueError{e.path.String(), fmt.Sprintf(format, args...)}
}

// value writes v. If v does not have the Go type of the shape, the error names v's type.
func (e *encoder) value(s *shape, v Value) error {
	ok := false
	switch s.kind {
	case KindNever:
		return e.fail("there is no value of type Never")
	case KindNull:
		ok = v == nil
		e.free++
	case KindBoolean:
		var x bool
		if x, ok = v.(bool); ok {
			e.b = AppendBoolean(e.b, x)
		}
	case KindInteger, KindDateTime:
		var x int64
		if x, ok = v.(int64); ok {
			e.b = AppendInteger(e.b, x)
		}
	case KindFloat:
		var x float64
		if x, ok = v.(float64); ok {
			e.b = appendFloatBits(e.b, x)
		}
	case KindString:
		var x string
		if x, ok = v.(string); ok {
			start := len(e.b)
			e.b = AppendString(e.b, x)
			if i := checkWTF8(e.b[len(e.b)-len(x):]); i >= 0 {
				e.b = e.b[:start]
				return e.fail("string is not UTF-8 at its byte %d", i)
			}
		}
	case KindBlob:
		var x []byte
		if x, ok = v.([]byte); ok {
			e.b = AppendBlob(e.b, x)
		}
	default:
		if e.depth++; e.depth > maxDepth {
			return e.fail("value nests deeper than %d", maxDepth)
		}
		err := e.composite(s, v)
		e.depth--
		return err
	}
	if !ok {
		return e.fail("want %s, got %T", s.kind, v)
	}
	return nil
}

// appendFloatBits keeps the negative NaN, which a Reader accepts; other NaNs become canonical.
func appendFloatBits(b []byte, f float64) []byte {
	if bits := math.Float64bits(f); bits == negNaNBits {
		return binary.LittleEndian.AppendUint64(b, bits)
	}
	return AppendFloat(b, f)
}

func (e *encoder) composite(s *shape, v Value) error {
	switch s.kind {
	case KindStruct:
		if r, ok := v.(Record); ok {
			return e.record(s, r)
		}
	case KindVariant:
		if c, ok := v.(Case); ok {
			return e.variant(s, c)
		}
	case KindFunction, KindAsyncFunction:
		if c, ok := v.(Case); ok {
			if want := irCase(s.kind); c.Tag != want {
				return e.fail("want the IR case %s of a %s, got case %d", ir().shape.name(want), s.kind, c.Tag)
			}
			return e.value(ir().shape, c)
		}
	case KindRef:
		if c, ok := v.(*Cell); ok && c != nil {
			return e.cell(s, c)
		}
	case KindDict:
		if m, ok := v.(*Map); ok && m != nil {
			return e.entries(s, m)
		}
	default:
		if l, ok := v.(*List); ok && l != nil {
			return e.items(s, l)
		}
	}
	return e.fail("want %s, got %T", s.kind, v)
}

func (e *encoder) record(s *shape, r Record) error {
	e.free++
	if len(r) != len(s.kids) {
		return e.fail("want %d fields, got %d", len(s.kids), len(r))
	}
	for i, kid := range s.kids {
		e.path.push(named(s.name(i)))
		if err := e.value(kid, r[i]); err != nil {
			return err
		}
		e.path.pop()
	}
	return nil
}

func (e *encoder) variant(s *shape, c Case) error {
	if c.Tag < 0 || c.Tag >= len(s.kids) {
		return e.fail("variant tag %d is not in 0 to %d", c.Tag, len(s.kids)-1)
	}
	e.b = AppendVarint(e.b, uint64(c.Tag))
	e.path.push(named("value"))
	if err := e.value(s.kids[c.Tag], c.Value); err != nil {
		return err
	}
	e.path.pop()
	return nil
}

// container writes the marker or the backreference of v, and reports whether its content follows.
func (e *encoder) container(s *shape, v Value) (inline bool, err error) {
	m, seen := e.marks[v]
	if !seen {
		e.b = AppendInline(e.b)
		e.marks[v] = mark{len(e.b), s}
		return true, nil
	}
	switch {
	case e.inKey > 0:
		return false, e.fail("a key shares a container")
	case len(e.b) == m.off:
		return false, e.fail("a Ref is its own content, which the format cannot express")
	case !e.same.same(m.shape, s):
		return false, e.fail("a container of type %s is used as %s", m.shape.describe(), s.describe())
	}
	e.b = AppendVarint(e.b, uint64(len(e.b)-m.off))
	return false, nil
}

func (e *encoder) cell(s *shape, c *Cell) error {
	if inline, err := e.container(s, c); !inline {
		return err
	}
	e.path.push(named("ref"))
	if err := e.value(s.kids[0], c.Value); err != nil {
		return err
	}
	e.path.pop()
	return nil
}

func (e *encoder) items(s *shape, l *List) error {
	if inline, err := e.container(s, l); !inline {
		return err
	}
	e.b = AppendVarint(e.b, uint64(len(l.Items)))
	if s.kind == KindSet {
		e.inKey++
	}
	for i, v := range l.Items {
		e.path.push(indexed(i))
		if err := e.value(s.kids[0], v); err != nil {
			return err
		}
		e.path.pop()
	}
	if s.kind == KindArray {
		return nil
	}
	e.inKey--
	return e.unique(s.kids[0], len(l.Items), func(i int) Value { return l.Items[i] })
}

func (e *encoder) entries(s *shape, m *Map) error {
	if inline, err := e.container(s, m); !inline {
		return err
	}
	e.b = AppendVarint(e.b, uint64(len(m.Entries)))
	for i, entry := range m.Entries {
		e.path.push(indexed(i))
		e.path.push(indexed(0))
		e.inKey++
		if err := e.value(s.kids[0], entry.Key); err != nil {
			return err
		}
		e.inKey--
		e.path.pop()
		e.path.push(indexed(1))
		if err := e.value(s.kids[1], entry.Value); err != nil {
			return err
		}
		e.path.pop()
		e.path.pop()
	}
	return e.unique(s.kids[0], len(m.Entries), func(i int) Value { return m.Entries[i].Key })
}

// unique refuses repeated keys. It runs after the keys were written, which ensures that they are trees of the right
// type.
func (e *encoder) unique(key *shape, n int, keys func(int) Value) error {
	if i, j, found := duplicate(key, n, keys); found {
		return e.fail("keys %d and %d are the same", i, j)
	}
	return nil
}
