// Package value connects plain data — what JSON and YAML can say — with the typed
// beast2 values that a repository keeps.
//
// A plain value is nil, bool, int64, float64, string, []any or manifest.Object. Its type
// follows from it: a list of equal types is an Array, a mapping is a Struct in its own
// order, and a list of several types is an Array of a Variant with one case for each type,
// named after it. What comes from elsewhere may be any East value; it is shown as JSON with
// what JSON has: dates in RFC 3339, blobs in base64, dicts with other keys than strings as
// lists of pairs, variants as {"case": …, "value": …}, options as the payload or null.
package value

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"e3/internal/beast2"
	"e3/internal/manifest"
)

// MaxBytes bounds a value dataset that is read into memory.
const MaxBytes = 256 << 20

// maxDepth bounds nesting on the way to JSON: an East value may contain itself.
const maxDepth = 1000

// Encode returns the beast2 file of a plain value.
func Encode(v any) ([]byte, error) {
	t, val, err := build(v, 0)
	if err != nil {
		return nil, err
	}
	return beast2.Encode(t, val)
}

// build finds the type of a plain value and its East form.
func build(v any, depth int) (beast2.Type, beast2.Value, error) {
	if depth > maxDepth {
		return beast2.Type{}, nil, fmt.Errorf("value is nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case nil:
		return beast2.Null, nil, nil
	case bool:
		return beast2.Boolean, v, nil
	case int64:
		return beast2.Integer, v, nil
	case float64:
		return beast2.Float, v, nil
	case string:
		return beast2.String, v, nil
	case manifest.Object:
		return buildObject(v, depth)
	case []any:
		return buildList(v, depth)
	}
	return beast2.Type{}, nil, fmt.Errorf("a value cannot be a %T", v)
}

func buildObject(o manifest.Object, depth int) (beast2.Type, beast2.Value, error) {
	fields := make([]beast2.Field, len(o))
	rec := make(beast2.Record, len(o))
	for i, m := range o {
		t, v, err := build(m.Value, depth+1)
		if err != nil {
			return beast2.Type{}, nil, err
		}
		fields[i], rec[i] = beast2.F(m.Name, t), v
	}
	return beast2.Struct(fields...), rec, nil
}

func buildList(list []any, depth int) (beast2.Type, beast2.Value, error) {
	items := make([]beast2.Value, len(list))
	which := make([]int, len(list))
	var types []beast2.Type
	for i, item := range list {
		t, v, err := build(item, depth+1)
		if err != nil {
			return beast2.Type{}, nil, err
		}
		k := slices.IndexFunc(types, t.Equal)
		if k < 0 {
			k = len(types)
			types = append(types, t)
		}
		items[i], which[i] = v, k
	}
	switch len(types) {
	case 0:
		return beast2.Array(beast2.Never), &beast2.List{}, nil
	case 1:
		return beast2.Array(types[0]), &beast2.List{Items: items}, nil
	}
	cases := make([]beast2.Field, len(types))
	for k, t := range types {
		cases[k] = beast2.F(caseName(t), t)
	}
	sum := beast2.Variant(cases...)
	for i := range items {
		items[i] = beast2.Case{Tag: sum.Index(caseName(types[which[i]])), Value: items[i]}
	}
	return beast2.Array(sum), &beast2.List{Items: items}, nil
}

// caseName names a case after its type, with a mark that no identifier has.
func caseName(t beast2.Type) string { return ":" + t.String() }

// Value is a decoded beast2 value.
type Value struct {
	typ beast2.Type
	val beast2.Value
}

// Decode reads a beast2 file of any type.
func Decode(data []byte) (*Value, error) {
	t, v, err := beast2.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return &Value{typ: t, val: v}, nil
}

// Type returns the East type.
func (v *Value) Type() beast2.Type { return v.typ }

// Scalar returns the text of a null, boolean, integer, float, string or date.
func (v *Value) Scalar() (string, bool) {
	switch v.typ.Kind() {
	case beast2.KindNull:
		return "null", true
	case beast2.KindString:
		return v.val.(string), true
	case beast2.KindBoolean, beast2.KindInteger, beast2.KindFloat:
		return manifest.ScalarText(v.val)
	case beast2.KindDateTime:
		return date(v.val.(int64)), true
	}
	return "", false
}

// JSON returns the value as one line of JSON.
func (v *Value) JSON() ([]byte, error) {
	b, err := appendJSON(nil, v.typ, v.val, nil)
	if err != nil {
		return nil, fmt.Errorf("show value as JSON: %w", err)
	}
	return b, nil
}

func date(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// appendJSON walks type and value together; around are the composites that a Recursive
// counts.
func appendJSON(b []byte, t beast2.Type, v beast2.Value, around []beast2.Type) ([]byte, error) {
	if len(around) > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep, or contains itself", maxDepth)
	}
	if t.Kind() == beast2.KindRecursive {
		at := len(around) - t.Up()
		t, around = around[at], around[:at]
	}
	inner := append(around[:len(around):len(around)], t)
	switch t.Kind() {
	case beast2.KindNull:
		return append(b, "null"...), nil
	case beast2.KindBoolean:
		return strconv.AppendBool(b, v.(bool)), nil
	case beast2.KindInteger:
		return strconv.AppendInt(b, v.(int64), 10), nil
	case beast2.KindFloat:
		return appendFloat(b, v.(float64)), nil
	case beast2.KindString:
		return manifest.AppendJSON(b, v.(string)), nil
	case beast2.KindDateTime:
		return manifest.AppendJSON(b, date(v.(int64))), nil
	case beast2.KindBlob:
		return manifest.AppendJSON(b, base64.StdEncoding.EncodeToString(v.([]byte))), nil
	case beast2.KindRef:
		return appendJSON(b, t.Elem(), v.(*beast2.Cell).Value, inner)
	case beast2.KindArray:
		return appendList(b, t.Elem(), v.(*beast2.List).Items, inner)
	case beast2.KindSet:
		return appendList(b, t.Key(), v.(*beast2.List).Items, inner)
	case beast2.KindDict:
		return appendDict(b, t, v.(*beast2.Map).Entries, inner)
	case beast2.KindStruct:
		fields := t.Fields()
		return appendMembers(b, len(fields), func(b []byte, i int) ([]byte, error) {
			b = append(manifest.AppendJSON(b, fields[i].Name), ':')
			return appendJSON(b, fields[i].Type, v.(beast2.Record)[i], inner)
		})
	case beast2.KindVariant:
		return appendVariant(b, t, v.(beast2.Case), inner)
	}
	return nil, fmt.Errorf("a %s has no JSON form", t)
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...) // JSON has no word for it
	}
	return manifest.AppendJSON(b, f)
}

func appendMembers(b []byte, n int, member func([]byte, int) ([]byte, error)) ([]byte, error) {
	b = append(b, '{')
	var err error
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = member(b, i); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendList(b []byte, elem beast2.Type, items []beast2.Value, around []beast2.Type) ([]byte, error) {
	b = append(b, '[')
	var err error
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, elem, item, around); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendDict(b []byte, t beast2.Type, entries []beast2.Entry, around []beast2.Type) ([]byte, error) {
	if t.Key().Kind() == beast2.KindString {
		return appendMembers(b, len(entries), func(b []byte, i int) ([]byte, error) {
			b = append(manifest.AppendJSON(b, entries[i].Key.(string)), ':')
			return appendJSON(b, t.Elem(), entries[i].Value, around)
		})
	}
	b = append(b, '[')
	var err error
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(append(b, '['), t.Key(), e.Key, around); err != nil {
			return nil, err
		}
		if b, err = appendJSON(append(b, ','), t.Elem(), e.Value, around); err != nil {
			return nil, err
		}
		b = append(b, ']')
	}
	return append(b, ']'), nil
}

func appendVariant(b []byte, t beast2.Type, c beast2.Case, around []beast2.Type) ([]byte, error) {
	cases := t.Fields()
	chosen := cases[c.Tag]
	option := len(cases) == 2 && cases[0].Name == "none" && cases[0].Type.Kind() == beast2.KindNull && cases[1].Name == "some"
	switch {
	case option && c.Tag == 0:
		return append(b, "null"...), nil
	case option, chosen.Name[:min(1, len(chosen.Name))] == ":":
		return appendJSON(b, chosen.Type, c.Value, around)
	}
	b = manifest.AppendJSON(append(b, `{"case":`...), chosen.Name)
	b, err := appendJSON(append(b, `,"value":`...), chosen.Type, c.Value, around)
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}
