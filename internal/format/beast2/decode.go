package beast2

import (
	"sort"
)

// freeValues plus freePerByte for every byte of the file bounds the number of Nulls and Structs in a value. Nulls and
// Structs take no bytes, so an Array of them could have any count.
const (
	freeValues  = 1 << 16
	freePerByte = 4
)

// Decode reads a complete file. Errors are *SyntaxError. Blobs in the value share data's memory.
func Decode(data []byte) (Type, Value, error) {
	t, v, _, err := decode(data)
	return t, v, err
}

// decode also returns the containers that occur more than once.
func decode(data []byte) (Type, Value, map[Value]bool, error) {
	in := NewReader(data, 0)
	t := readHeader(in)
	if in.err != nil {
		return Null, nil, nil, in.err
	}
	v, shared, err := decodeValue(in, t)
	if err != nil {
		return Null, nil, nil, err
	}
	return t, v, shared, nil
}

func decodeValue(in *Reader, t Type) (Value, map[Value]bool, error) {
	d := decoder{
		in:     in,
		same:   unifier{},
		shared: map[Value]bool{},
		free:   freeValues + freePerByte*len(in.data),
		spare:  len(in.data),
	}
	v := d.value(shapeOf(t))
	if err := in.Done(); err != nil {
		return nil, nil, err
	}
	return v, d.shared, nil
}

// A decoder reads one value. The Reader keeps the first fault.
type decoder struct {
	in     *Reader
	same   unifier
	seen   []seenContainer // in order of their offsets
	shared map[Value]bool
	depth  int
	inKey  int // enclosing keys
	free   int // allowance of further Nulls and Structs
	spare  int // allowance of further elements to allocate ahead
}

type seenContainer struct {
	off   int // content position
	value Value
	shape *shape
}

func (d *decoder) value(s *shape) Value {
	at := d.in.off
	switch s.kind {
	case KindNever:
		d.in.Failf(at, "there is no value of type Never")
		return nil
	case KindNull:
		d.charge()
		return nil
	case KindBoolean:
		return d.in.Boolean()
	case KindInteger, KindDateTime:
		return d.in.Integer()
	case KindFloat:
		return d.in.Float()
	case KindString:
		return d.in.String()
	case KindBlob:
		return d.in.Blob()
	}
	if d.depth++; d.depth > maxDepth {
		d.in.Failf(at, "value nests deeper than %d", maxDepth)
	}
	if d.in.err != nil {
		return nil
	}
	var v Value
	switch s.kind {
	case KindStruct:
		v = d.record(s)
	case KindVariant:
		tag := d.in.Tag(len(s.kids))
		if d.in.err == nil {
			v = Case{tag, d.value(s.kids[tag])}
		}
	case KindFunction, KindAsyncFunction:
		v = d.function(s)
	default:
		v = d.container(s)
	}
	d.depth--
	return v
}

// charge counts a value that takes no bytes against the allowance.
func (d *decoder) charge() {
	if d.free--; d.free < 0 {
		d.in.Failf(d.in.off, "too many values without bytes: at most %d and %d for each byte of the input",
			freeValues, freePerByte)
	}
}

// room returns the number of elements to allocate at once, out of n declared ones. Large counts share an allowance, so
// that nested false counts cannot multiply.
func (d *decoder) room(n int) int {
	const small = 8
	if n <= small {
		return n
	}
	n = min(n, max(small, d.spare))
	d.spare -= n
	return n
}

func (d *decoder) record(s *shape) Value {
	d.charge()
	r := make(Record, 0, d.room(len(s.kids)))
	for _, kid := range s.kids {
		v := d.value(kid)
		if d.in.err != nil {
			return nil
		}
		r = append(r, v)
	}
	return r
}

func (d *decoder) function(s *shape) Value {
	at := d.in.off
	v := d.value(ir().shape)
	if d.in.err != nil {
		return nil
	}
	if tag, want := v.(Case).Tag, irCase(s.kind); tag != want {
		d.in.Failf(at, "IR of a %s is of case %s, not %s", s.kind, ir().shape.name(tag), ir().shape.name(want))
	}
	return v
}

func (d *decoder) container(s *shape) Value {
	at := d.in.off
	back := d.in.length("backreference")
	if d.in.err != nil {
		return nil
	}
	if back != 0 {
		return d.backreference(s, at, back)
	}
	switch s.kind {
	case KindRef:
		c := new(Cell)
		d.enter(c, s)
		c.Value = d.value(s.kids[0])
		return c
	case KindDict:
		m := new(Map)
		d.enter(m, s)
		d.entries(m, s, at)
		return m
	default:
		l := new(List)
		d.enter(l, s)
		d.items(l, s, at)
		return l
	}
}

// enter notes a container. It is called before its content is read, since the content may refer to the container.
func (d *decoder) enter(v Value, s *shape) {
	d.seen = append(d.seen, seenContainer{d.in.off, v, s})
}

func (d *decoder) items(l *List, s *shape, at int) {
	n, room := d.count(s.kids[0].empty)
	l.Items = make([]Value, 0, room)
	if s.kind == KindSet {
		d.inKey++
		defer func() { d.inKey-- }()
	}
	for range n {
		v := d.value(s.kids[0])
		if d.in.err != nil {
			return
		}
		l.Items = append(l.Items, v)
	}
	if s.kind == KindSet {
		d.unique(s.kids[0], at, n, func(i int) Value { return l.Items[i] })
	}
}

func (d *decoder) entries(m *Map, s *shape, at int) {
	n, room := d.count(s.kids[0].empty && s.kids[1].empty)
	m.Entries = make([]Entry, 0, room)
	for range n {
		d.inKey++
		key := d.value(s.kids[0])
		d.inKey--
		v := d.value(s.kids[1])
		if d.in.err != nil {
			return
		}
		m.Entries = append(m.Entries, Entry{key, v})
	}
	d.unique(s.kids[0], at, n, func(i int) Value { return m.Entries[i].Key })
}

// count reads the number of elements that follow, and returns also the number to allocate at once. Elements that take
// no bytes are bounded by charge. The allowance is checked here, too, so that the error for a false count has the
// count's offset.
func (d *decoder) count(empty bool) (n, room int) {
	if !empty {
		n = d.in.Count(1)
		return n, d.room(n)
	}
	at := d.in.off
	count := d.in.length("count")
	if d.in.err == nil && count > uint64(d.free) {
		d.in.Failf(at, "count %d of elements without bytes: at most %d and %d for each byte of the input",
			count, freeValues, freePerByte)
		return 0, 0
	}
	return int(count), int(count)
}

func (d *decoder) unique(key *shape, at, n int, keys func(int) Value) {
	if d.in.err != nil {
		return
	}
	if i, j, found := duplicate(key, n, keys); found {
		d.in.Failf(at, "keys %d and %d are the same", i, j)
	}
}

func (d *decoder) backreference(s *shape, at int, back uint64) Value {
	i, ok := sort.Find(len(d.seen), func(i int) int { return at - int(back) - d.seen[i].off })
	switch {
	case back > uint64(at) || !ok:
		d.in.Failf(at, "backreference to %d bytes before hits no container", back)
		return nil
	case d.inKey > 0:
		d.in.Failf(at, "backreference inside a key")
		return nil
	case !d.same.same(d.seen[i].shape, s):
		d.in.Failf(at, "backreference to %s where %s belongs", d.seen[i].shape.describe(), s.describe())
		return nil
	}
	d.shared[d.seen[i].value] = true
	return d.seen[i].value
}
