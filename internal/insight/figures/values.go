package figures

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// maxKeys bounds the bytes of all keys of a document.
const maxKeys = 16 << 20

// A Value is a value of a document under its key. The names on the way to it are joined by dots: train.loss. A name with a
// character that separates names stands in brackets and quotes, so that no two keys are the same: ["a.b"].loss.
type Value struct {
	Key  string
	JSON json.RawMessage
	// List has the elements of a list, if the reader wants lists whole.
	List []json.RawMessage
}

// Values returns the values of a document, in its order. An element of a list is a value of its own, with its index in brackets,
// or whole says that the list is one value. In a table with one row a value has the name of its column. With more rows, each is
// named by its first cell if these differ, else by its index.
func (d *Document) Values(whole bool) ([]Value, error) {
	f := flattener{whole: whole, at: map[string]int{}}
	if d.table != nil {
		f.table(d.table)
	} else {
		f.add("", d.root)
	}
	if f.bytes > maxKeys {
		return nil, errors.New("it is too large to be compared by key")
	}
	return f.list, nil
}

type flattener struct {
	whole bool
	list  []Value
	at    map[string]int
	bytes int
}

func (f *flattener) set(key string, v Value) {
	if f.bytes += len(key); f.bytes > maxKeys {
		return
	}
	v.Key = key
	if i, twice := f.at[key]; twice {
		f.list[i] = v
		return
	}
	f.at[key] = len(f.list)
	f.list = append(f.list, v)
}

func (f *flattener) add(key string, v any) {
	switch v := v.(type) {
	case object:
		for i := range v {
			f.add(join(key, v[i].name), v[i].value)
		}
		if len(v) == 0 {
			f.set(key, Value{JSON: json.RawMessage("{}")})
		}
	case []any:
		if len(v) == 0 || f.whole {
			f.set(key, Value{JSON: json.RawMessage("[]"), List: elements(v)})
			return
		}
		for i := range v {
			f.add(key+"["+strconv.Itoa(i)+"]", v[i])
		}
	case json.RawMessage:
		f.set(key, Value{JSON: v})
	}
}

// elements are the plain elements of a list; one with elements of its own is empty.
func elements(list []any) []json.RawMessage {
	flat := make([]json.RawMessage, len(list))
	for i := range list {
		flat[i], _ = list[i].(json.RawMessage)
	}
	return flat
}

func (f *flattener) table(t *Table) {
	names := map[string]bool{}
	for _, row := range t.Rows {
		names[first(row)] = true
	}
	named := len(t.Rows) > 1 && len(names) == len(t.Rows) && len(t.Head) > 1 && !names[""]
	for i, row := range t.Rows {
		at := ""
		if named {
			at = join("", first(row))
		} else if len(t.Rows) > 1 {
			at = "[" + strconv.Itoa(i) + "]"
		}
		for c, text := range row {
			switch {
			case named && c == 0:
			case named && len(t.Head) == 2:
				f.set(at, Value{JSON: Cell(text)})
			default:
				f.set(join(at, t.Head[c]), Value{JSON: Cell(text)})
			}
		}
	}
}

func first(row []string) string { return strings.TrimSpace(row[0]) }

// join is the key of a member.
func join(key, name string) string {
	if name == "" || strings.ContainsAny(name, `.[]"`) {
		return key + "[" + strconv.Quote(name) + "]"
	}
	if key == "" {
		return name
	}
	return key + "." + name
}

// Text is a value as people read it beside others: a text is quoted, a number that is not finite is not.
func Text(v json.RawMessage) string {
	if _, ok := Number(v); ok {
		return strings.Trim(string(v), `"`)
	}
	return string(v)
}
