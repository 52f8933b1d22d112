package beast2

import (
	"fmt"
	"slices"
)

// MaxDepth is the bound on nesting.
const MaxDepth = maxDepth

// TypeFromJSON reads the notation of a type.
func TypeFromJSON(data []byte) (Type, error) {
	doc, err := parseJSON(data)
	if err != nil {
		return Null, err
	}
	r := jsonReader{lists: map[string]*list{}}
	return r.typ(&doc, 0)
}

// TypeToJSON writes the notation of a type.
func TypeToJSON(t Type) string {
	w := jsonWriter{used: map[*list]bool{}, listNames: map[*list]string{}}
	w.findUsed(t)
	w.typ(t)
	return string(w.b)
}

var CheckWTF8 = checkWTF8

// A MismatchError reports a file of another type than the caller wants.
type MismatchError struct{ Want, Got Type }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("beast2: want type %s, got %s", describe(e.Want), describe(e.Got))
}

// DecodeAs reads a complete file whose type must be want; else it returns a *MismatchError.
func DecodeAs(data []byte, want Type) (Value, error) {
	in := NewReader(data, 0)
	t := readHeader(in)
	if in.err != nil {
		return nil, in.err
	}
	if !t.Equal(want) {
		return nil, &MismatchError{want, t}
	}
	v, _, err := decodeValue(in, t)
	return v, err
}

// IR returns the type of East's intermediate representation, which is the type of the values of functions.
func IR() Type { return ir().typ }

// Compare orders two values of type t as East orders keys.
func Compare(t Type, a, b Value) int { return compare(shapeOf(t), a, b) }

// SortKeys sorts the elements of a Set or the entries of a Dict of type t into key order.
func SortKeys(t Type, v Value) {
	key := shapeOf(t.Key())
	switch v := v.(type) {
	case *List:
		slices.SortStableFunc(v.Items, func(a, b Value) int { return compare(key, a, b) })
	case *Map:
		slices.SortStableFunc(v.Entries, func(a, b Entry) int { return compare(key, a.Key, b.Key) })
	}
}
