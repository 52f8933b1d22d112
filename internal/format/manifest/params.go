package manifest

import (
	"bytes"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"e3/internal/format/notation"
)

// A file of parameters is an input whose values are inputs of their own: a task that reads params.train.rate depends on
// that value alone. So Definition.Inputs has a ParamsInput for the file, and a ParamInput for each value that a task
// reads. The file is not read here: SetParams takes its content.

// readsParamOf reports whether a task reads a value or a part of a file of parameters.
func (d *Definition) readsParamOf(file string) bool {
	return slices.ContainsFunc(d.Inputs, func(in Input) bool {
		of, _, _ := strings.Cut(in.Name, ".")
		return (in.Kind == ParamInput || in.Kind == PartInput) && of == file
	})
}

// ValidParamPath reports whether s names a value below the top of a file of parameters: names joined by dots.
func ValidParamPath(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if !notation.ValidName(part) {
			return false
		}
	}
	return true
}

// param returns the index of the input for one value of a file of parameters.
func (d *decoder) param(file int32, path string, pos Pos) int32 {
	name := d.def.Inputs[file].Name + "." + path
	if index, ok := d.params[name]; ok {
		return index
	}
	if d.params == nil {
		d.params = map[string]int32{}
	}
	index := int32(len(d.def.Inputs))
	of := &d.def.Inputs[file]
	d.def.Inputs = append(d.def.Inputs, Input{Name: name, Kind: ParamInput, Path: of.Path, NoExport: of.NoExport, Pos: pos})
	d.params[name] = index
	return index
}

// paramFiles reads the path of a file of parameters, or those of several, one a line.
func (d *decoder) paramFiles(where string, n *node) string {
	items := []node{*n}
	if n.kind == listNode {
		items = n.list
	}
	if len(items) == 0 {
		d.wrongType(where, n, "a path, or a list of paths")
	}
	var list []string
	for i := range items {
		p := d.projectPath(where, &items[i], FileInput)
		switch {
		case strings.Contains(p, "\n"):
			d.report.add(items[i].pos, "", "%s %q: the path holds a line break", where, truncate(p))
		case slices.Contains(list, p):
			d.report.add(items[i].pos, "", "%s %q: it is here for the second time", where, truncate(p))
		}
		list = append(list, p)
	}
	return strings.Join(list, "\n")
}

// Overlaid is a mapping with the values of another one over it. Mappings are joined name by name; of two other values
// the one above counts.
func Overlaid(below, above Object) Object {
	joined, places := slices.Clone(below), make(map[string]int, len(below))
	for i := range below {
		places[below[i].Name] = i
	}
	for _, m := range above {
		i, known := places[m.Name]
		if !known {
			joined = append(joined, m)
			continue
		}
		a, under := joined[i].Value.(Object)
		b, over := m.Value.(Object)
		if under && over {
			m.Value = Overlaid(a, b)
		}
		joined[i] = m
	}
	return joined
}

// SetParams reads the files of parameters: content returns the content of a file by the name of its input. It sets the
// values of the inputs, and the form in which tasks get a value: a scalar as text, any other value as a JSON file. If
// a file lacks a value, the error is Errors. The definition must not be in use elsewhere.
func (d *Definition) SetParams(content func(input string) any) error {
	report := &collector{file: d.File}
	for i := range d.Inputs {
		in := &d.Inputs[i]
		switch in.Kind {
		case ParamsInput:
			in.Value = content(in.Name)
		case ParamInput:
			file, path, _ := strings.Cut(in.Name, ".")
			whole := content(file)
			v, ok := ValueAt(whole, path)
			if !ok {
				has := " has"
				if strings.Contains(in.Path, "\n") {
					has = " have"
				}
				report.add(in.Pos, missingParam(whole, path), "%s no value %q", strings.ReplaceAll(in.Path, "\n", " and ")+has, truncate(path))
			}
			in.Value = v
		}
	}
	for i := range d.Tasks {
		for j := range d.Tasks[i].Inputs {
			d.form(&d.Tasks[i].Inputs[j])
		}
	}
	return report.result()
}

// form makes the input of a task a JSON file if it is a parameter without a text. Tasks may share it.
func (d *Definition) form(t *TaskInput) {
	if t.Source.Kind != FromInput || t.Kind != Scalar {
		return
	}
	in := &d.Inputs[t.Source.Index]
	if _, scalar := ScalarText(in.Value); !scalar && (in.Kind == ParamsInput || in.Kind == ParamInput) {
		t.Kind, t.Path = JSON, valuesDir+"/"+t.Name+".json"
	}
}

// missingParam suggests another parameter in place of a missing one.
func missingParam(whole any, path string) string {
	if hint := didYouMean(path, ParamPaths(whole)); hint != "" {
		return hint
	}
	last := path[strings.LastIndexByte(path, '.')+1:]
	for known := range ParamPaths(whole) {
		if known[strings.LastIndexByte(known, '.')+1:] == last {
			return fmt.Sprintf("did you mean %q?", known)
		}
	}
	if names := slices.Collect(ParamPaths(whole)); len(names) > 0 {
		return "it has " + listed(names)
	}
	return "the file holds no named values"
}

// ParamPaths yields the paths of all values in a mapping that a path can name, mappings before their members.
func ParamPaths(whole any) iter.Seq[string] {
	return func(yield func(string) bool) { paramPaths(whole, "", yield) }
}

func paramPaths(v any, at string, yield func(string) bool) bool {
	o, _ := v.(Object)
	for _, m := range o {
		if !notation.ValidName(m.Name) {
			continue
		}
		path := m.Name
		if at != "" {
			path = at + "." + m.Name
		}
		if !yield(path) || !paramPaths(m.Value, path, yield) {
			return false
		}
	}
	return true
}

// ValueAt returns the value at a dotted path in nested mappings.
func ValueAt(v any, path string) (any, bool) {
	for part := range strings.SplitSeq(path, ".") {
		o, _ := v.(Object)
		var ok bool
		if v, ok = o.value(part); !ok {
			return nil, false
		}
	}
	return v, true
}

// value is the value of the member with a name.
func (o Object) value(name string) (any, bool) {
	i := slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return nil, false
	}
	return o[i].Value, true
}

// WithValue returns whole with another value at a dotted path. It makes missing mappings on the path. It returns false
// if a part of the path is no mapping. whole itself is unchanged.
func WithValue(whole any, path string, v any) (any, bool) {
	o, ok := whole.(Object)
	if !ok {
		return whole, false
	}
	part, rest, deeper := strings.Cut(path, ".")
	o = slices.Clone(o)
	i := slices.IndexFunc(o, func(m Member) bool { return m.Name == part })
	if i < 0 {
		i = len(o)
		o = append(o, Member{Name: part, Value: Object{}})
	}
	if deeper {
		if v, ok = WithValue(o[i].Value, rest, v); !ok {
			return whole, false
		}
	}
	o[i].Value = v
	return o, true
}

// ParseValue reads a file that holds one value, as Input.Value has it: TOML or Python if the name ends so, else YAML or
// JSON. Merge keys are followed. A scalar that no Input.Value can be, as a date or an infinite number, is a string. name is also
// the name of the file for Errors.
func ParseValue(name string, data []byte) (any, error) {
	d := newValueDecoder(name)
	n, fault := d.document(data)
	return d.valueOf(&n, fault)
}

// ParseWritten is ParseValue with each number and truth value as [Written].
func ParseWritten(name string, data []byte) (any, error) {
	d := newValueDecoder(name)
	d.written = true
	if strings.EqualFold(path.Ext(name), ".json") { // a YAML reader accepts more than JSON
		n, fault := readJSONValue(bytes.TrimPrefix(data, []byte(byteOrderMark)), d)
		return d.valueOf(&n, fault)
	}
	n, fault := d.document(data)
	return d.valueOf(&n, fault)
}

// valueOf is the value of a document that was read.
func (d *decoder) valueOf(n *node, fault *syntaxError) (any, error) {
	if err := d.result(fault); err != nil {
		return nil, err
	}
	v := d.value("value", n)
	return v, d.report.result()
}

// result is the error of a document that was read. Beside other faults, that of its syntax only says that there are
// some.
func (d *decoder) result(fault *syntaxError) error {
	if fault != nil && len(d.report.errs) == 0 {
		return d.report.end(fault)
	}
	return d.report.result()
}

// ElementLines returns the lines where the elements of a list, or the members of a mapping, begin in a JSON or YAML document that
// ParseValue reads; nil for any other value or text.
func ElementLines(name string, data []byte) []int {
	n, fault := newValueDecoder(name).document(data)
	step := map[nodeKind]int{listNode: 1, mapNode: 2}[n.kind]
	if fault != nil || step == 0 {
		return nil
	}
	var lines []int
	for i := 0; i < len(n.list); i += step {
		lines = append(lines, int(n.list[i].pos.Line))
	}
	return lines
}

// document reads a whole document as one node, in the form that its name says; YAML may be JSON.
func (d *decoder) document(data []byte) (node, *syntaxError) {
	switch formOf(d.report.file) {
	case tomlForm:
		return readTOML(data)
	case pythonForm:
		return readPython(data)
	}
	look, err := scan(section(data))
	switch {
	case err != nil: // bytes in memory are always read
		return node{}, &syntaxError{Pos{1, 1}, err.Error(), ""}
	case look.fault != nil:
		return node{}, look.fault
	case look.bom:
		data = data[len(byteOrderMark):]
	}
	var wrong *syntaxError
	if look.first == '{' {
		var n node
		if n, wrong = readJSONValue(data, newDecoder(d.report.file, nil)); wrong == nil {
			return n, nil
		}
	}
	c := &yamlReader{decoder: d}
	root, fault := c.parse(data)
	switch {
	case fault != nil && wrong != nil:
		return node{}, wrong
	case fault != nil && fault.msg == emptyFile:
		fault.hint = ""
	case fault != nil && fault.hint == onePackage:
		fault.hint = "one file holds one document"
	case fault == nil:
		return c.convert(root, 0), nil
	}
	return node{}, fault
}
