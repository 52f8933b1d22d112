package codec

import (
	"reflect"
	"strings"
	"time"
	"unsafe"

	"e3/internal/format/beast2"
)

// A field is a field of a struct that is part of the record.
type field struct {
	goType reflect.Type
	offset uintptr
	options
}

func fieldsOf(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		if o := optionsOf(f); o.name != "-" {
			fields = append(fields, field{f.Type, f.Offset, o})
		}
	}
	return fields
}

// A fieldCoder is the coder of a field at its offset. Most fields are texts, numbers and booleans without options: kind
// marks them and saves calls.
type fieldCoder struct {
	coder
	offset uintptr
	kind   reflect.Kind
}

func (f *field) coder() fieldCoder {
	c := coderOf(f.goType, f.options)
	if f.option {
		c = c.optional(f.goType, f.name)
	}
	kind := f.goType.Kind()
	if c.custom || f.option || f.bounded || c.typ.Kind() == beast2.KindVariant || f.goType == reflect.TypeFor[time.Duration]() {
		kind = reflect.Invalid
	}
	return fieldCoder{c, f.offset, kind}
}

func (f *fieldCoder) appendField(b []byte, p unsafe.Pointer) []byte {
	p = unsafe.Add(p, f.offset)
	switch f.kind {
	case reflect.String:
		return beast2.AppendString(b, *(*string)(p))
	case reflect.Int64:
		return beast2.AppendInteger(b, *(*int64)(p))
	case reflect.Bool:
		return beast2.AppendBoolean(b, *(*bool)(p))
	}
	return f.append(b, p)
}

func (f *fieldCoder) readField(r *Reader, p unsafe.Pointer) {
	p = unsafe.Add(p, f.offset)
	switch f.kind {
	case reflect.String:
		*(*string)(p) = r.String()
	case reflect.Int64:
		*(*int64)(p) = r.Integer()
	case reflect.Bool:
		*(*bool)(p) = r.Boolean()
	default:
		f.read(r, p)
	}
}

// structCoder codes the fields in their order.
func structCoder(t reflect.Type) coder {
	var c coder
	rest := fieldsOf(t)
	types, coders := make([]beast2.Field, 0, len(rest)), make([]fieldCoder, 0, len(rest))
	add := func(name string, f fieldCoder) {
		c.width += f.width
		types, coders = append(types, beast2.F(name, f.typ)), append(coders, f)
	}
	whole := false
	for len(rest) > 0 {
		f, n := &rest[0], 1
		whole = whole || f.whole
		for f.variant && n < len(rest) && (f.whole || rest[n].in != "") || f.of != "" && n < len(rest) && rest[n].of == f.of {
			n++
		}
		switch {
		case f.present:
			c.present = func(p unsafe.Pointer) *bool { return (*bool)(unsafe.Add(p, f.offset)) }
		case f.variant:
			add(f.name, fieldCoder{coder: f.variantOf(rest[1:n])})
		case f.of != "":
			add(f.of, fieldCoder{coder: eitherCoder(rest[:n])})
		default:
			add(f.name, f.coder())
		}
		rest = rest[n:]
	}
	if c.typ = beast2.Struct(types...); whole {
		c.typ = types[0].Type
	}
	c.append = func(b []byte, p unsafe.Pointer) []byte {
		for i := range coders {
			b = coders[i].appendField(b, p)
		}
		return b
	}
	c.read = func(r *Reader, p unsafe.Pointer) {
		for i := range coders {
			coders[i].readField(r, p)
		}
	}
	if has[checker](t) {
		c.read = checked(c.read, zero[checker](t))
	}
	return c
}

// checked returns a form of read that fails if check refuses the value. check has the type of this value.
func checked(read func(*Reader, unsafe.Pointer), check checker) func(*Reader, unsafe.Pointer) {
	return func(r *Reader, p unsafe.Pointer) {
		start := r.Offset()
		if read(r, p); r.Err() != nil {
			return
		}
		if err := at(check, p).Check(); err != nil {
			r.Failf(start, "%v", err)
		}
	}
}

// variantOf is the coder of a Variant: f holds the case, and fields say to which cases they belong. Pointers lead to
// their struct.
func (f *field) variantOf(fields []field) coder {
	names := zero[Cases](f.goType).Cases()
	cases, coders := make([]beast2.Field, len(names)), make([][]fieldCoder, len(names))
	for k, name := range names {
		var types []beast2.Field
		for _, g := range fields {
			if g.in == "" || strings.Contains("|"+g.in+"|", "|"+name+"|") {
				c := g.coder()
				types, coders[k] = append(types, beast2.F(g.name, c.typ)), append(coders[k], c)
			}
		}
		switch {
		case f.bare && len(types) == 0:
			cases[k] = beast2.F(name, beast2.Null)
		case f.bare && len(types) == 1:
			cases[k] = beast2.F(name, types[0].Type)
		default:
			cases[k] = beast2.F(name, beast2.Struct(types...))
		}
	}
	state := func(p unsafe.Pointer) *int { return (*int)(unsafe.Add(p, f.offset)) }
	return coder{typ: beast2.Variant(cases...), width: 1,
		append: func(b []byte, p unsafe.Pointer) []byte {
			k := *state(p)
			b = beast2.AppendVarint(b, uint64(k))
			for i := range coders[k] {
				b = coders[k][i].appendField(b, p)
			}
			return b
		},
		read: func(r *Reader, p unsafe.Pointer) {
			k := r.Tag(len(names))
			*state(p) = k
			for i := range coders[k] {
				coders[k][i].readField(r, p)
			}
		},
	}
}

// eitherCoder is the coder of a Variant with a field for each case. The case is the first field that is not zero, or
// the last. Pointers lead to their struct.
func eitherCoder(fields []field) coder {
	types, coders := make([]beast2.Field, len(fields)), make([]fieldCoder, len(fields))
	for k := range fields {
		coders[k] = fields[k].coder()
		types[k] = beast2.F(fields[k].name, coders[k].typ)
	}
	return coder{typ: beast2.Variant(types...), width: 1,
		append: func(b []byte, p unsafe.Pointer) []byte {
			k := 0
			for k < len(fields)-1 && reflect.NewAt(fields[k].goType, unsafe.Add(p, fields[k].offset)).Elem().IsZero() {
				k++
			}
			return coders[k].appendField(beast2.AppendVarint(b, uint64(k)), p)
		},
		read: func(r *Reader, p unsafe.Pointer) {
			coders[r.Tag(len(fields))].readField(r, p)
		},
	}
}
