package manifest

import (
	"encoding/json"
	"strconv"
)

// A Written is a number or a truth value, with the text that a person wrote: 3.10 for the number 3.1.
type Written struct {
	Value any
	Text  string
}

// ScalarText is the text of a scalar value as a task receives it in its environment. A list or an Object has
// none: it is staged as JSON.
func ScalarText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return formatFloat(v), true
	case string:
		return v, true
	case Written:
		return v.Text, true
	}
	return "", false
}

// AppendJSON appends v, an Input.Value, as compact JSON: members in file order, and numbers so that they are read back
// as the same numbers of the same type.
func AppendJSON(dst []byte, v any) []byte { return appendJSON(dst, v, false) }

// appendJSON is AppendJSON; written keeps numbers as a person wrote them, where that is JSON.
func appendJSON(dst []byte, v any, written bool) []byte {
	switch v := v.(type) {
	case string:
		return appendJSONString(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, item, written)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for i, m := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, m.Name), ':')
			dst = appendJSON(dst, m.Value, written)
		}
		return append(dst, '}')
	case Written:
		if written && json.Valid([]byte(v.Text)) {
			return append(dst, v.Text...)
		}
		return AppendJSON(dst, v.Value)
	}
	text, _ := ScalarText(v)
	return append(dst, text...)
}

func appendJSONString(dst []byte, s string) []byte {
	// Marshal never fails on a string.
	b, _ := json.Marshal(s)
	return append(dst, b...)
}
