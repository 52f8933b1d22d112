package value

import (
	"fmt"
	"math"
	"strconv"

	"e3/internal/format/beast2"
	"e3/internal/format/manifest"
)

// A KindError reports a plain value whose kind differs from that of the value to replace.
type KindError struct {
	Where     string // path of the part that differs: "" for the value itself, else as in ".grid[2]"
	Want, Got string
}

func (e *KindError) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("its value is %s, and this is %s", e.Want, e.Got)
	}
	return fmt.Sprintf("%s of its value is %s, and this is %s", e.Where, e.Want, e.Got)
}

// Fit returns v as a value of the kind of w, or a *KindError. text is the user's text for v, "" if the user wrote JSON:
// if w is a string and v a number or a boolean, the result is this text. Kinds are null, boolean, integer, float,
// string, list and mapping. An integer becomes a float if w is a float, and the reverse, if the number stays the same.
// Elements of a list must have the kind of w's elements, and values of a mapping the kind of w's value under the same
// name. Names may be added or missing. Some values fit any kind: null, the elements of an empty list, a list of several
// kinds, and other types of the reference.
func (w *Value) Fit(v any, text string) (any, error) {
	if w.typ.Kind() == beast2.KindString && text != "" {
		switch v.(type) {
		case bool, int64, float64:
			return text, nil
		}
	}
	return fit(w.typ, v, "")
}

// IsNull reports whether the value is null, which has no kind.
func (w *Value) IsNull() bool { return w.typ.Kind() == beast2.KindNull }

func fit(t beast2.Type, v any, where string) (any, error) {
	other := func() (any, error) { return nil, &KindError{Where: where, Want: kindOf(t), Got: describe(v)} }
	switch t.Kind() {
	case beast2.KindBoolean:
		if _, ok := v.(bool); !ok {
			return other()
		}
	case beast2.KindString:
		if _, ok := v.(string); !ok {
			return other()
		}
	case beast2.KindInteger:
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
		if _, ok := v.(int64); !ok {
			return other()
		}
	case beast2.KindFloat:
		if n, ok := v.(int64); ok && -1<<53 <= n && n <= 1<<53 {
			return float64(n), nil
		}
		if _, ok := v.(float64); !ok {
			return other()
		}
	case beast2.KindArray:
		list, ok := v.([]any)
		if !ok {
			return other()
		}
		fitted := make([]any, len(list))
		for i := range list {
			var err error
			if fitted[i], err = fit(t.Elem(), list[i], where+"["+strconv.Itoa(i)+"]"); err != nil {
				return nil, err
			}
		}
		return fitted, nil
	case beast2.KindStruct:
		return fitObject(t, v, where)
	}
	return v, nil
}

func fitObject(t beast2.Type, v any, where string) (any, error) {
	o, ok := v.(manifest.Object)
	if !ok {
		return nil, &KindError{Where: where, Want: kindOf(t), Got: describe(v)}
	}
	known := map[string]beast2.Type{}
	for _, f := range t.Fields() {
		known[f.Name] = f.Type
	}
	fitted := make(manifest.Object, len(o))
	for i, m := range o {
		fitted[i] = m
		ft, ok := known[m.Name]
		if !ok {
			continue
		}
		var err error
		if fitted[i].Value, err = fit(ft, m.Value, where+"."+m.Name); err != nil {
			return nil, err
		}
	}
	return fitted, nil
}

var kindNames = map[beast2.Kind]string{
	beast2.KindNull: "null", beast2.KindBoolean: "a boolean", beast2.KindInteger: "an integer", beast2.KindFloat: "a float",
	beast2.KindString: "a string", beast2.KindArray: "a list", beast2.KindStruct: "a mapping",
}

func kindOf(t beast2.Type) string {
	if name, ok := kindNames[t.Kind()]; ok {
		return name
	}
	return t.String()
}

// describe names the kind of a plain value, and quotes a short value.
func describe(v any) string {
	var kind string
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		kind = "the boolean"
	case int64:
		kind = "the integer"
	case float64:
		kind = "the float"
	case string:
		kind = "the string"
	case []any:
		return "a list"
	default:
		return "a mapping"
	}
	const most = 60
	text := string(manifest.AppendJSON(nil, v))
	if len(text) > most {
		return "a" + kind[len("the"):]
	}
	return kind + " " + text
}
