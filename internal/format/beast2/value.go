package beast2

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A Value is an East value in Go. Its type says how to read it:
//
//	Null                     nil
//	Boolean                  bool
//	Integer                  int64
//	Float                    float64
//	String                   string
//	DateTime                 int64, milliseconds since 1970-01-01T00:00:00Z
//	Blob                     []byte
//	Array, Set               *List
//	Dict                     *Map
//	Ref                      *Cell
//	Struct                   Record
//	Variant                  Case
//	Function, AsyncFunction  Case, a value of the type IR
//
// Pointers define identity: a container that occurs at two places, or inside itself, is written once, and later
// occurrences refer to it.
type Value any

// A List is an Array or a Set. A Set keeps the order of its elements.
type List struct{ Items []Value }

// A Map is a Dict. It keeps the order of its entries.
type Map struct{ Entries []Entry }

// An Entry is a key of a Map with its value.
type Entry struct{ Key, Value Value }

// A Cell is a Ref.
type Cell struct{ Value Value }

// A Record is a Struct: one value a field, in the order of the type.
type Record []Value

// A Case is a Variant: the index of the case in the type, from 0, and its payload.
type Case struct {
	Tag   int
	Value Value
}

// A ValueError reports why a value cannot be encoded, or why JSON does not describe one.
type ValueError struct {
	Path string // path from $, like a JSONPath over the JSON notation
	Msg  string
}

func (e *ValueError) Error() string { return fmt.Sprintf("beast2: %s: %s", e.Path, e.Msg) }

// compare orders two values of a shape. A value of another Go type counts as the zero value of the shape's Go type.
func compare(s *shape, a, b Value) int {
	switch s.kind {
	case KindBoolean:
		a, _ := a.(bool)
		b, _ := b.(bool)
		switch {
		case a == b:
			return 0
		case b:
			return -1
		}
		return 1
	case KindInteger, KindDateTime:
		a, _ := a.(int64)
		b, _ := b.(int64)
		return cmp.Compare(a, b)
	case KindFloat:
		a, _ := a.(float64)
		b, _ := b.(float64)
		return compareFloats(a, b)
	case KindString:
		a, _ := a.(string)
		b, _ := b.(string)
		return CompareStrings(a, b)
	case KindBlob:
		a, _ := a.([]byte)
		b, _ := b.([]byte)
		return bytes.Compare(a, b)
	case KindArray, KindSet:
		return compareLists(s.kids[0], listItems(a), listItems(b))
	case KindDict:
		return compareMaps(s, mapEntries(a), mapEntries(b))
	case KindRef:
		a, _ := a.(*Cell)
		b, _ := b.(*Cell)
		if a == b || a == nil || b == nil {
			return 0
		}
		return compare(s.kids[0], a.Value, b.Value)
	case KindStruct:
		a, _ := a.(Record)
		b, _ := b.(Record)
		for i := range min(len(s.kids), len(a), len(b)) {
			if c := compare(s.kids[i], a[i], b[i]); c != 0 {
				return c
			}
		}
	case KindVariant:
		a, _ := a.(Case)
		b, _ := b.(Case)
		if a.Tag != b.Tag || a.Tag < 0 || a.Tag >= len(s.kids) {
			return cmp.Compare(a.Tag, b.Tag) // cases are in the order of their names
		}
		return compare(s.kids[a.Tag], a.Value, b.Value)
	}
	return 0
}

func listItems(v Value) []Value {
	if l, ok := v.(*List); ok && l != nil {
		return l.Items
	}
	return nil
}

func mapEntries(v Value) []Entry {
	if m, ok := v.(*Map); ok && m != nil {
		return m.Entries
	}
	return nil
}

func compareLists(s *shape, a, b []Value) int {
	return slices.CompareFunc(a, b, func(x, y Value) int { return compare(s, x, y) })
}

func compareMaps(s *shape, a, b []Entry) int {
	return slices.CompareFunc(a, b, func(x, y Entry) int {
		if c := compare(s.kids[0], x.Key, y.Key); c != 0 {
			return c
		}
		return compare(s.kids[1], x.Value, y.Value)
	})
}

// compareFloats puts -0 before 0 and NaN after everything.
func compareFloats(a, b float64) int {
	switch {
	case a != a || b != b:
		return -cmp.Compare(a, b) // cmp.Compare has NaN first
	case a == 0 && b == 0:
		return cmp.Compare(math.Copysign(1, a), math.Copysign(1, b))
	}
	return cmp.Compare(a, b)
}

// duplicate returns the positions of two equal keys, the later one second. Keys in order
// cost one pass, others a sort.
func duplicate(s *shape, n int, key func(int) Value) (first, second int, found bool) {
	ascending := true
	for i := 1; i < n && ascending; i++ {
		ascending = compare(s, key(i-1), key(i)) < 0
	}
	if ascending {
		return 0, 0, false
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(s, key(i), key(j)) })
	for i := 1; i < n; i++ {
		if compare(s, key(order[i-1]), key(order[i])) == 0 {
			return order[i-1], order[i], true
		}
	}
	return 0, 0, false
}
