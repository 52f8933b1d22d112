package beast2

import (
	"encoding/hex"
	"math"
	"strconv"
)

// ToJSON returns the JSON notation of a beast2 file, on one line; FromJSON turns it back into
// the same bytes. Errors are *SyntaxError.
func ToJSON(data []byte) ([]byte, error) {
	t, v, shared, err := decode(data)
	if err != nil {
		return nil, err
	}
	w := jsonWriter{
		b:          make([]byte, 0, 4*len(data)),
		used:       map[*list]bool{},
		listNames:  map[*list]string{},
		shared:     shared,
		valueNames: map[Value]string{},
	}
	w.findUsed(t)
	w.raw(`{"type":`)
	w.typ(t)
	w.raw(`,"value":`)
	w.value(shapeOf(t), v)
	w.raw("}\n")
	return w.b, nil
}

type jsonWriter struct {
	b          []byte
	used       map[*list]bool // lists to which backreferences lead
	listNames  map[*list]string
	shared     map[Value]bool // containers to which backreferences lead
	valueNames map[Value]string
}

func (w *jsonWriter) raw(s string)  { w.b = append(w.b, s...) }
func (w *jsonWriter) text(s string) { w.b = appendJSONString(w.b, s) }

// comma separates element i from the element before.
func (w *jsonWriter) comma(i int) {
	if i > 0 {
		w.raw(",")
	}
}

func (w *jsonWriter) findUsed(t Type) {
	if t.Kind().primitive() {
		return
	}
	w.findUsed(t.n.key)
	w.findUsed(t.n.elem)
	switch {
	case t.n.use:
		w.used[t.n.list] = true
	case t.n.list != nil:
		for _, f := range t.n.list.fields {
			w.findUsed(f.Type)
		}
	}
}

func (w *jsonWriter) typ(t Type) {
	k := t.Kind()
	if k.primitive() {
		w.text(k.String())
		return
	}
	w.raw("{")
	w.text(k.String())
	w.raw(":")
	switch k {
	case KindArray, KindSet, KindRef:
		w.typ(t.n.elem)
	case KindDict:
		w.raw("[")
		w.typ(t.n.key)
		w.raw(",")
		w.typ(t.n.elem)
		w.raw("]")
	case KindRecursive:
		w.raw(strconv.Itoa(t.n.up))
	case KindStruct, KindVariant:
		w.list(t.n)
	case KindFunction, KindAsyncFunction:
		w.raw(`{"inputs":`)
		w.list(t.n)
		w.raw(`,"output":`)
		w.typ(t.n.elem)
		w.raw("}")
	}
	w.raw("}")
}

func (w *jsonWriter) list(n *node) {
	if n.use {
		w.use(w.listNames[n.list])
		return
	}
	def := w.used[n.list]
	if def {
		w.listNames[n.list] = w.def("t", len(w.listNames))
	}
	w.raw("[")
	for i, f := range n.list.fields {
		w.comma(i)
		if n.list.kind == inputList {
			w.typ(f.Type)
			continue
		}
		w.raw("[")
		w.text(f.Name)
		w.raw(",")
		w.typ(f.Type)
		w.raw("]")
	}
	w.raw("]")
	if def {
		w.raw("}")
	}
}

// def opens the definition of a container and returns its label.
func (w *jsonWriter) def(prefix string, n int) string {
	label := prefix + strconv.Itoa(n)
	w.raw(`{"$def":`)
	w.text(label)
	w.raw(`,"v":`)
	return label
}

func (w *jsonWriter) use(label string) {
	w.raw(`{"$use":`)
	w.text(label)
	w.raw("}")
}

// value writes v, which Decode returned: its Go types are right.
func (w *jsonWriter) value(s *shape, v Value) {
	switch s.kind {
	case KindNull:
		w.raw("null")
	case KindBoolean:
		w.b = strconv.AppendBool(w.b, v.(bool))
	case KindInteger, KindDateTime:
		w.raw(`"`)
		w.b = strconv.AppendInt(w.b, v.(int64), 10)
		w.raw(`"`)
	case KindFloat:
		w.float(v.(float64))
	case KindString:
		w.text(v.(string))
	case KindBlob:
		w.raw(`{"hex":"`)
		w.b = hex.AppendEncode(w.b, v.([]byte))
		w.raw(`"}`)
	case KindStruct:
		w.raw("{")
		for i, kid := range s.kids {
			w.comma(i)
			w.text(s.name(i))
			w.raw(":")
			w.value(kid, v.(Record)[i])
		}
		w.raw("}")
	case KindVariant:
		c := v.(Case)
		w.raw(`{"case":`)
		w.text(s.name(c.Tag))
		w.raw(`,"value":`)
		w.value(s.kids[c.Tag], c.Value)
		w.raw("}")
	case KindFunction, KindAsyncFunction:
		w.value(ir().shape, v)
	default:
		w.container(s, v)
	}
}

func (w *jsonWriter) container(s *shape, v Value) {
	if !w.shared[v] {
		w.content(s, v)
		return
	}
	if label, ok := w.valueNames[v]; ok {
		w.use(label)
		return
	}
	w.valueNames[v] = w.def("a", len(w.valueNames))
	w.content(s, v)
	w.raw("}")
}

func (w *jsonWriter) content(s *shape, v Value) {
	switch v := v.(type) {
	case *List:
		w.raw("[")
		for i, item := range v.Items {
			w.comma(i)
			w.value(s.kids[0], item)
		}
		w.raw("]")
	case *Map:
		w.raw("[")
		for i, e := range v.Entries {
			w.comma(i)
			w.raw("[")
			w.value(s.kids[0], e.Key)
			w.raw(",")
			w.value(s.kids[1], e.Value)
			w.raw("]")
		}
		w.raw("]")
	case *Cell:
		w.raw(`{"ref":`)
		w.value(s.kids[0], v.Value)
		w.raw("}")
	}
}

// float writes the number for people and its bits for exactness.
func (w *jsonWriter) float(f float64) {
	w.raw(`{"f":"`)
	w.b = appendFloatText(w.b, f)
	w.raw(`","bits":"`)
	bits := math.Float64bits(f)
	for shift := 60; shift >= 0; shift -= 4 {
		w.b = append(w.b, "0123456789abcdef"[bits>>shift&15])
	}
	w.raw(`"}`)
}

// appendFloatText writes a number as JavaScript does, except -0.
func appendFloatText(b []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case f != f:
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	case abs == 0 || abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-2] == '0' && (b[n-3] == '-' || b[n-3] == '+') {
		b = append(b[:n-2], b[n-1]) // e-07 is e-7 in JavaScript
	}
	return b
}
