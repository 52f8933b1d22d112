package codec

import (
	"bytes"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unsafe"

	"e3/internal/format/beast2"
)

// A Custom is a type that encodes, decodes and describes itself. A pointer to it has these methods.
type Custom interface {
	BeastType() beast2.Type
	AppendBeast(b []byte) []byte
	ReadBeast(r *Reader)
}

// Cases is implemented by an enumeration. It returns the names of the values 0, 1 and so on.
type Cases interface{ Cases() []string }

// A coder encodes, decodes and describes one Go type. Its pointers lead to a value of that type.
type coder struct {
	typ     beast2.Type
	width   int // the least number of its bytes
	custom  bool
	append  func(b []byte, p unsafe.Pointer) []byte
	read    func(r *Reader, p unsafe.Pointer)
	present func(p unsafe.Pointer) *bool // the field with the option present of a struct that has one
}

// options holds the content of a field's tag.
type options struct {
	name                                                 string
	whole                                                bool // the field is the struct
	option, dict, present, micros, sorted, variant, bare bool
	in, of                                               string
	least, most                                          int64
	bounded                                              bool
}

func optionsOf(f reflect.StructField) options {
	o := options{least: math.MinInt64, most: math.MaxInt64}
	name, rest, _ := strings.Cut(f.Tag.Get("beast2"), ",")
	if o.name, o.whole = name, name == "*"; name == "" || o.whole {
		o.name = nameOf(f.Name)
	}
	for word := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "option":
			o.option = true
		case "dict":
			o.dict = true
		case "present":
			o.present = true
		case "us":
			o.micros = true
		case "sorted":
			o.sorted = true
		case "case":
			o.variant = true
		case "bare":
			o.bare = true
		case "in":
			o.in = value
		case "of":
			o.of = value
		case "min":
			o.least, o.bounded = n, true
		case "max", "most":
			o.most, o.bounded = n, true
		}
	}
	return o
}

// nameOf returns the name in a record for a Go field: retryOn for RetryOn, runId for RunID, cpu for CPU.
func nameOf(field string) string {
	name := []byte(field)
	for i := range name {
		upper := func(k int) bool { return k >= len(field) || unicode.IsUpper(rune(field[k])) }
		if i == 0 || upper(i) && upper(i-1) && upper(i+1) {
			name[i] = byte(unicode.ToLower(rune(field[i])))
		}
	}
	return string(name)
}

// coderOf makes the coder of a type. It panics on a type that no record may have, so that a test of the record finds
// it.
func coderOf(t reflect.Type, o options) coder {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return scalar(beast2.DateTime, 1, AppendTime, (*Reader).Time)
	case t == reflect.TypeFor[time.Duration]():
		return durationCoder(o)
	case has[Custom](t):
		return customCoder(zero[Custom](t))
	case has[Cases](t):
		names := zero[Cases](t).Cases()
		return caseCoder(names[:min(o.most, int64(len(names))-1)+1])
	}
	switch t.Kind() {
	case reflect.String:
		return scalar(beast2.String, 1, beast2.AppendString, func(r *Reader) string { return r.String() })
	case reflect.Bool:
		return scalar(beast2.Boolean, 1, beast2.AppendBoolean, func(r *Reader) bool { return r.Boolean() })
	case reflect.Float64:
		return scalar(beast2.Float, 8, beast2.AppendFloat, func(r *Reader) float64 { return r.float(o) })
	case reflect.Int64:
		return scalar(beast2.Integer, 1, beast2.AppendInteger, func(r *Reader) int64 { return r.integer(o) })
	case reflect.Int:
		return scalar(beast2.Integer, 1, func(b []byte, n int) []byte { return beast2.AppendInteger(b, int64(n)) },
			func(r *Reader) int { return int(r.integer(o)) })
	case reflect.Uint32:
		o.least, o.most, o.bounded = 0, math.MaxUint32, true
		return scalar(beast2.Integer, 1, func(b []byte, n uint32) []byte { return beast2.AppendInteger(b, int64(n)) },
			func(r *Reader) uint32 { return uint32(r.integer(o)) })
	case reflect.Array:
		return arrayCoder(t)
	case reflect.Slice:
		return listCoder(t, o)
	case reflect.Pointer:
		return pointerCoder(t)
	case reflect.Struct:
		return structCoder(t)
	}
	panic("codec: a record cannot hold a " + t.String())
}

// has tells whether a pointer to the type has the methods of I. It asks only for types that can have methods, and makes
// no value: each process makes its plans anew, and a failed type assertion would be the most expensive part.
func has[I any](t reflect.Type) bool {
	return t.PkgPath() != "" && reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

// zero returns a new value of the type as an I.
func zero[I any](t reflect.Type) I { return reflect.New(t).Interface().(I) }

func scalar[T any](typ beast2.Type, width int, add func([]byte, T) []byte, read func(*Reader) T) coder {
	return coder{typ: typ, width: width,
		append: func(b []byte, p unsafe.Pointer) []byte { return add(b, *(*T)(p)) },
		read:   func(r *Reader, p unsafe.Pointer) { *(*T)(p) = read(r) },
	}
}

// AppendTime appends a DateTime, which counts milliseconds.
func AppendTime(b []byte, t time.Time) []byte { return beast2.AppendInteger(b, t.UnixMilli()) }

// Time reads a DateTime, in UTC.
func (r *Reader) Time() time.Time { return time.UnixMilli(r.Integer()).UTC() }

// integer reads a number, and refuses one outside of the range.
func (r *Reader) integer(o options) int64 {
	at := r.Offset()
	n := r.Integer()
	if o.bounded && (n < o.least || n > o.most) {
		r.Failf(at, "%s: %d is out of range", o.name, n)
		return 0
	}
	return n
}

// float reads a number. If the options have a least number, it refuses smaller numbers, and NaN and infinities, which
// would spoil a sum.
func (r *Reader) float(o options) float64 {
	at := r.Offset()
	v := r.Float()
	if o.bounded && !(v >= float64(o.least) && v <= math.MaxFloat64) {
		r.Failf(at, "%s: %v is out of range", o.name, v)
		return 0
	}
	return v
}

// durationCoder refuses a duration that is negative or that a time.Duration cannot hold.
func durationCoder(o options) coder {
	unit := time.Millisecond
	if o.micros {
		unit = time.Microsecond
	}
	o.least, o.most, o.bounded = 0, math.MaxInt64/int64(unit), true
	return scalar(beast2.Integer, 1, func(b []byte, d time.Duration) []byte { return beast2.AppendInteger(b, int64(d/unit)) },
		func(r *Reader) time.Duration { return time.Duration(r.integer(o)) * unit })
}

func caseCoder(names []string) coder {
	cases := make([]beast2.Field, len(names))
	for i, name := range names {
		cases[i] = beast2.F(name, beast2.Null)
	}
	return scalar(beast2.Variant(cases...), 1, func(b []byte, n int) []byte { return beast2.AppendVarint(b, uint64(n)) },
		func(r *Reader) int { return r.Tag(len(names)) })
}

func customCoder(v Custom) coder {
	typ := v.BeastType()
	return coder{typ: typ, width: widthOf(typ), custom: true,
		append: func(b []byte, p unsafe.Pointer) []byte { return at(v, p).AppendBeast(b) },
		read:   func(r *Reader, p unsafe.Pointer) { at(v, p).ReadBeast(r) },
	}
}

// widthOf is the least number of bytes of a Struct's fields, or 1, the least for any other type in a record.
func widthOf(t beast2.Type) int {
	if t.Kind() != beast2.KindStruct {
		return 1
	}
	width := 0
	for _, f := range t.Fields() {
		width += widthOf(f.Type)
	}
	return width
}

// at returns the interface of the value at p, which has the type of like. reflect.NewAt would do the same, but take
// most of the time for a record with many such values.
func at[I any](like I, p unsafe.Pointer) I {
	(*struct{ table, value unsafe.Pointer })(unsafe.Pointer(&like)).value = p
	return like
}

type checker interface{ Check() error }

// arrayCoder codes an array of bytes, as a Blob of the array's length.
func arrayCoder(t reflect.Type) coder {
	n := t.Len()
	return coder{typ: beast2.Blob, width: 1 + n,
		append: func(b []byte, p unsafe.Pointer) []byte { return beast2.AppendBlob(b, unsafe.Slice((*byte)(p), n)) },
		read: func(r *Reader, p unsafe.Pointer) {
			at := r.Offset()
			blob := r.Blob()
			if r.Err() == nil && len(blob) != n {
				r.Failf(at, "it has %d bytes, want %d", len(blob), n)
			}
			copy(unsafe.Slice((*byte)(p), n), blob)
		},
	}
}

// A list has the memory layout of a slice.
type list struct {
	first    unsafe.Pointer
	len, cap int
}

func listCoder(t reflect.Type, o options) coder {
	if t.Elem().Kind() == reflect.Uint8 {
		return scalar(beast2.Blob, 1, beast2.AppendBlob, func(r *Reader) []byte { // a part of the decoded bytes: it can be large
			blob := r.Blob()
			if len(blob) == 0 {
				return nil
			}
			return blob[:len(blob):len(blob)]
		})
	}
	elem, size := coderOf(t.Elem(), options{name: o.name, least: math.MinInt64, most: math.MaxInt64}), t.Elem().Size()
	c := coder{typ: beast2.Array(elem.typ), width: 2}
	if o.dict {
		fields := elem.typ.Fields()
		value := fields[1].Type
		if len(fields) > 2 {
			value = beast2.Struct(fields[1:]...)
		}
		c.typ = beast2.Dict(fields[0].Type, value)
	}
	c.append = func(b []byte, p unsafe.Pointer) []byte {
		l := (*list)(p)
		b = beast2.AppendVarint(beast2.AppendInline(b), uint64(l.len))
		for i := range l.len {
			b = elem.append(b, unsafe.Add(l.first, uintptr(i)*size))
		}
		return b
	}
	c.read = func(r *Reader, p unsafe.Pointer) {
		r.Inline()
		at := r.Offset()
		n := r.Length(elem.width, size)
		if o.bounded && int64(n) > o.most {
			r.Failf(at, "%s: %d are more than %d", o.name, n, o.most)
		} else if o.bounded && int64(n) < o.least {
			r.Failf(at, "%s is empty", o.name)
		}
		if n == 0 || r.Err() != nil {
			return
		}
		if t.Elem().Kind() == reflect.String {
			*(*[]string)(p) = make([]string, n)
		} else {
			s := reflect.NewAt(t, p).Elem()
			s.Grow(n)
			s.SetLen(n)
		}
		first := (*list)(p).first
		for i := 0; i < n && r.Err() == nil; i++ {
			elem.read(r, unsafe.Add(first, uintptr(i)*size))
		}
		if o.sorted && r.Err() == nil {
			checkSorted(r, at, *(*[]string)(p))
		}
	}
	return c
}

func checkSorted(r *Reader, at int, names []string) {
	for i := 1; i < len(names); i++ {
		if beast2.CompareStrings(names[i-1], names[i]) >= 0 {
			r.Failf(at, "name %q is out of order", names[i])
			return
		}
	}
}

// pointerCoder codes a pointer as an Option: nil is none.
func pointerCoder(t reflect.Type) coder {
	elem := coderOf(t.Elem(), options{})
	return coder{typ: beast2.Option(elem.typ), width: 1,
		append: func(b []byte, p unsafe.Pointer) []byte {
			if to := *(*unsafe.Pointer)(p); to != nil {
				return elem.append(append(b, 1), to)
			}
			return append(b, 0)
		},
		read: func(r *Reader, p unsafe.Pointer) {
			if r.Tag(2) == 1 {
				r.spend(r.Offset(), int64(t.Elem().Size()))
				v := reflect.New(t.Elem())
				elem.read(r, v.UnsafePointer())
				reflect.NewAt(t, p).Elem().Set(v)
			}
		},
	}
}

// optional codes an Option. A value with the bytes of the zero value is none, and some with these bytes is refused;
// with a present field, that field decides.
func (c coder) optional(t reflect.Type, name string) coder {
	none := c.append(nil, reflect.New(t).UnsafePointer())
	return coder{typ: beast2.Option(c.typ), width: 1,
		append: func(b []byte, p unsafe.Pointer) []byte {
			at := len(b)
			if c.present != nil && !*c.present(p) {
				return append(b, 0)
			}
			if b = c.append(append(b, 1), p); c.present == nil && bytes.Equal(b[at+1:], none) {
				return append(b[:at], 0)
			}
			return b
		},
		read: func(r *Reader, p unsafe.Pointer) {
			if r.Tag(2) == 0 {
				return
			}
			at := r.Offset()
			if c.read(r, p); c.present != nil {
				*c.present(p) = true
			} else if r.Err() == nil && bytes.Equal(r.Data[at:r.Offset()], none) {
				r.Failf(at, "%s is present but says nothing", name)
			}
		},
	}
}
