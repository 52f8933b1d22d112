package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/record"
)

// An itemMatrix is a matrix with items that are not written out, or with dimensions that are not joined by their
// product.
type itemMatrix struct {
	pos     Pos
	factors []factor // the matrix is the product of these
	include []entry  // further items
	exclude []entry  // items to leave out
}

// A factor is a factor of an itemMatrix: rows that are written out, or the items of a source.
type factor struct {
	pos  Pos
	dims []string   // the names of the values of rows
	rows [][]string // unless from is set
	from *itemsOf
}

// itemsOf is the use of a source as a factor.
type itemsOf struct {
	pos     Pos
	text    string // the reference, without a column
	ref     reference
	name    string     // the dimension; "": the source names its items, or dims
	dims    []constant // of a zip: the dimensions and the columns that name a row together
	by      string     // the column that names an item; "": the column with the dimension's name
	column  string     // used in place of by: an item for each distinct value of this column
	files   *Pattern   // of a folder: the files that are items; their name stands for the dimension's
	with    []constant // the columns that become constants, unless withAll
	withAll bool
	// the input of the reference, if it names a value of a file of parameters; else 0, which is never such an input
	param int32
}

// A constant is a variable of an item and the column of its value.
type constant struct{ name, column string }

// An entry of include or exclude.
type entry struct {
	pos    Pos
	values []record.EnvVar
}

var (
	sourceKeys = []string{"from", "by", "column", "files", "with"}
	joinKeys   = []string{"zip", "include", "exclude"}
)

// A matrixReader reads matrices, and other parts of a file that concern items.
type matrixReader struct{ *decoder }

// isLiteral reports whether a matrix is a mapping of dimensions to lists of items, or a faulty one.
func isLiteral(n *node) bool {
	if n.kind != mapNode {
		return n.kind != stringNode && n.kind != listNode
	}
	for i := 0; i+1 < len(n.list); i += 2 {
		if v := &n.list[i+1]; v.kind == stringNode || v.kind == mapNode || isJoin(&n.list[i], v) {
			return false
		}
	}
	return true
}

// isJoin reports whether an entry of a matrix is zip, include or exclude, and not a dimension of that name.
func isJoin(key, v *node) bool {
	switch {
	case key.kind != stringNode || !slices.Contains(joinKeys, key.text):
		return false
	case key.text == "zip":
		return v.kind == mapNode && !slices.ContainsFunc(sourceOf(v), func(s string) bool { return s == "from" })
	}
	return v.kind == listNode && slices.ContainsFunc(v.list, func(item node) bool { return item.kind == mapNode })
}

// sourceOf returns the keys of a mapping.
func sourceOf(n *node) []string {
	var keys []string
	for i := 0; i+1 < len(n.list); i += 2 {
		keys = append(keys, n.list[i].text)
	}
	return keys
}

// itemMatrix reads a matrix that is not literal: the name of a source, a mapping, or a list of these.
func (d matrixReader) itemMatrix(where string, n *node) *itemMatrix {
	where += ": matrix"
	m := &itemMatrix{pos: n.pos}
	parts := []*node{n}
	if n.kind == listNode {
		parts = parts[:0]
		for i := range n.list {
			parts = append(parts, &n.list[i])
		}
		if len(parts) == 0 {
			d.report.add(n.pos, "", "%s: there is no dimension", where)
		}
	}
	for _, part := range parts {
		switch part.kind {
		case stringNode:
			if f := d.itemsOf(where, "", part); f != nil {
				m.factors = append(m.factors, factor{pos: part.pos, from: f})
			}
		case mapNode:
			d.factors(where, part, m)
		default:
			d.wrongType(where, part, "the name of a source, or a mapping such as {depth: [4, 8]}")
		}
	}
	if len(m.factors) > maxDimensions {
		d.report.add(n.pos, "", "%s: more than %d dimensions", where, maxDimensions)
	}
	return m
}

// factors reads a mapping of a matrix.
func (d matrixReader) factors(where string, n *node, m *itemMatrix) {
	before := len(m.factors)
	d.members(where, n, "dimension", func(key, v *node) {
		at := where + ": " + truncate(key.text)
		if isJoin(key, v) {
			switch key.text {
			case "zip":
				if f, ok := d.zip(at, v); ok {
					m.factors = append(m.factors, f)
				}
			case "include":
				m.include = append(m.include, d.joinEntries(at, v)...)
			case "exclude":
				m.exclude = append(m.exclude, d.joinEntries(at, v)...)
			}
			return
		}
		if !ValidInputName(key.text) {
			d.report.add(key.pos, inputNameRule, "%s: %q is not the name of a dimension", where, truncate(key.text))
			return
		}
		f := factor{pos: key.pos}
		switch v.kind {
		case stringNode, mapNode:
			if f.from = d.itemsOf(at, d.intern(key.text), v); f.from == nil {
				return
			}
		default:
			dim := d.dimension(at, key, v)
			f.dims = []string{dim.name}
			for _, item := range dim.items {
				f.rows = append(f.rows, []string{item})
			}
		}
		m.factors = append(m.factors, f)
	})
	if len(n.list) == 0 || len(m.factors) == before && len(m.include)+len(m.exclude) > 0 {
		d.report.add(n.pos, "", "%s: there is no dimension", where)
	}
}

// zip reads dimensions whose first items belong together, then their second ones, and so on.
func (d matrixReader) zip(where string, n *node) (factor, bool) {
	f := factor{pos: n.pos}
	longest := -1
	ok := len(n.list) > 0
	if !ok {
		d.report.add(n.pos, "", "%s: there is no dimension", where)
	}
	d.members(where, n, "dimension", func(key, v *node) {
		at := where + ": " + truncate(key.text)
		if !ValidInputName(key.text) {
			d.report.add(key.pos, inputNameRule, "%s: %q is not the name of a dimension", where, truncate(key.text))
			ok = false
			return
		}
		if v.kind == stringNode || v.kind == mapNode {
			ok = d.zipColumn(at, &f, d.intern(key.text), v) && ok
			return
		}
		if v.kind != listNode || f.from != nil {
			if f.from != nil {
				d.columnBesideList(at, v)
			} else {
				d.wrongType(at, v, "a list of strings, numbers or booleans, or a column like samples.name")
			}
			ok = false
			return
		}
		if longest < 0 {
			longest = len(v.list)
			f.rows = make([][]string, longest)
		}
		if len(v.list) != longest {
			d.report.add(v.pos, "give each dimension of a zip as many items", "%s: %s has %d items, and %s has %d", where, key.text, len(v.list), f.dims[0], longest)
			ok = false
			return
		}
		f.dims = append(f.dims, d.intern(key.text))
		for i := range v.list {
			text, valid := d.itemText(where+": "+key.text, &v.list[i])
			ok = ok && valid
			f.rows[i] = append(f.rows[i], text)
		}
	})
	return f, ok
}

// zipColumn reads a dimension of a zip that is a column. All dimensions are columns of one source, whose rows are the
// items.
func (d matrixReader) zipColumn(where string, f *factor, name string, n *node) bool {
	use := d.itemsOf(where, name, n)
	if use == nil {
		return false
	}
	column := use.column
	if column == "" {
		column, use.ref.entry = use.ref.entry, ""
		use.text = strings.TrimSuffix(use.text, "."+column)
	}
	switch {
	case len(f.dims) > 0:
		d.columnBesideList(where, n)
		return false
	case use.by != "" || column == "":
		d.report.add(n.pos, "write "+use.text+".column", "%s: %q names no column", where, truncate(use.text))
		return false
	case f.from == nil:
		use.name, use.column = "", ""
		f.from = use
	case f.from.text != use.text:
		d.report.add(n.pos, "lists of two sources are combined: [first, second]",
			"%s: a zip has columns of one source, and these are of %s and %s", where, truncate(f.from.text), truncate(use.text))
		return false
	case !use.withAll:
		f.from.withAll, f.from.with = false, append(f.from.with, use.with...)
	}
	f.from.dims = append(f.from.dims, constant{name, d.intern(column)})
	return true
}

func (d matrixReader) columnBesideList(where string, n *node) {
	d.report.add(n.pos, "give each dimension a list, or each a column of one source",
		"%s: a column and a list in one zip", where)
}

// columnOf is the column of the source that a dimension of this name takes its items from; "" if it is not known.
func (f *itemsOf) columnOf(dimension string) string {
	for _, c := range f.dims {
		if c.name == dimension {
			return c.column
		}
	}
	if f.name != dimension {
		return ""
	}
	return cmp.Or(f.by, f.column, f.ref.entry)
}

// itemText reads an item that is written out.
func (d matrixReader) itemText(where string, item *node) (string, bool) {
	if !item.isScalar() {
		d.wrongType(where, item, "a string, a number or a boolean")
		return "", false
	}
	text := item.text
	if !ValidLabelItem(text) {
		d.report.add(item.pos, labelItemRule, "%s: %q cannot be an item", where, truncate(text))
		return "", false
	}
	return text, true
}

// joinEntries reads include or exclude.
func (d matrixReader) joinEntries(where string, n *node) []entry {
	var list []entry
	for i := range n.list {
		item := &n.list[i]
		if item.kind != mapNode || len(item.list) == 0 {
			d.wrongType(where, item, "a mapping of dimensions to values")
			continue
		}
		e := entry{pos: item.pos}
		d.members(where, item, "dimension", func(key, v *node) {
			if v.isScalar() {
				e.values = append(e.values, record.EnvVar{Name: d.intern(key.text), Value: v.text})
			} else {
				d.wrongType(where+": "+truncate(key.text), v, "a string, a number or a boolean")
			}
		})
		list = append(list, e)
	}
	return list
}

// itemsOf reads the use of a source: its text, or a mapping with further settings. The result is nil after a fault.
func (d matrixReader) itemsOf(where, name string, n *node) *itemsOf {
	f := &itemsOf{pos: n.pos, name: name, withAll: true}
	if first, last, is := numberRange(n.text); n.kind == stringNode && is {
		d.report.add(n.pos, fmt.Sprintf("write each number: [%d, %d, …, %d]", first, first+1, last), "%s: a range of numbers is no list", where)
		return nil
	}
	if n.kind == stringNode {
		return d.sourceItems(where, f, n)
	}
	var from *node
	before := len(d.report.errs)
	d.fields(where, n, sourceKeys, func(key, v *node) {
		switch key.text {
		case "from":
			if from = v; v.kind != stringNode {
				d.wrongType(where+": from", v, "the name of an input or task")
			}
		case "by":
			f.by = d.text(where+": by", v)
		case "column":
			f.column = d.text(where+": column", v)
		case "files":
			f.files = d.itemFiles(where+": files", name, v)
		case "with":
			f.withAll = false
			f.with = d.constants(where+": with", v)
		}
	})
	switch {
	case len(d.report.errs) > before:
		return nil
	case from == nil:
		d.report.add(n.pos, "write {from: source}, or a list of items", "%s: the source of the items is missing", where)
		return nil
	case f.files != nil && (f.by != "" || f.column != "" || !f.withAll):
		d.report.add(n.pos, "leave the other one out", "%s: files are of a folder, by, column and with of a table", where)
		return nil
	case f.by != "" && f.column != "":
		d.report.add(n.pos, "by: an item for each row; column: one for each distinct value", "%s: both by and column are given", where)
		return nil
	}
	return d.sourceItems(where, f, from)
}

// itemFiles reads the pattern of the files of a folder that are items: a name of a file with the dimension in braces.
func (d matrixReader) itemFiles(where, name string, n *node) *Pattern {
	text := d.text(where, n)
	p, err := ParsePattern(text)
	switch {
	case text == "": // reported
	case err != nil:
		d.report.add(n.pos, "", "%s: %q: %v", where, truncate(text), err)
	case strings.Contains(text, "/") || len(p.Names) != 1 || p.Names[0] != name:
		d.report.add(n.pos, "write {"+name+"} for what differs in the names of the files, as {"+name+"}.txt",
			"%s: %q is not the name of a file with {%s}", where, truncate(text), name)
	default:
		return p
	}
	return nil
}

// matching returns the items of a folder whose files the pattern of a source matches, each by the text of its
// dimension.
func (f *itemsOf) matching(l *List) *List {
	if f.files == nil || len(l.Files) != len(l.Items) {
		return l
	}
	m := &List{Names: 1, Columns: []string{f.name}}
	for _, file := range l.Files {
		if texts, ok := f.files.Match(strings.TrimSuffix(file, "/")); ok {
			m.Items, m.Files = append(m.Items, texts), append(m.Files, file)
		}
	}
	return m
}

// matching returns the items of a source as the matrix of a task names them.
func (b *base) matching(source, entry string, l *List) *List {
	if b.items == nil {
		return l
	}
	for i := range b.items.factors {
		if f := b.items.factors[i].from; f != nil && f.files != nil && f.ref.name == source && f.ref.entry == entry {
			return f.matching(l)
		}
	}
	return l
}

func (d matrixReader) sourceItems(where string, f *itemsOf, n *node) *itemsOf {
	var fault string
	f.text = n.text
	if f.ref, fault = parseReference(n.text); fault == "" && f.ref.items != nil {
		fault = "selects files; a source of items gives all of them"
	}
	if fault != "" {
		d.report.add(n.pos, "a source of items is like samples, samples.name, split, split.parts or split[sample]", "%s: %q %s", where, truncate(n.text), fault)
		return nil
	}
	return f
}

// constants reads the columns that become constants of an item: a list, or a mapping of variables to columns.
func (d matrixReader) constants(where string, n *node) []constant {
	list := []constant{}
	add := func(name string, n *node, column string) {
		if !ValidInputName(name) {
			d.report.add(n.pos, "write with: {"+variableOf(name)+": "+name+"}", "%s: %q cannot be the name of a variable", where, truncate(name))
			return
		}
		list = append(list, constant{d.intern(name), d.intern(column)})
	}
	switch n.kind {
	case listNode:
		for i := range n.list {
			if item := &n.list[i]; item.kind == stringNode {
				add(item.text, item, item.text)
			} else {
				d.wrongType(where, item, "the name of a column")
			}
		}
	case mapNode:
		d.members(where, n, "variable", func(key, v *node) {
			add(key.text, key, d.text(where+": "+truncate(key.text), v))
		})
	default:
		d.wrongType(where, n, "a list of columns, or a mapping of variables to columns")
	}
	return list
}

// variableOf makes a valid name of a variable from a text.
func variableOf(text string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, text)
	if !ValidInputName(name) {
		name = "_" + name
	}
	return name
}
