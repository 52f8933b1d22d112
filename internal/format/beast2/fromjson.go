package beast2

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FromJSON returns the beast2 file that a JSON notation describes. Dicts and sets keep the order they are written in.
// Errors are *SyntaxError if data is not JSON, and *ValueError, with the JSON path, if the JSON does not follow the
// notation.
func FromJSON(data []byte) ([]byte, error) {
	doc, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	r := jsonReader{lists: map[string]*list{}, values: map[string]labelled{}, same: unifier{}, names: map[*shape]map[string]int{}}
	parts, err := r.members(&doc, "type", "value")
	if err != nil {
		return nil, err
	}
	r.path.push(named("type"))
	t, err := r.typ(parts[0], 0)
	if err != nil {
		return nil, err
	}
	if m := t.measure(); m.reach > 0 {
		return nil, r.fail("a Recursive points outside the type")
	} else if m.size > max(freeTypes, len(data)) {
		return nil, r.fail("type expands to more than %d types", freeTypes)
	}
	r.path.pop()
	r.path.push(named("value"))
	v, err := r.value(shapeOf(t), parts[1])
	if err != nil {
		return nil, err
	}
	return encode(t, v, r.path)
}

type jsonReader struct {
	path   path
	depth  int                 // composites around the value being read
	lists  map[string]*list    // by label; nil while the list is being read
	values map[string]labelled // by label
	same   unifier
	names  map[*shape]map[string]int // field indexes, for objects in another order
}

type labelled struct {
	value Value
	shape *shape
}

func (r *jsonReader) fail(format string, args ...any) error {
	return &ValueError{r.path.String(), fmt.Sprintf(format, args...)}
}

func (r *jsonReader) want(k jsonKind, j *jsonValue) error {
	if j.kind != k {
		return r.fail("want %s, got %s", k, j.kind)
	}
	return nil
}

// members returns the values of an object that must have exactly these names.
func (r *jsonReader) members(j *jsonValue, names ...string) ([]*jsonValue, error) {
	if err := r.want(jsonObject, j); err != nil {
		return nil, err
	}
	found := make([]*jsonValue, len(names))
	for i, name := range j.names {
		k := 0
		for k < len(names) && names[k] != name {
			k++
		}
		if k == len(names) {
			return nil, r.fail("unknown name %q, want %s", name, strings.Join(names, " and "))
		}
		if found[k] != nil {
			return nil, r.fail("name %q is there twice", name)
		}
		found[k] = &j.items[i]
	}
	for k, name := range names {
		if found[k] == nil {
			return nil, r.fail("%q is missing", name)
		}
	}
	return found, nil
}

// pair returns the two elements of an array of two.
func (r *jsonReader) pair(j *jsonValue, what string) (a, b *jsonValue, err error) {
	if j.kind != jsonArray || len(j.items) != 2 {
		return nil, nil, r.fail("want [%s], got %s of %d", what, j.kind, len(j.items))
	}
	return &j.items[0], &j.items[1], nil
}

// value reads the value of a shape.
func (r *jsonReader) value(s *shape, j *jsonValue) (Value, error) {
	switch s.kind {
	case KindNever:
		return nil, r.fail("there is no value of type Never")
	case KindNull:
		return nil, r.want(jsonNull, j)
	case KindBoolean:
		return j.text == "true", r.want(jsonBool, j)
	case KindInteger, KindDateTime:
		return r.integer(j)
	case KindFloat:
		return r.float(j)
	case KindString:
		return j.text, r.want(jsonString, j)
	case KindBlob:
		return r.blob(j)
	}
	if r.depth++; r.depth > maxDepth {
		return nil, r.fail("value nests deeper than %d", maxDepth)
	}
	v, err := r.composite(s, j)
	r.depth--
	return v, err
}

func (r *jsonReader) composite(s *shape, j *jsonValue) (Value, error) {
	switch s.kind {
	case KindStruct:
		return r.record(s, j)
	case KindVariant:
		return r.variant(s, j)
	case KindFunction, KindAsyncFunction:
		return r.value(ir().shape, j)
	}
	return r.container(s, j)
}

func (r *jsonReader) integer(j *jsonValue) (Value, error) {
	if err := r.want(jsonString, j); err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(j.text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != j.text {
		return nil, r.fail("want a 64-bit integer in decimal, got %q", j.text)
	}
	return n, nil
}

// float accepts {"f":text}, {"bits":hex}, or both if they agree.
func (r *jsonReader) float(j *jsonValue) (Value, error) {
	names := []string{"f", "bits"}
	if len(j.names) == 1 && (j.names[0] == "f" || j.names[0] == "bits") {
		names = j.names
	}
	parts, err := r.members(j, names...)
	if err != nil {
		return nil, err
	}
	var floats []float64
	for i, name := range names {
		if err := r.want(jsonString, parts[i]); err != nil {
			return nil, err
		}
		read := parseFloatText
		if name == "bits" {
			read = parseFloatBits
		}
		f, ok := read(parts[i].text)
		if !ok {
			return nil, r.fail("%q of a Float cannot be %q", name, parts[i].text)
		}
		floats = append(floats, f)
	}
	f := floats[len(floats)-1]
	if other := floats[0]; math.Float64bits(other) != math.Float64bits(f) && (other == other || f == f) {
		return nil, r.fail(`"f" and "bits" of a Float are different numbers`)
	}
	return f, nil
}

// parseFloatText accepts the numbers of JSON, NaN and both infinities.
func parseFloatText(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.Float64frombits(nanBits), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	j, err := parseJSON([]byte(s))
	if err != nil || j.kind != jsonNumber || j.text != s {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// parseFloatBits accepts only the NaNs that a Reader accepts.
func parseFloatBits(s string) (float64, bool) {
	bits, err := strconv.ParseUint(s, 16, 64)
	f := math.Float64frombits(bits)
	nan := f != f && bits != nanBits && bits != negNaNBits
	return f, err == nil && len(s) == 16 && !nan
}

func (r *jsonReader) blob(j *jsonValue) (Value, error) {
	parts, err := r.members(j, "hex")
	if err != nil {
		return nil, err
	}
	if err := r.want(jsonString, parts[0]); err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(parts[0].text)
	if err != nil {
		return nil, r.fail("hex of a Blob: %v", err)
	}
	return b, nil
}

func (r *jsonReader) record(s *shape, j *jsonValue) (Value, error) {
	if err := r.want(jsonObject, j); err != nil {
		return nil, err
	}
	rec := make(Record, len(s.kids))
	found := make([]bool, len(s.kids))
	for i, name := range j.names {
		k := i
		if k >= len(s.kids) || s.name(k) != name {
			var ok bool
			if k, ok = r.index(s)[name]; !ok {
				return nil, r.fail("unknown field %q", name)
			}
		}
		if found[k] {
			return nil, r.fail("field %q is there twice", name)
		}
		found[k] = true
		r.path.push(named(name))
		v, err := r.value(s.kids[k], &j.items[i])
		if err != nil {
			return nil, err
		}
		r.path.pop()
		rec[k] = v
	}
	if len(j.names) < len(s.kids) {
		for k := range found {
			if !found[k] {
				return nil, r.fail("field %q is missing", s.name(k))
			}
		}
	}
	return rec, nil
}

// index returns the positions of a struct's fields by name.
func (r *jsonReader) index(s *shape) map[string]int {
	m := r.names[s]
	if m == nil {
		m = make(map[string]int, len(s.kids))
		for i := range s.kids {
			m[s.name(i)] = i
		}
		r.names[s] = m
	}
	return m
}

func (r *jsonReader) variant(s *shape, j *jsonValue) (Value, error) {
	parts, err := r.members(j, "case", "value")
	if err != nil {
		return nil, err
	}
	if err := r.want(jsonString, parts[0]); err != nil {
		return nil, err
	}
	tag := caseIndex(s.typ.fields(), parts[0].text)
	if tag < 0 {
		return nil, r.fail("unknown case %q", parts[0].text)
	}
	r.path.push(named("value"))
	v, err := r.value(s.kids[tag], parts[1])
	if err != nil {
		return nil, err
	}
	r.path.pop()
	return Case{tag, v}, nil
}

// container reads a container: its content, a definition around the content, or a use of an earlier definition.
func (r *jsonReader) container(s *shape, j *jsonValue) (Value, error) {
	j, label, def, use, err := r.label(j)
	if err != nil {
		return nil, err
	}
	if use {
		known, ok := r.values[label]
		if !ok {
			return nil, r.fail("$use of %q, which no $def before it has", label)
		}
		if !r.same.same(known.shape, s) {
			return nil, r.fail("%q is of type %s, used as %s", label, known.shape.describe(), s.describe())
		}
		return known.value, nil
	}
	var v Value
	switch s.kind {
	case KindRef:
		v = new(Cell)
	case KindDict:
		v = new(Map)
	default:
		v = new(List)
	}
	if !def {
		return v, r.content(s, v, j)
	}
	if _, ok := r.values[label]; ok {
		return nil, r.fail("$def of %q is there twice", label)
	}
	r.values[label] = labelled{v, s}
	r.path.push(named("v"))
	if err := r.content(s, v, j); err != nil {
		return nil, err
	}
	r.path.pop()
	return v, nil
}

// label recognizes {"$def":label,"v":…} and {"$use":label}. Of a definition it returns the content; otherwise it
// returns j itself.
func (r *jsonReader) label(j *jsonValue) (content *jsonValue, label string, def, use bool, err error) {
	if j.kind != jsonObject || len(j.names) == 0 {
		return j, "", false, false, nil
	}
	var parts []*jsonValue
	switch {
	case j.names[0] == "$use":
		use = true
		parts, err = r.members(j, "$use")
	case j.names[0] == "$def" || len(j.names) == 2 && j.names[1] == "$def":
		def = true
		parts, err = r.members(j, "$def", "v")
	default:
		return j, "", false, false, nil
	}
	if err == nil {
		err = r.want(jsonString, parts[0])
	}
	if err != nil {
		return nil, "", false, false, err
	}
	return parts[len(parts)-1], parts[0].text, def, use, nil
}

// content fills the empty container v.
func (r *jsonReader) content(s *shape, v Value, j *jsonValue) error {
	if c, ok := v.(*Cell); ok {
		parts, err := r.members(j, "ref")
		if err != nil {
			return err
		}
		r.path.push(named("ref"))
		if c.Value, err = r.value(s.kids[0], parts[0]); err != nil {
			return err
		}
		r.path.pop()
		return nil
	}
	if err := r.want(jsonArray, j); err != nil {
		return err
	}
	for i := range j.items {
		item := &j.items[i]
		r.path.push(indexed(i))
		switch v := v.(type) {
		case *List:
			x, err := r.value(s.kids[0], item)
			if err != nil {
				return err
			}
			v.Items = append(v.Items, x)
		case *Map:
			e, err := r.entry(s, item)
			if err != nil {
				return err
			}
			v.Entries = append(v.Entries, e)
		}
		r.path.pop()
	}
	return nil
}

func (r *jsonReader) entry(s *shape, j *jsonValue) (Entry, error) {
	key, value, err := r.pair(j, "key, value")
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	r.path.push(indexed(0))
	if e.Key, err = r.value(s.kids[0], key); err != nil {
		return Entry{}, err
	}
	r.path.pop()
	r.path.push(indexed(1))
	if e.Value, err = r.value(s.kids[1], value); err != nil {
		return Entry{}, err
	}
	r.path.pop()
	return e, nil
}
