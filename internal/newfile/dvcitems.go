package newfile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
)

// A family is what a foreach or a matrix of DVC becomes: a matrix whose items come from a file of parameters, from a
// value or from the package file.
type family struct {
	dims  []string // variables that name an item
	from  []dimension
	items []familyItem
	// member is the variable of a member of an item by its name in DVC; whole that of an item without members.
	member map[string]string
	whole  string
	used   map[string]bool // variables that are constants of the items
	joined bool            // key has the values of all dimensions, of a matrix of DVC
}

// A dimension is the source of the items of a dimension.
type dimension struct {
	list   string // as YAML; or
	source string // an input whose items have members
	prefix string // of their names in DVC: item.
	by     string // the member that names an item
}

// A familyItem is an item as it is now.
type familyItem struct {
	label  string
	values map[string]string // of the variables
}

// expand is a path with names in braces.
func (it *familyItem) expand(p string) string {
	for name, v := range it.values {
		p = strings.ReplaceAll(p, "{"+name+"}", v)
	}
	return p
}

// variable is the variable that an expression means: ${item}, ${key} or ${item.name}.
func (f *family) variable(steps []string) (string, bool) {
	name := ""
	switch {
	case len(steps) == 1 && steps[0] == "key":
		name = f.member["key"]
	case len(steps) == 1:
		name = f.whole
	case steps[0] == "item":
		name = f.member[strings.Join(steps, ".")]
	}
	if name != "" && !slices.Contains(f.dims, name) {
		f.used[name] = true
	}
	return name, name != ""
}

// key is the key of an item of a matrix in DVC: the item's values, joined.
func (f *family) key() (list []piece) {
	for i, d := range f.dims {
		if i > 0 {
			list = append(list, piece{text: "-", literal: true})
		}
		list = append(list, piece{variable: d})
	}
	return list
}

// has reports whether a family has an item with the names of each item of another one.
func (f *family) has(g *family) bool {
	if !slices.Equal(f.dims, g.dims) {
		return false
	}
	return !slices.ContainsFunc(g.items, func(it familyItem) bool {
		return !slices.ContainsFunc(f.items, func(own familyItem) bool { return own.label == it.label })
	})
}

// live reports whether the items follow a file of parameters.
func (f *family) live() bool {
	return slices.ContainsFunc(f.from, func(d dimension) bool { return strings.Contains(d.source+d.list, paramMark) })
}

// text is the matrix of the task.
func (f *family) text() string {
	b := make([]string, len(f.dims))
	for i, name := range f.dims {
		d := &f.from[i]
		switch {
		case d.source == "":
			b[i] = name + ": " + d.list
		case f.used[f.whole]:
			b[i] = name + ": " + d.source
		default:
			b[i] = name + ": {" + f.members(name, d) + "}"
		}
	}
	return "{" + strings.Join(b, ", ") + "}"
}

// members is the source of a dimension whose items have members.
func (f *family) members(name string, d *dimension) string {
	long := "from: " + d.source
	if d.by != "" && d.by != name {
		long += ", by: " + scalar(d.by)
	}
	var with []string
	for _, name := range slices.Sorted(maps.Keys(f.member)) {
		if v := f.member[name]; f.used[v] && strings.HasPrefix(name, d.prefix) {
			name = strings.TrimPrefix(name, d.prefix)
			with = append(with, v+": "+scalar(name))
			if v == name {
				with[len(with)-1] = name
			}
		}
	}
	plain := !slices.ContainsFunc(with, func(s string) bool { return strings.Contains(s, ": ") })
	if plain {
		long += ", with: [" + strings.Join(with, ", ") + "]"
	} else {
		for i, w := range with {
			if !strings.Contains(w, ": ") {
				with[i] = w + ": " + w
			}
		}
		long += ", with: {" + strings.Join(with, ", ") + "}"
	}
	return long
}

// foreach adds the stages of a foreach.
func (c *converter) foreach(s *stage, over *yaml.Node) {
	p := piece{}
	if over.Kind == yaml.ScalarNode {
		list, err := s.pieces(over.Value)
		if err != nil || len(list) != 3 || list[0].text != "" || list[2].text != "" {
			c.note(over, true, "stage %s: foreach: %q is no list or mapping of values; write its tasks by hand", s.name, over.Value)
			return
		}
		p = list[1]
	} else {
		p.value = nodeValue(over)
		if !s.resolveValue(&p.value) {
			c.note(over, true, "stage %s: foreach: an item has no value in params.yaml and vars; write its tasks by hand", s.name)
			return
		}
	}
	var items []any
	var keys []string
	f := &family{member: map[string]string{}, used: map[string]bool{}}
	switch v := p.value.(type) {
	case []any:
		items = v
		plain := !slices.ContainsFunc(v, isCollection)
		for i, item := range v {
			keys = append(keys, strconv.Itoa(i))
			if plain {
				keys[i] = words(item)
			}
		}
		if plain {
			f.dims, f.whole = []string{"item"}, "item"
			f.from = []dimension{{list: s.listOf(p)}}
			for i := range v {
				f.items = append(f.items, familyItem{manifest.EscapeLabel(keys[i]), map[string]string{"item": keys[i]}})
			}
		} else {
			f = s.named(f, p, v)
		}
	case manifest.Object:
		for _, m := range v {
			items, keys = append(items, m.Value), append(keys, m.Name)
		}
		f = s.keyed(f, p, v)
	default:
		c.note(over, true, "stage %s: foreach: it is no list or mapping; write its tasks by hand", s.name)
		return
	}
	s.copy = func() (list []*stage) {
		if p.source != "" {
			c.note(over, true, "stage %s: its items are written out: after an item of %s in %s is added or removed, convert it again, or edit the tasks", s.name, p.path, p.source)
		}
		for i, item := range items {
			one := &stage{converter: c, context: c.common, name: s.name + "-" + keys[i], of: s.name, body: s.body}
			one.context.item = map[string]any{"item": item}
			if _, mapping := p.value.(manifest.Object); mapping {
				one.context.item["key"] = keys[i]
				if p.source != "" {
					one.context.itemOf = valuePath{p.source, p.path + "." + keys[i]}
				}
			}
			list = append(list, one)
		}
		return list
	}
	c.addFamily(s, f)
}

// addFamily adds a stage as a family; if one of its texts cannot be said with the family's variables, written out.
func (c *converter) addFamily(s *stage, f *family) {
	s.family = f
	fits := f != nil && len(f.items) > 0
	if fits {
		for _, d := range f.dims {
			fits = fits && manifest.ValidInputName(d)
		}
		fits = fits && s.says(s.body)
	}
	if !fits {
		c.stages = append(c.stages, s.copy()...)
		return
	}
	c.stages = append(c.stages, s)
}

// says reports whether all expressions in a node have a variable or a value. The folder of a command must be the same
// for all items, and so must the files of parameters and the names in them.
func (s *stage) says(n *yaml.Node) bool {
	ok := true
	var walk func(n *yaml.Node, fixed bool)
	walk = func(n *yaml.Node, fixed bool) {
		switch n = resolved(n); n.Kind {
		case yaml.ScalarNode:
			list, err := s.pieces(n.Value)
			if _, unbound := err.(*unboundError); unbound {
				ok = false
			}
			ok = ok && !(fixed && slices.ContainsFunc(list, func(p piece) bool { return p.variable != "" }))
		case yaml.MappingNode:
			pairs(n, func(k, v *yaml.Node) {
				walk(k, fixed)
				walk(v, fixed || slices.Contains([]string{"wdir", "params", "vars", "desc"}, k.Value))
			})
		case yaml.SequenceNode:
			for _, item := range n.Content {
				walk(item, fixed)
			}
		}
	}
	walk(n, false)
	return ok
}

// listOf is a list of scalars as a dimension of a matrix.
func (s *stage) listOf(p piece) string {
	if p.source != "" {
		return s.paramSource(p)
	}
	list, _ := p.value.([]any)
	b := make([]string, len(list))
	for i, item := range list {
		b[i] = scalar(words(item))
	}
	return "[" + strings.Join(b, ", ") + "]"
}

// paramSource names a live value of a file of parameters. The name of the file's input is known when all inputs are.
func (s *stage) paramSource(p piece) string {
	return paramMark + p.source + paramMark + "." + p.path
}

// paramMark stands around the path of a file of parameters whose input has no name yet.
const paramMark = "\x00"

// valueSource is a source of items: a live value, or one that becomes an input.
func (s *stage) valueSource(p piece) string {
	if p.source != "" {
		return s.paramSource(p)
	}
	return valueMark + identifier(s.name+"_items") + valueMark + string(manifest.AppendJSON(nil, p.value)) + valueMark
}

// valueMark stands around the name and the text of a value that is no input yet.
const valueMark = "\x01"

// keyed is a family with an item for each member of a mapping.
func (s *stage) keyed(f *family, p piece, o manifest.Object) *family {
	f.dims, f.member["key"] = []string{"key"}, "key"
	d := dimension{source: s.valueSource(p), prefix: "item."}
	f.from = []dimension{d}
	for _, m := range o {
		it := familyItem{manifest.EscapeLabel(m.Name), map[string]string{"key": m.Name}}
		switch v := m.Value.(type) {
		case manifest.Object:
			f.constants(&it, &d, v)
		case []any:
			return nil
		default:
			f.whole = "value"
			it.values["value"] = words(v)
		}
		f.items = append(f.items, it)
	}
	return f.uniform()
}

// named is a family with an item for each mapping of a list, of which one member differs in all.
func (s *stage) named(f *family, p piece, list []any) *family {
	d := dimension{source: s.valueSource(p), prefix: "item.", by: unique(list)}
	if d.by == "" {
		return nil
	}
	dim := identifier(d.by)
	f.dims, f.from, f.member["item."+d.by] = []string{dim}, []dimension{d}, dim
	for _, item := range list {
		o, _ := item.(manifest.Object)
		v, _ := member(o, d.by)
		it := familyItem{manifest.EscapeLabel(words(v)), map[string]string{dim: words(v)}}
		f.constants(&it, &d, o)
		f.items = append(f.items, it)
	}
	return f.uniform()
}

// unique is the first member that differs in all mappings of a list, and can name them; "" if there is none.
func unique(list []any) string {
	first, _ := list[0].(manifest.Object)
	for _, m := range first {
		seen := map[string]bool{}
		for _, item := range list {
			o, _ := item.(manifest.Object)
			if v, ok := member(o, m.Name); ok && !isCollection(v) && manifest.ValidLabelItem(words(v)) {
				seen[words(v)] = true
			}
		}
		if len(seen) == len(list) {
			return m.Name
		}
	}
	return ""
}

// constants gives an item the constants of a mapping.
func (f *family) constants(it *familyItem, d *dimension, o manifest.Object) {
	for _, m := range o {
		if m.Name == d.by || isCollection(m.Value) {
			continue
		}
		name := f.member[d.prefix+m.Name]
		if name == "" {
			taken := slices.Concat(f.dims, slices.Collect(maps.Values(f.member)), []string{"value"})
			if name = m.Name; !manifest.ValidInputName(name) || slices.Contains(taken, name) {
				name = identifier(name) + "_"
			}
			for slices.Contains(taken, name) {
				name += "_"
			}
			f.member[d.prefix+m.Name] = name
		}
		it.values[name] = words(m.Value)
	}
}

// uniform drops members that not all items have, since DVC refuses an item without one that is used.
func (f *family) uniform() *family {
	for name, variable := range f.member {
		for _, it := range f.items {
			if _, ok := it.values[variable]; !ok {
				delete(f.member, name)
			}
		}
	}
	for _, it := range f.items {
		if _, ok := it.values[f.whole]; f.whole != "" && !ok {
			f.whole = ""
		}
	}
	return f
}

// matrix adds the stages of a matrix.
func (c *converter) matrix(s *stage, matrix *yaml.Node) {
	var dims []piece
	var names []string
	known := true
	pairs(matrix, func(k, v *yaml.Node) {
		p := piece{value: nodeValue(v)}
		if v.Kind == yaml.ScalarNode {
			if list, err := s.pieces(v.Value); err == nil && len(list) == 3 && list[0].text == "" && list[2].text == "" {
				p = list[1]
			}
		} else if !s.resolveValue(&p.value) {
			p.value = nil
		}
		if list, _ := p.value.([]any); len(list) == 0 {
			c.note(v, true, "stage %s: matrix: the items of %s are not known; write its tasks by hand", s.name, k.Value)
			known = false
		}
		dims, names = append(dims, p), append(names, k.Value)
	})
	if !known {
		return
	}
	type row struct {
		name string
		item manifest.Object
	}
	rows := []row{{name: s.name}}
	for i, p := range dims {
		var next []row
		list, _ := p.value.([]any)
		for _, r := range rows {
			for k, v := range list {
				word := words(v)
				if isCollection(v) {
					word = names[i] + strconv.Itoa(k)
				}
				next = append(next, row{r.name + "-" + word, append(slices.Clip(r.item), manifest.Member{Name: names[i], Value: v})})
			}
		}
		rows = next
	}
	f := s.crossed(names, dims)
	for _, r := range rows {
		if f != nil {
			f.cross(r.item)
		}
	}
	s.copy = func() (list []*stage) {
		for i, p := range dims {
			if p.source != "" {
				c.note(matrix, true, "stage %s: its items are written out: after an edit of %s in %s, convert it again, or edit the tasks (%s)", s.name, p.path, p.source, names[i])
			}
		}
		for _, r := range rows {
			one := &stage{converter: c, context: c.common, name: r.name, of: s.name, body: s.body}
			one.context.item = map[string]any{"item": r.item, "key": strings.TrimPrefix(r.name, s.name+"-")}
			list = append(list, one)
		}
		return list
	}
	if f != nil {
		f = f.uniform()
	}
	c.addFamily(s, f)
}

// crossed is a family of the dimensions of a matrix, as yet without items; nil if one has items without a name.
func (s *stage) crossed(names []string, dims []piece) *family {
	f := &family{dims: names, member: map[string]string{}, used: map[string]bool{}, joined: true}
	for i, p := range dims {
		list, _ := p.value.([]any)
		d := dimension{list: s.listOf(p)}
		if slices.ContainsFunc(list, isCollection) {
			d = dimension{source: s.valueSource(p), prefix: "item." + names[i] + ".", by: unique(list)}
			if f.joined = false; d.by == "" {
				return nil
			}
		}
		f.from = append(f.from, d)
		f.member[strings.TrimSuffix("item."+names[i]+"."+d.by, ".")] = names[i]
	}
	return f
}

// cross adds an item, which has a value for each dimension.
func (f *family) cross(item manifest.Object) {
	it := familyItem{values: map[string]string{}}
	var label []string
	for i, m := range item {
		text := words(m.Value)
		if o, mapping := m.Value.(manifest.Object); mapping {
			v, _ := member(o, f.from[i].by)
			text = words(v)
			f.constants(&it, &f.from[i], o)
		}
		it.values[m.Name] = text
		label = append(label, m.Name+"="+manifest.EscapeLabel(text))
	}
	if it.label = strings.Join(label, ","); len(label) == 1 {
		_, it.label, _ = strings.Cut(it.label, "=")
	}
	f.items = append(f.items, it)
}

// resolveValue replaces expressions in a list or mapping of dvc.yaml by their values.
func (s *stage) resolveValue(v *any) bool {
	switch at := (*v).(type) {
	case string:
		list, err := s.pieces(at)
		if err != nil {
			return false
		}
		for _, p := range list {
			if p.source != "" {
				s.note(s.body, true, "its items hold %s of %s as it is now: after an edit of it, convert it again, or edit the items", p.path, p.source)
			}
		}
		if len(list) == 3 && list[0].text == "" && list[2].text == "" && !list[1].literal {
			*v = list[1].value
			return true
		}
		var b strings.Builder
		for _, p := range list {
			b.WriteString(p.text)
		}
		*v = b.String()
	case []any:
		for i := range at {
			if !s.resolveValue(&at[i]) {
				return false
			}
		}
	case manifest.Object:
		for i := range at {
			if !s.resolveValue(&at[i].Value) {
				return false
			}
		}
	}
	return true
}

func isCollection(v any) bool {
	switch v.(type) {
	case manifest.Object, []any:
		return true
	}
	return false
}

// sources gives the marks in the text of a matrix the names of their inputs.
func (c *converter) sources(text string) string {
	for {
		before, rest, ok := strings.Cut(text, paramMark)
		if !ok {
			break
		}
		file, after, _ := strings.Cut(rest, paramMark)
		text = before + c.input("params", file, "") + after
	}
	for {
		before, rest, ok := strings.Cut(text, valueMark)
		if !ok {
			return text
		}
		name, rest, _ := strings.Cut(rest, valueMark)
		value, after, _ := strings.Cut(rest, valueMark)
		text = before + c.valueInput(name, value) + after
	}
}

// valueInput is the input of a value.
func (c *converter) valueInput(name, text string) string {
	for _, in := range c.Inputs {
		if in.Kind == "value" && in.Path == text {
			return in.Name
		}
	}
	in := &Input{Name: c.name(name), Kind: "value", Path: text}
	c.Inputs = append(c.Inputs, in)
	return in.Name
}
