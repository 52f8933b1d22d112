// Package value converts between plain data, as JSON and YAML have it, and the typed beast2 values of a repository.
//
// A plain value is nil, bool, int64, float64, string, []any or manifest.Object. The value decides its East type: a
// list of one type is an Array, a mapping is a Struct in the mapping's order, and a list of several types is an
// Array of a Variant with one case for each type, named after the type. Values from other programs may be of any
// East type. Their JSON has dates in RFC 3339, blobs in base64, dicts with keys other than strings as lists of
// pairs, variants as {"case": …, "value": …}, options as the payload or null.
package value

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"e3/internal/format/beast2"
	"e3/internal/format/manifest"
)

// MaxBytes bounds a value dataset that is read into memory.
const MaxBytes = 256 << 20

// maxDepth bounds the nesting of plain values. Their East values may nest twice as deep, since a list of several types
// holds variants.
const maxDepth = 1000

// maxJSON bounds the text of a value: an East value may contain the same part many times.
const maxJSON = 4 * MaxBytes

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
	seen := make(map[string]bool, len(o))
	for i, m := range o {
		switch {
		case seen[m.Name]:
			return beast2.Type{}, nil, fmt.Errorf("name %q is there twice", m.Name)
		case !utf8.ValidString(m.Name):
			return beast2.Type{}, nil, fmt.Errorf("name %q is not valid UTF-8", m.Name)
		}
		seen[m.Name] = true
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
	sum := beast2.Variant(cases...) // in the order of the mapping
	tags := make([]int, len(types))
	for k := range cases {
		tags[k] = sum.Index(cases[k].Name)
	}
	for i := range items {
		items[i] = beast2.Case{Tag: tags[which[i]], Value: items[i]}
	}
	return beast2.Array(sum), &beast2.List{Items: items}, nil
}

// caseName names a case after its type, with a mark that no identifier has. A long type is named by a digest, because
// names within names would double in length with every level.
func caseName(t beast2.Type) string {
	name := ":" + t.String()
	if len(name) > 80 {
		sum := sha256.Sum256([]byte(name))
		name = ":" + hex.EncodeToString(sum[:16])
	}
	return name
}

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
	case beast2.KindFloat:
		if f := v.val.(float64); math.IsNaN(f) || math.IsInf(f, 0) {
			return strconv.FormatFloat(f, 'g', -1, 64), true
		}
		return manifest.ScalarText(v.val)
	case beast2.KindBoolean, beast2.KindInteger:
		return manifest.ScalarText(v.val)
	case beast2.KindDateTime:
		return date(v.val.(int64)), true
	}
	return "", false
}

// Text returns the value if it is a string; else false.
func (v *Value) Text() (string, bool) {
	text, ok := v.val.(string)
	return text, ok && v.typ.Kind() == beast2.KindString
}

// JSON returns the value as one line of JSON.
func (v *Value) JSON() ([]byte, error) { return v.json(maxJSON) }

// JSONWithin is JSON for a text of at most limit bytes; a longer one is an error.
func (v *Value) JSONWithin(limit int) ([]byte, error) { return v.json(limit) }

func (v *Value) json(limit int) ([]byte, error) {
	p := printer{limit: limit}
	if err := p.value(v.typ, v.val, nil); err != nil {
		return nil, fmt.Errorf("show value as JSON: %w", err)
	}
	return p.b, nil
}

func date(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// A printer writes a value as JSON.
type printer struct {
	b     []byte
	limit int // bytes
	depth int
}

// value walks type and value together; around are the enclosing composites, which Recursive numbers refer to.
func (p *printer) value(t beast2.Type, v beast2.Value, around []beast2.Type) error {
	if p.depth > 2*maxDepth {
		return fmt.Errorf("it is nested more than %d deep, or contains itself", 2*maxDepth)
	}
	if len(p.b) > p.limit {
		return fmt.Errorf("its text is longer than %d bytes", p.limit)
	}
	p.depth++
	defer func() { p.depth-- }()
	if t.Kind() == beast2.KindRecursive {
		at := len(around) - t.Up()
		t, around = around[at], around[:at]
	}
	inner := append(around[:len(around):len(around)], t)
	switch t.Kind() {
	case beast2.KindNull:
		p.b = append(p.b, "null"...)
	case beast2.KindBoolean:
		p.b = strconv.AppendBool(p.b, v.(bool))
	case beast2.KindInteger:
		p.b = strconv.AppendInt(p.b, v.(int64), 10)
	case beast2.KindFloat:
		p.float(v.(float64))
	case beast2.KindString:
		p.text(v.(string))
	case beast2.KindDateTime:
		p.text(date(v.(int64)))
	case beast2.KindBlob:
		p.text(base64.StdEncoding.EncodeToString(v.([]byte)))
	case beast2.KindRef:
		return p.value(t.Elem(), v.(*beast2.Cell).Value, inner)
	case beast2.KindArray:
		return p.list(t.Elem(), v.(*beast2.List).Items, inner)
	case beast2.KindSet:
		return p.list(t.Key(), v.(*beast2.List).Items, inner)
	case beast2.KindDict:
		return p.dict(t, v.(*beast2.Map).Entries, inner)
	case beast2.KindStruct:
		fields := t.Fields()
		return p.join('{', len(fields), '}', func(i int) error {
			p.name(fields[i].Name)
			return p.value(fields[i].Type, v.(beast2.Record)[i], inner)
		})
	case beast2.KindVariant:
		return p.variant(t, v.(beast2.Case), inner)
	default:
		return fmt.Errorf("a %s has no JSON form", t)
	}
	return nil
}

func (p *printer) text(s string) { p.b = manifest.AppendJSON(p.b, s) }

func (p *printer) name(s string) {
	p.text(s)
	p.b = append(p.b, ':')
}

func (p *printer) float(f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		p.b = append(p.b, "null"...) // JSON has no such number
		return
	}
	p.b = manifest.AppendJSON(p.b, f)
}

// join writes n items between the brackets.
func (p *printer) join(open byte, n int, end byte, item func(int) error) error {
	p.b = append(p.b, open)
	for i := range n {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		if err := item(i); err != nil {
			return err
		}
	}
	p.b = append(p.b, end)
	return nil
}

func (p *printer) list(elem beast2.Type, items []beast2.Value, around []beast2.Type) error {
	return p.join('[', len(items), ']', func(i int) error { return p.value(elem, items[i], around) })
}

func (p *printer) dict(t beast2.Type, entries []beast2.Entry, around []beast2.Type) error {
	if t.Key().Kind() == beast2.KindString {
		return p.join('{', len(entries), '}', func(i int) error {
			p.name(entries[i].Key.(string))
			return p.value(t.Elem(), entries[i].Value, around)
		})
	}
	return p.join('[', len(entries), ']', func(i int) error {
		pair := [2]beast2.Value{entries[i].Key, entries[i].Value}
		types := [2]beast2.Type{t.Key(), t.Elem()}
		return p.join('[', 2, ']', func(j int) error { return p.value(types[j], pair[j], around) })
	})
}

func (p *printer) variant(t beast2.Type, c beast2.Case, around []beast2.Type) error {
	cases := t.Fields()
	chosen := cases[c.Tag]
	option := len(cases) == 2 && cases[0].Name == "none" && cases[0].Type.Kind() == beast2.KindNull && cases[1].Name == "some"
	switch {
	case option && c.Tag == 0:
		p.b = append(p.b, "null"...)
		return nil
	case option, strings.HasPrefix(chosen.Name, ":"):
		return p.value(chosen.Type, c.Value, around)
	}
	p.b = append(p.b, `{"case":`...)
	p.text(chosen.Name)
	p.b = append(p.b, `,"value":`...)
	if err := p.value(chosen.Type, c.Value, around); err != nil {
		return err
	}
	p.b = append(p.b, '}')
	return nil
}
