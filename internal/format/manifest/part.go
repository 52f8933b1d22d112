package manifest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/record"
)

// A program may read its file of parameters itself. A source with "only" gives it a file of the same form that holds
// the chosen values alone, written as they are in the file: a date stays a date, and 1e-3 what the program's own reader
// takes it for. So an edit of another value, or of a comment, changes no input of the task.

// MaxOnly is the greatest number of values that one source may choose.
const MaxOnly = 200

// A part is what a source with only or at says.
type part struct {
	only []string // paths in the file; none of them lies inside another
	at   string   // where the file is staged; "": at the path of the file of parameters. Of a fan-in: its folder
	kind Kind     // of at: Dir with a slash at its end
	pos  Pos      // of the key that came first; zero without both
}

// readOnly reads the paths of values.
func (d *decoder) readOnly(where string, n *node) []string {
	if n.kind == stringNode {
		n = &node{kind: listNode, pos: n.pos, list: []node{*n}}
	}
	paths := distinct(d, where, n, "a list of values of the file", "the path of a value, as train.rate", func(item *node) bool {
		if ValidOnly(item.text) {
			return true
		}
		d.report.add(item.pos, "write names joined by dots", "%s: %q is not the path of a value", where, truncate(item.text))
		return false
	})
	if len(paths) > MaxOnly {
		d.report.add(n.pos, "name the mapping that holds them", "%s: more than %d values", where, MaxOnly)
	}
	return Outermost(paths)
}

// ValidOnly reports whether s may be a path in only. Other names than those of parameters are allowed, because nothing but
// the name of an input is made of them: record.PartInput.
func ValidOnly(s string) bool {
	for name := range strings.SplitSeq(s, ".") {
		if name == "" || !ValidLabelItem(name) || strings.ContainsAny(name, "{},") {
			return false
		}
	}
	return len(s) <= 256
}

// Outermost sorts paths of values and drops those that lie inside others.
func Outermost(paths []string) []string {
	list := slices.Clone(paths)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(p string) bool {
		return slices.ContainsFunc(list, func(q string) bool { return strings.HasPrefix(p, q+".") })
	})
}

// fromPart completes a plan for a part of a file of parameters.
func (d *decoder) fromPart(p *plan, where string, ref *wire, found named, r *reference) bool {
	report := func(hint, format string, args ...any) bool {
		d.report.add(ref.part.pos, hint, where+": "+format, args...)
		return false
	}
	if found.task || d.def.Inputs[found.index].Kind != ParamsInput {
		return report("declare {params: PATH} under inputs, and name it in from",
			"only and at belong to a file of parameters, and %s is none", truncate(r.name))
	}
	of := &d.def.Inputs[found.index]
	switch {
	case r.entry != "" || r.selected || r.items != nil:
		return report("write from: "+of.Name, "%q is no file", truncate(ref.source))
	case strings.Contains(of.Path, "\n"):
		return report("declare the file that the program reads as an input of its own",
			"only and at take values of one file, and %s has several", truncate(of.Name))
	case len(ref.part.only) == 0:
		return report(fmt.Sprintf("choose values by only, or declare {file: %s} for the whole file", of.Path), "at needs only")
	case formOf(of.Path) == pythonForm:
		return report(fmt.Sprintf("declare {file: %s} for the whole file, or read its values one by one", of.Path),
			"no part of %s can be written: want YAML, JSON or TOML", truncate(of.Path))
	case ref.part.kind == Dir:
		return report("name a file in it", "at: %s is a folder", truncate(ref.part.at))
	case ref.part.at != "" && formOf(ref.part.at) != formOf(of.Path):
		return report("give it the ending of "+of.Path, "%s has another form than %s", truncate(ref.part.at), truncate(of.Path))
	}
	name := record.PartInput(of.Name, ref.part.only)
	index, known := d.params[name]
	if !known {
		if d.params == nil {
			d.params = map[string]int32{}
		}
		index = int32(len(d.def.Inputs))
		d.def.Inputs = append(d.def.Inputs, Input{Name: name, Kind: PartInput, Path: of.Path, NoExport: of.NoExport, Pos: ref.pos})
		d.params[name] = index
	}
	p.fromInput(&d.def.Inputs[index], index)
	p.project = false // other content than the file at that path has
	if ref.part.at != "" {
		p.input.Path = ref.part.at
	}
	return true
}

// A form is the language of a file of values.
type form string

const (
	yamlForm   form = ".yaml"
	jsonForm   form = ".json"
	tomlForm   form = ".toml"
	pythonForm form = ".py"
)

// formOf is the language of a file by its name: YAML, which contains JSON, unless its ending says another one.
func formOf(name string) form {
	switch f := form(strings.ToLower(path.Ext(name))); f {
	case jsonForm, tomlForm, pythonForm:
		return f
	}
	return yamlForm
}

// HoldsValues reports whether the name of a file says that ParseValue reads it as values.
func HoldsValues(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json", ".toml"}, strings.ToLower(path.Ext(name)))
}

// PartOf returns a file of the form of data that holds the values at the given paths alone, without comments. name is
// the file's, and says its form. If data lacks a value, the error is a [MissingError].
func PartOf(name string, data []byte, only []string) ([]byte, error) {
	d := newValueDecoder(name)
	n, fault := d.document(data)
	whole, err := d.valueOf(&n, fault)
	if err != nil {
		return nil, err
	}
	for _, p := range only {
		if _, ok := ValueAt(whole, p); !ok {
			return nil, &MissingError{File: name, Path: p, Hint: missingParam(whole, p)}
		}
	}
	return writeValues(name, pruned(&n, only))
}

// A MissingError says that a file of parameters lacks a value.
type MissingError struct{ File, Path, Hint string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s has no value %q (%s)", e.File, truncate(e.Path), e.Hint)
}

// Repart returns a part, which PartOf or Repart has made, with the values that whole has at the given paths. A value
// that is the same stays as it is written.
func Repart(name string, text []byte, only []string, whole any) ([]byte, error) {
	d := newValueDecoder(name)
	n, fault := d.document(text)
	if _, err := d.valueOf(&n, fault); err != nil {
		return nil, err
	}
	for _, p := range only {
		v, ok := ValueAt(whole, p)
		if !ok {
			return nil, &MissingError{File: name, Path: p, Hint: missingParam(whole, p)}
		}
		n = withNode(&n, p, v)
	}
	return writeValues(name, n)
}

func newValueDecoder(name string) *decoder {
	d := newDecoder(name, nil)
	d.values = true
	return d
}

// pruned is a mapping with the members at the given paths alone.
func pruned(n *node, only []string) node {
	out := node{kind: mapNode, pos: n.pos}
	for i := 0; i+1 < len(n.list); i += 2 {
		key, member := &n.list[i], n.list[i+1]
		if slices.Contains(only, key.text) {
			out.list = append(out.list, *key, member)
			continue
		}
		var below []string
		for _, p := range only {
			if rest, ok := strings.CutPrefix(p, key.text+"."); ok {
				below = append(below, rest)
			}
		}
		if below != nil && member.kind == mapNode {
			out.list = append(out.list, *key, pruned(&member, below))
		}
	}
	return out
}

// withNode is a mapping with the value v at a path.
func withNode(n *node, p string, v any) node {
	name, rest, deeper := strings.Cut(p, ".")
	out := node{kind: mapNode, pos: n.pos, list: slices.Clone(n.list)}
	i := member(&out, name)
	if i < 0 {
		out.list = append(out.list, node{kind: stringNode, text: name}, node{kind: mapNode})
		i = len(out.list) - 1
	}
	if deeper {
		out.list[i] = withNode(&out.list[i], rest, v)
	} else {
		out.list[i] = rewritten(&out.list[i], v)
	}
	return out
}

// member is the index of a mapping's value with a name; -1 if there is none, or n is no mapping.
func member(n *node, name string) int {
	if n.kind != mapNode {
		return -1
	}
	for i := 0; i+1 < len(n.list); i += 2 {
		if n.list[i].text == name {
			return i + 1
		}
	}
	return -1
}

// rewritten is a node for the value v that keeps the spelling of n where the values are the same.
func rewritten(n *node, v any) node {
	if o, ok := v.(Object); ok && n.kind == mapNode {
		values := make(map[string]any, len(o))
		for _, m := range o {
			values[m.Name] = m.Value
		}
		out := node{kind: mapNode, pos: n.pos}
		for i := 0; i+1 < len(n.list); i += 2 {
			name := n.list[i].text
			if m, ok := values[name]; ok {
				out.list = append(out.list, n.list[i], rewritten(&n.list[i+1], m))
				delete(values, name)
			}
		}
		for _, m := range o {
			if _, left := values[m.Name]; left {
				out.list = append(out.list, node{kind: stringNode, text: m.Name}, nodeOf(m.Value))
			}
		}
		return out
	}
	if bytes.Equal(AppendJSON(nil, newValueDecoder("").value("", n)), AppendJSON(nil, v)) {
		return *n
	}
	return nodeOf(v)
}

// nodeOf is the node of a value.
func nodeOf(v any) node {
	switch v := v.(type) {
	case nil:
		return node{kind: nullNode, text: "null"}
	case string:
		return node{kind: stringNode, text: v}
	case []any:
		n := node{kind: listNode}
		for _, item := range v {
			n.list = append(n.list, nodeOf(item))
		}
		return n
	case Object:
		n := node{kind: mapNode}
		for _, m := range v {
			n.list = append(n.list, node{kind: stringNode, text: m.Name}, nodeOf(m.Value))
		}
		return n
	}
	text, _ := ScalarText(v)
	n, _ := resolvePlain(text)
	return n
}

// writeValues writes a mapping in the form of a file's name.
func writeValues(name string, n node) ([]byte, error) {
	switch formOf(name) {
	case jsonForm:
		return append(appendFlow(nil, &n, jsonForm), '\n'), nil
	case tomlForm:
		if p := nullIn(&n, ""); p != "" {
			return nil, fmt.Errorf("%s: %s is null, which TOML cannot say", name, p)
		}
		var b []byte
		for i := 0; i+1 < len(n.list); i += 2 {
			b = append(append(appendKey(b, &n.list[i], tomlForm), " = "...), appendFlow(nil, &n.list[i+1], tomlForm)...)
			b = append(b, '\n')
		}
		return b, nil
	}
	if len(n.list) == 0 {
		return []byte("{}\n"), nil
	}
	return appendBlock(nil, &n, 0), nil
}

// nullIn is the path of the first null in n; "" if there is none.
func nullIn(n *node, at string) string {
	switch n.kind {
	case nullNode:
		return strings.TrimPrefix(at, ".")
	case listNode:
		for i := range n.list {
			if p := nullIn(&n.list[i], at); p != "" {
				return p
			}
		}
	case mapNode:
		for i := 0; i+1 < len(n.list); i += 2 {
			if p := nullIn(&n.list[i+1], at+"."+n.list[i].text); p != "" {
				return p
			}
		}
	}
	return ""
}

// appendBlock appends a mapping or list that is not empty in the block style of YAML.
func appendBlock(b []byte, n *node, indent int) []byte {
	step := 1
	if n.kind == mapNode {
		step = 2
	}
	for i := 0; i+step <= len(n.list); i += step {
		b = append(b, strings.Repeat("  ", indent)...)
		if n.kind == mapNode {
			b = append(appendKey(b, &n.list[i], yamlForm), ':')
		} else {
			b = append(b, '-')
		}
		v := &n.list[i+step-1]
		if (v.kind == mapNode || v.kind == listNode) && len(v.list) > 0 {
			b = appendBlock(append(b, '\n'), v, indent+1)
			continue
		}
		b = append(appendFlow(append(b, ' '), v, yamlForm), '\n')
	}
	return b
}

// appendFlow appends a value on one line.
func appendFlow(b []byte, n *node, f form) []byte {
	switch n.kind {
	case listNode:
		b = append(b, '[')
		for i := range n.list {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendFlow(b, &n.list[i], f)
		}
		return append(b, ']')
	case mapNode:
		between := ": "
		if f == tomlForm {
			between = " = "
		}
		b = append(b, '{')
		for i := 0; i+1 < len(n.list); i += 2 {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendKey(b, &n.list[i], f), between...)
			b = appendFlow(b, &n.list[i+1], f)
		}
		return append(b, '}')
	case stringNode:
		if n.plain() && safePlain(n.text, f) {
			return append(b, n.text...)
		}
		return appendQuoted(b, n.text)
	case nullNode:
		return append(b, "null"...)
	}
	return append(b, n.text...)
}

// appendKey appends the name of a member.
func appendKey(b []byte, n *node, f form) []byte {
	if f == tomlForm && notation.ValidName(n.text) || f == yamlForm && n.plain() && safePlain(n.text, f) {
		return append(b, n.text...)
	}
	return appendQuoted(b, n.text)
}

// appendQuoted appends a string in double quotes, as JSON, YAML and TOML read it.
func appendQuoted(b []byte, s string) []byte {
	return append(b, bytes.ReplaceAll(appendJSONString(nil, s), []byte{0x7f}, []byte(`\u007f`))...)
}

// safePlain reports whether text that was plain may be written without quotes. Text of other characters means the
// same with quotes.
func safePlain(s string, f form) bool {
	if f == jsonForm {
		return s == "NaN" || s == "Infinity" || s == "-Infinity"
	}
	ok := s != "" && s[len(s)-1] != ':' && s[len(s)-1] != ' '
	for i := range len(s) {
		c := s[i]
		ok = ok && (notation.IsDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '.' || c == '_' || c == '+' ||
			(c == ':' || c == ' ') && i > 0 && !strings.Contains(s, ": ") || c == '-' && len(s) > 1 && s[1] != ' ')
	}
	return ok
}
