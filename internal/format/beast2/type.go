package beast2

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A Kind is the constructor of a Type. Its number is the type's tag on the wire.
type Kind uint8

// The kinds, in the order of their tags.
const (
	KindArray Kind = iota
	KindAsyncFunction
	KindBlob
	KindBoolean
	KindDateTime
	KindDict
	KindFloat
	KindFunction
	KindInteger
	KindNever
	KindNull
	KindRecursive
	KindRef
	KindSet
	KindString
	KindStruct
	KindVariant
)

var kindNames = [...]string{
	"Array", "AsyncFunction", "Blob", "Boolean", "DateTime", "Dict", "Float", "Function", "Integer",
	"Never", "Null", "Recursive", "Ref", "Set", "String", "Struct", "Variant",
}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kindNames[k]
}

// primitive reports whether a type of this kind has no parameters.
func (k Kind) primitive() bool { return primitives[k].n != nil }

// A Type describes East values. It is immutable; compare with Equal. The zero Type is Null.
//
// A type that was decoded remembers which of its field lists were backreferences, so that it encodes to its original
// bytes. Types made in Go have no backreferences.
type Type struct{ n *node }

type node struct {
	kind Kind
	key  Type  // Dict
	elem Type  // Array, Set, Ref: the element; Dict: the value; functions: the output
	list *list // Struct: fields; Variant: cases; functions: inputs, without names
	use  bool  // the list is a backreference to an earlier occurrence
	up   int   // Recursive: the number of composites outwards
	measure
}

// A list is the part of a schema that has identity, as an Array in a value has.
type list struct {
	fields []Field
	kind   listKind
	measure
}

type listKind string

const (
	fieldList listKind = "field list"
	inputList listKind = "input list"
)

// A measure sums up a type with every backreference expanded.
type measure struct {
	size   int // nodes, saturating at maxSize
	height int // nested composites
	reach  int // number of enclosing composites that the type refers to
}

const maxSize = 1 << 30

// add includes a part of the measured type.
func (m *measure) add(part measure) {
	m.size = min(m.size+part.size, maxSize)
	m.height = max(m.height, part.height)
	m.reach = max(m.reach, part.reach)
}

// wrap adds a composite around the measured type.
func (m *measure) wrap() {
	m.size = min(m.size+1, maxSize)
	m.height++
	m.reach = max(m.reach-1, 0)
}

// The primitive types.
var (
	Blob     = primitive(KindBlob)
	Boolean  = primitive(KindBoolean)
	DateTime = primitive(KindDateTime)
	Float    = primitive(KindFloat)
	Integer  = primitive(KindInteger)
	Never    = primitive(KindNever)
	Null     = primitive(KindNull)
	String   = primitive(KindString)
)

var primitives = [len(kindNames)]Type{
	KindBlob: Blob, KindBoolean: Boolean, KindDateTime: DateTime, KindFloat: Float,
	KindInteger: Integer, KindNever: Never, KindNull: Null, KindString: String,
}

func primitive(k Kind) Type { return Type{&node{kind: k, measure: measure{size: 1}}} }

// A Field is a field of a Struct or a case of a Variant.
type Field struct {
	Name string
	Type Type
}

// F returns the field or case name of type t.
func F(name string, t Type) Field { return Field{name, t} }

// The constructors below panic on a type that East forbids: a repeated name, a name that is not UTF-8, recursion
// through a key or a function's signature. Their arguments come from code, not from data.

// Array returns Array<elem>.
func Array(elem Type) Type { return must(newType(node{kind: KindArray, elem: elem})) }

// Set returns Set<key>.
func Set(key Type) Type { return must(newType(node{kind: KindSet, elem: key})) }

// Ref returns Ref<target>.
func Ref(target Type) Type { return must(newType(node{kind: KindRef, elem: target})) }

// Dict returns Dict<key, value>.
func Dict(key, value Type) Type { return must(newType(node{kind: KindDict, key: key, elem: value})) }

// Struct returns a Struct with the fields in the order given.
func Struct(fields ...Field) Type {
	l := must(newList(fieldList, slices.Clone(fields)))
	return must(newType(node{kind: KindStruct, list: l}))
}

// Variant returns a Variant. Its cases are sorted by UTF-16 code units, as the format requires.
func Variant(cases ...Field) Type {
	cases = slices.Clone(cases)
	slices.SortFunc(cases, func(a, b Field) int { return CompareStrings(a.Name, b.Name) })
	l := must(newList(fieldList, cases))
	return must(newType(node{kind: KindVariant, list: l}))
}

// Option returns Variant{none: Null, some: t}.
func Option(t Type) Type { return Variant(F("none", Null), F("some", t)) }

// Function returns the type of functions from inputs to output.
func Function(inputs []Type, output Type) Type { return function(KindFunction, inputs, output) }

// AsyncFunction returns the type of asynchronous functions from inputs to output.
func AsyncFunction(inputs []Type, output Type) Type {
	return function(KindAsyncFunction, inputs, output)
}

func function(k Kind, inputs []Type, output Type) Type {
	fields := make([]Field, len(inputs))
	for i, t := range inputs {
		fields[i].Type = t
	}
	l := must(newList(inputList, fields))
	return must(newType(node{kind: k, list: l, elem: output}))
}

// Recursive stands for an enclosing type: 1 is the nearest composite around it, 2 the next.
func Recursive(n int) Type { return must(newRecursive(int64(n))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic("beast2: " + err.Error())
	}
	return v
}

func newRecursive(n int64) (Type, error) {
	if n < 1 || n > maxDepth {
		return Null, fmt.Errorf("recursion number %d is not in 1 to %d", n, maxDepth)
	}
	return Type{&node{kind: KindRecursive, up: int(n), measure: measure{size: 1, reach: int(n)}}}, nil
}

// newList takes ownership of fields.
func newList(kind listKind, fields []Field) (*list, error) {
	l := &list{fields: fields, kind: kind}
	var seen map[string]bool
	if kind == fieldList {
		seen = make(map[string]bool, len(fields))
	}
	for _, f := range fields {
		l.add(f.Type.measure())
		if kind == inputList {
			continue
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("name %s is there twice", strconv.Quote(f.Name))
		}
		if checkWTF8([]byte(f.Name)) >= 0 {
			return nil, fmt.Errorf("name %s is not UTF-8", strconv.Quote(f.Name))
		}
		seen[f.Name] = true
	}
	return l, nil
}

// newType completes a composite.
func newType(n node) (Type, error) {
	switch n.kind {
	case KindSet:
		if n.elem.measure().reach > 0 {
			return Null, fmt.Errorf("recursion through a set key")
		}
	case KindDict:
		if n.key.measure().reach > 0 {
			return Null, fmt.Errorf("recursion through a dict key")
		}
		n.add(n.key.measure())
	case KindFunction, KindAsyncFunction:
		if n.list.reach > 0 || n.elem.measure().reach > 0 {
			return Null, fmt.Errorf("recursion through a function signature")
		}
	case KindVariant:
		for i, f := range n.list.fields[min(1, len(n.list.fields)):] {
			if before := n.list.fields[i].Name; CompareStrings(before, f.Name) > 0 {
				return Null, fmt.Errorf("variant case %s must come before %s",
					strconv.Quote(f.Name), strconv.Quote(before))
			}
		}
	}
	if n.list != nil {
		n.add(n.list.measure)
	}
	if n.kind != KindStruct && n.kind != KindVariant {
		n.add(n.elem.measure())
	}
	n.wrap()
	return Type{&n}, nil
}

// Kind returns the constructor of t.
func (t Type) Kind() Kind {
	if t.n == nil {
		return KindNull
	}
	return t.n.kind
}

func (t Type) measure() measure {
	if t.n == nil {
		return measure{size: 1}
	}
	return t.n.measure
}

// Elem returns the element of an Array, Set or Ref, the value of a Dict or the output of a
// function, and Null for other kinds.
func (t Type) Elem() Type {
	if t.n == nil {
		return Null
	}
	return t.n.elem
}

// Key returns the key of a Set or Dict, and Null for other kinds.
func (t Type) Key() Type {
	switch t.Kind() {
	case KindSet:
		return t.n.elem
	case KindDict:
		return t.n.key
	}
	return Null
}

// Fields returns the fields of a Struct, the cases of a Variant, or the inputs of a function,
// which have no names. The caller owns the slice.
func (t Type) Fields() []Field { return slices.Clone(t.fields()) }

func (t Type) fields() []Field {
	if t.n == nil || t.n.list == nil {
		return nil
	}
	return t.n.list.fields
}

// Index returns the position of a Struct's field or a Variant's case, or -1.
func (t Type) Index(name string) int {
	if t.Kind() == KindVariant {
		return caseIndex(t.fields(), name)
	}
	if t.Kind() == KindStruct {
		return slices.IndexFunc(t.fields(), func(f Field) bool { return f.Name == name })
	}
	return -1
}

// caseIndex searches sorted cases; it returns -1 if no case has the name.
func caseIndex(cases []Field, name string) int {
	i, ok := sort.Find(len(cases), func(i int) int { return CompareStrings(name, cases[i].Name) })
	if !ok {
		return -1
	}
	return i
}

// Up returns the number of composites by which a Recursive points outwards, and 0 for other kinds.
func (t Type) Up() int {
	if t.n == nil {
		return 0
	}
	return t.n.up
}

// Equal reports whether t and u have the same constructors, names, order and recursion numbers, as readers of the
// format compare them. Backreferences make no difference.
func (t Type) Equal(u Type) bool {
	if t.n == u.n {
		return true
	}
	if t.Kind() != u.Kind() {
		return false
	}
	if t.Kind().primitive() {
		return true
	}
	a, b := t.n, u.n
	if a.measure != b.measure || a.up != b.up {
		return false
	}
	if a.list != b.list {
		if len(a.list.fields) != len(b.list.fields) {
			return false
		}
		for i, f := range a.list.fields {
			g := b.list.fields[i]
			if f.Name != g.Name || !f.Type.Equal(g.Type) {
				return false
			}
		}
	}
	return a.key.Equal(b.key) && a.elem.Equal(b.elem)
}

// String returns t in readable notation, as in Struct{name: String, sizes: Array<Integer>}.
func (t Type) String() string {
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t Type) write(b *strings.Builder) {
	k := t.Kind()
	b.WriteString(k.String())
	switch k {
	case KindArray, KindSet, KindRef:
		b.WriteByte('<')
		t.n.elem.write(b)
		b.WriteByte('>')
	case KindDict:
		b.WriteByte('<')
		t.n.key.write(b)
		b.WriteString(", ")
		t.n.elem.write(b)
		b.WriteByte('>')
	case KindRecursive:
		fmt.Fprintf(b, " %d", t.n.up)
	case KindFunction, KindAsyncFunction:
		b.WriteByte('(')
		for i, f := range t.n.list.fields {
			if i > 0 {
				b.WriteString(", ")
			}
			f.Type.write(b)
		}
		b.WriteString(") -> ")
		t.n.elem.write(b)
	case KindStruct, KindVariant:
		b.WriteByte('{')
		for i, f := range t.n.list.fields {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(readableName(f.Name))
			b.WriteString(": ")
			f.Type.write(b)
		}
		b.WriteByte('}')
	}
}

// readableName quotes names that are not identifiers.
func readableName(name string) string {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return strconv.Quote(name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}
