package manifest

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/record"
)

// A row is one item of a matrix during evaluation: the values that name it, and its constants.
type row struct{ names, constants []record.EnvVar }

func (r row) join(s row) row {
	return row{slices.Concat(r.names, s.names), slices.Concat(r.constants, s.constants)}
}

func (r row) value(name string) (string, bool) {
	for _, list := range [][]record.EnvVar{r.names, r.constants} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Value, true
			}
		}
	}
	return "", false
}

// label is the text in brackets of the row's task.
func (r row) label() string {
	escaped := make([]record.EnvVar, len(r.names))
	for i, b := range r.names {
		escaped[i] = record.EnvVar{Name: b.Name, Value: EscapeLabel(b.Value)}
	}
	return label(escaped)
}

// isFamily reports whether a task has a matrix.
func (b *base) isFamily() bool { return b.dims != nil || b.items != nil }

// variables are the names of an item's values. The first naming ones name the item.
func (b *base) variables() (names []string, naming int) {
	if b.items != nil {
		return b.vars, b.naming
	}
	return dimensionNames(b.dims), len(b.dims)
}

// evaluate makes the tasks of a matrix whose lists are known, or makes it pending.
func (d expander) evaluate(b *base) {
	if b.evaluated {
		return
	}
	b.evaluated, b.evaluating = true, true
	defer func() { b.evaluating = false }()
	b.first, b.count = len(d.def.Tasks), 0
	rows := []row{{}}
	var all row // the names
	for i := range b.items.factors {
		f := &b.items.factors[i]
		var next []row
		var more []row
		head := f.names()
		for k := range rows {
			if k == 0 || f.depends() {
				head, more = d.factorRows(b, f, rows[k])
			}
			if len(next)+len(more) > MaxTasks {
				b.fail(d, f.pos, "matrix: more than %d items", MaxTasks)
				return
			}
			for _, r := range more {
				next = append(next, rows[k].join(r))
			}
		}
		if b.pending && (len(rows) == 0 || len(next) == 0) {
			d.checkRest(b, i+1)
			return
		}
		if len(rows) == 0 { // sources for further rows are unknown, but their faults can be found
			d.checkRest(b, i)
		}
		rows, all = next, all.join(head)
	}
	if b.pending || len(d.report.errs) > 0 {
		return
	}
	b.vars, b.naming = bindingNames(slices.Concat(all.names, all.constants)), len(all.names)
	if rows = d.included(b, rows); b.pending || !d.distinct(b, rows) {
		return
	}
	b.count = len(rows)
	if b.first+b.count > MaxTasks {
		b.count = 0
		b.fail(d, b.items.pos, "the matrices make more than %d tasks", MaxTasks)
		return
	}
	d.def.Tasks = slices.Grow(d.def.Tasks, len(rows))
	for _, r := range rows {
		d.def.Tasks = append(d.def.Tasks, Task{Spec: b.spec, Name: b.spec.Base + "[" + r.label() + "]", Items: slices.Concat(r.names, r.constants)})
	}
	if e := d.placeOutputs(b); e != nil {
		b.fault, b.pending = e, true
	}
}

// depends reports whether the rows of a factor depend on the row of the factors before it.
func (f *factor) depends() bool { return f.from != nil && f.from.ref.selected }

// names are the names of a factor's values that do not depend on its source.
func (f *factor) names() (r row) {
	switch {
	case f.from == nil:
		for _, name := range f.dims {
			r.names = append(r.names, record.EnvVar{Name: name})
		}
	case f.from.name != "":
		r.names = []record.EnvVar{{Name: f.from.name}}
	default:
		for _, c := range f.from.dims {
			r.names = append(r.names, record.EnvVar{Name: c.name})
		}
	}
	return r
}

// checkRest checks the sources of factors that were not evaluated, because there is no row or an earlier list is unknown.
func (d expander) checkRest(b *base, from int) {
	for i := from; i < len(b.items.factors); i++ {
		if f := &b.items.factors[i]; f.from != nil && !f.depends() {
			d.factorRows(b, f, row{})
		}
	}
}

// factorRows returns the names of a factor's values, and its rows beside the row of the factors before it.
func (d expander) factorRows(b *base, f *factor, before row) (head row, rows []row) {
	if f.from == nil {
		rows = make([]row, len(f.rows))
		for i := range f.rows {
			for k, name := range f.dims {
				rows[i].names = append(rows[i].names, record.EnvVar{Name: name, Value: f.rows[i][k]})
			}
		}
		return f.names(), rows
	}
	use := *f.from
	s, ok := d.itemSource(b, &use, before)
	if !ok {
		return f.names(), nil
	}
	l, known := d.source(b, s)
	if !known {
		return f.names(), nil
	}
	if use.files != nil && len(l.Items) > 0 {
		if len(l.Files) == 0 {
			b.fail(d, f.pos, "matrix: %s is no folder, so it has no files", use.text)
			return f.names(), nil
		}
		if l = use.matching(l); len(l.Items) == 0 {
			d.doubt(use.pos, "task %s: matrix: no file of %s matches the pattern of %s", b.spec.Base, use.text, use.name)
		}
	}
	return d.itemRows(b, &use, l)
}

// itemSource finds the source of items. The selection in brackets may depend on the row only if the source is a task.
// It returns false after a fault, or if the task that makes the list is not known.
func (d expander) itemSource(b *base, f *itemsOf, before row) (s ItemSource, ok bool) {
	where := "task " + b.spec.Base + ": matrix"
	found, declared := d.names[f.ref.name]
	switch {
	case !declared:
		hint := ""
		if !d.report.full() {
			hint = didYouMean(f.ref.name, d.declared())
		}
		d.report.add(f.pos, hint, "%s: there is no input or task %q", where, f.ref.name)
		return s, false
	case found.index < 0:
		b.pending = true
		return s, false
	case !found.task && f.ref.selected:
		d.report.add(f.pos, "write "+f.ref.name, "%s: %q: an input gives all of its items", where, truncate(f.text))
		return s, false
	case f.param != 0:
		return d.inputSource(b, f.pos, &d.def.Inputs[f.param])
	case !found.task:
		if !f.takeColumn(f.ref.entry) {
			d.report.add(f.pos, "name the column once", "%s: %q and column: both name one", where, truncate(f.text))
			return s, false
		}
		return d.inputSource(b, f.pos, &d.def.Inputs[found.index])
	}
	to := &d.bases[found.index]
	entry := f.ref.entry
	if !to.spec.Several {
		if entry != "out" && !f.takeColumn(entry) {
			d.report.add(f.pos, "name the column once", "%s: %q and column: both name one", where, truncate(f.text))
			return s, false
		}
		entry = ""
	}
	maker := &Task{Spec: to.spec, Name: to.spec.Base}
	switch {
	case to.isFamily() && !f.ref.selected:
		d.report.add(f.pos, "write "+f.ref.name+"[name] with a dimension of this matrix before it, such as {sample: …, part: {from: \""+f.ref.name+"[sample]\"}}",
			"%s: %s is a matrix, and the items come from one of its tasks", where, f.ref.name)
		return s, false
	case !to.isFamily() && f.ref.selected:
		d.report.add(f.pos, "write "+f.ref.name+dotted(f.ref.entry), "%s: %q: the task %s has no matrix", where, truncate(f.text), f.ref.name)
		return s, false
	case to.isFamily():
		if maker = d.producer(b, to, f, before); maker == nil {
			b.pending = true
			return s, false
		}
	}
	return d.taskSource(b, to, f.pos, f.ref.name, entry, maker)
}

// takeColumn chooses the column whose distinct values are the items.
func (f *itemsOf) takeColumn(column string) bool {
	if column == "" {
		return true
	}
	if f.column != "" || f.by != "" {
		return false
	}
	f.column = column
	f.text = strings.TrimSuffix(f.text, "."+column)
	return true
}

// producer finds the task of another family that makes the list for a row; nil if it is not known.
func (d expander) producer(b, to *base, f *itemsOf, before row) *Task {
	if to.items != nil {
		d.evaluate(to)
	}
	if to.pending || to.evaluating { // a task that waits for itself is reported as a cycle
		return nil
	}
	names, naming := to.variables()
	picks, fan, fault := pickOf(f.ref.selectors, names, naming, to.spec.Base, func(name string) (int, bool) {
		for i := range before.names {
			if before.names[i].Name == name {
				return i, true
			}
		}
		return 0, false
	})
	if fault == "" && fan {
		fault = "a list of items comes from one task of " + to.spec.Base
	}
	if fault != "" {
		b.fail(d, f.pos, "matrix: %q: %s", truncate(f.text), fault)
		return nil
	}
	want := picks.key(func(i int) string { return before.names[i].Value })
	rows := d.index(to, picks)[want]
	if len(rows) != 1 {
		b.fail(d, f.pos, "matrix: %s: %s has no item for %s", truncate(f.text), to.spec.Base, before.label())
		return nil
	}
	return &d.def.Tasks[to.first+int(rows[0])]
}

// itemRows returns the names of the values of a list's rows, and the rows.
func (d expander) itemRows(b *base, f *itemsOf, l *List) (head row, rows []row) {
	columns := func() string {
		if len(l.Columns) == 0 {
			return "it has no columns"
		}
		return "its columns are " + listed(l.Columns)
	}
	find := func(name string) int { return slices.Index(l.Columns, name) }
	var naming []int // columns
	var names []string
	switch {
	case f.column != "":
		k := find(f.column)
		name := f.name
		if name == "" {
			name = f.column
		}
		if k < 0 || !ValidInputName(name) {
			b.fail(d, f.pos, "matrix: %s has no column %q that could name a dimension; %s", f.text, truncate(f.column), columns())
			return head, nil
		}
		return d.distinctRows(b, f, name, l, k)
	case len(f.dims) > 0:
		for _, c := range f.dims {
			k := find(c.column)
			if k < 0 {
				b.fail(d, f.pos, "matrix: %s has no column %q; %s", f.text, truncate(c.column), columns())
				return head, nil
			}
			naming, names = append(naming, k), append(names, c.name)
		}
	case f.name == "":
		if !slices.ContainsFunc(l.Columns, func(c string) bool { return c != "" }) {
			b.fail(d, f.pos, "matrix: the items of %s have no name; choose one for them, as: matrix: {item: %s}", f.text, f.text)
			return head, nil
		}
		if l.Names == 0 || l.Columns[0] == "" {
			b.fail(d, f.pos, "matrix: the items of %s have no name; write matrix: {name: %s} with the column that names them or a name of your choice; %s", f.text, f.text, columns())
			return head, nil
		}
		for k := range l.Names {
			naming, names = append(naming, k), append(names, l.Columns[k])
		}
	default:
		k := -1
		switch {
		case f.by != "":
			if k = find(f.by); k < 0 {
				b.fail(d, f.pos, "matrix: %s has no column %q; %s", f.text, truncate(f.by), columns())
				return head, nil
			}
		case find(f.name) >= 0:
			k = find(f.name)
		case l.Names == 1:
			k = 0
		default:
			b.fail(d, f.pos, "matrix: %s has no column %q that would name its items; add by: with one; %s", f.text, f.name, columns())
			return head, nil
		}
		naming, names = []int{k}, []string{f.name}
	}
	with, ok := d.constantsOf(b, f, l, naming)
	if !ok {
		return head, nil
	}
	for _, name := range names {
		head.names = append(head.names, record.EnvVar{Name: name})
	}
	for _, c := range with {
		head.constants = append(head.constants, record.EnvVar{Name: c.name})
	}
	rows = make([]row, len(l.Items))
	seen := make(map[string]int, len(l.Items))
	for i, values := range l.Items {
		r := row{names: make([]record.EnvVar, len(naming)), constants: make([]record.EnvVar, len(with))}
		for j, k := range naming {
			r.names[j] = record.EnvVar{Name: names[j], Value: values[k]}
			if values[k] == "" {
				b.fail(d, f.pos, "matrix: item %d of %s has no %s", i+1, f.text, names[j])
				return head, nil
			}
		}
		for j, c := range with {
			r.constants[j] = record.EnvVar{Name: c.name, Value: values[find(c.column)]}
		}
		text := r.label()
		if first, again := seen[text]; again {
			hint := ""
			if len(l.Columns) > 1 || l.Names == 0 {
				hint = fmt.Sprintf("; for one task for each %s write {%s: %s.%s}", names[0], names[0], f.text, l.Columns[naming[0]])
				if column := d.apart(f, l, naming[0]); column != "" && len(naming) == 1 {
					hint += fmt.Sprintf("; for one for each row {zip: {%[1]s: %[2]s.%[3]s, %[4]s: %[2]s.%[5]s}}",
						names[0], f.text, l.Columns[naming[0]], variableOf(column), column)
				}
			}
			b.fail(d, f.pos, "matrix: %s and %s of %s are both named %s%s", l.place(first), l.place(i), f.text, text, hint)
			return head, nil
		}
		seen[text] = i
		rows[i] = r
	}
	return head, rows
}

// apart returns a column that tells apart the items which another column names alike; "" if there is none.
func (d expander) apart(f *itemsOf, l *List, naming int) string {
	for k, column := range l.Columns {
		if k == naming || strings.Contains(column, ".") || !ValidParamPath(column) || d.isPath(f, column) {
			continue
		}
		seen := make(map[[2]string]bool, len(l.Items))
		if !slices.ContainsFunc(l.Items, func(values []string) bool {
			name := [2]string{values[naming], values[k]}
			again := seen[name] || values[k] == ""
			seen[name] = true
			return again
		}) {
			return column
		}
	}
	return ""
}

// place names an item in a message.
func (l *List) place(i int) string {
	if file := l.File(i); file != "" {
		return truncate(file)
	}
	return fmt.Sprintf("item %d", i+1)
}

// distinctRows makes a row for each value of a column, in the order of their first appearance. Empty values make no
// row. A constant is the same for all items of a value.
func (d expander) distinctRows(b *base, f *itemsOf, name string, l *List, column int) (head row, rows []row) {
	head.names = []record.EnvVar{{Name: name}}
	var with []constant
	if !f.withAll {
		var ok bool
		if with, ok = d.constantsOf(b, f, l, nil); !ok {
			return head, nil
		}
	}
	for _, c := range with {
		head.constants = append(head.constants, record.EnvVar{Name: c.name})
	}
	var without []string
	first := map[string]int{} // the item of a value that came first
	for i, values := range l.Items {
		v := values[column]
		before, again := first[v]
		switch {
		case v == "":
			without = append(without, l.place(i))
			continue
		case !again:
			first[v] = i
			rows = append(rows, row{names: []record.EnvVar{{Name: name, Value: v}}})
		}
		for _, c := range with {
			at := slices.Index(l.Columns, c.column)
			if again && values[at] != l.Items[before][at] {
				b.fail(d, f.pos, "matrix: %s and %s of %s have the %s %s and differ in %s; leave it out of with, "+
					"or add it to what names an item: {zip: {%[4]s: %[3]s.%[7]s, %[6]s: %[3]s.%[8]s}}",
					l.place(before), l.place(i), f.text, name, truncate(v), c.name, l.Columns[column], c.column)
				return head, nil
			}
			if !again {
				r := &rows[len(rows)-1]
				r.constants = append(r.constants, record.EnvVar{Name: c.name, Value: values[at]})
			}
		}
	}
	if n := len(without); n > 0 {
		more := ""
		if n > 3 {
			more = fmt.Sprintf(" and %d more", n-3)
		}
		d.doubt(f.pos, "matrix: %s%s of %s: without a value for %s, and in no group", strings.Join(without[:min(n, 3)], ", "), more, f.text, name)
	}
	return head, rows
}

// doubt notes something about the items of a matrix for Lint.
func (d expander) doubt(pos Pos, format string, args ...any) {
	w := Warning(faultAt(d.def.File, pos, "", format, args...))
	if !slices.Contains(d.def.doubts, w) {
		d.def.doubts = append(d.def.doubts, w)
	}
}

// constantsOf returns the columns of a list that become constants: the chosen columns, or all columns that do not name
// the item.
func (d expander) constantsOf(b *base, f *itemsOf, l *List, naming []int) ([]constant, bool) {
	if !f.withAll {
		for _, c := range f.with {
			if !slices.Contains(l.Columns, c.column) {
				b.fail(d, f.pos, "matrix: %s has no column %q; its columns are %s", f.text, truncate(c.column), listed(l.Columns))
				return nil, false
			}
		}
		return f.with, true
	}
	var list []constant
	for k, column := range l.Columns {
		switch {
		case slices.Contains(naming, k) || column == "" || d.isPath(f, column):
		case !ValidInputName(column):
			b.fail(d, f.pos, "matrix: the column %q of %s cannot be the name of a variable; choose columns: {from: %s, with: {%s: %q}}",
				truncate(column), f.text, f.text, variableOf(column), truncate(column))
			return nil, false
		default:
			list = append(list, constant{column, column})
		}
	}
	return list, true
}

// included applies exclude and include.
func (d expander) included(b *base, rows []row) []row {
	names := b.vars
	for _, list := range [][]entry{b.items.exclude, b.items.include} {
		for _, e := range list {
			for _, v := range e.values {
				if !slices.Contains(names, v.Name) {
					b.fail(d, e.pos, "matrix: %q is no dimension of this matrix; they are %s", truncate(v.Name), listed(names))
					return nil
				}
			}
		}
	}
	fits := func(e entry, r row) bool {
		return !slices.ContainsFunc(e.values, func(v record.EnvVar) bool { have, _ := r.value(v.Name); return have != v.Value })
	}
	for _, e := range b.items.exclude {
		if !slices.ContainsFunc(rows, func(r row) bool { return fits(e, r) }) {
			what := make([]string, len(e.values))
			for i, v := range e.values {
				what[i] = v.Name + "=" + v.Value
			}
			d.doubt(e.pos, "task %s: matrix: no item has %s, so this excludes nothing", b.spec.Base, strings.Join(what, ", "))
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return slices.ContainsFunc(b.items.exclude, func(e entry) bool { return fits(e, r) })
	})
	for _, e := range b.items.include {
		var r row
		for i, name := range names {
			k := slices.IndexFunc(e.values, func(v record.EnvVar) bool { return v.Name == name })
			switch {
			case k < 0:
				b.fail(d, e.pos, "matrix: an item under include has no %s", name)
				return nil
			case i < b.naming:
				r.names = append(r.names, e.values[k])
			default:
				r.constants = append(r.constants, e.values[k])
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// staticNames are the names of a matrix that do not depend on a source.
func (b *base) staticNames() (names []string) {
	for i := range b.items.factors {
		names = append(names, bindingNames(b.items.factors[i].names().names)...)
	}
	return names
}

func bindingNames(list []record.EnvVar) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return names
}

// distinct checks that rows have the same names and different labels, and that the names mean nothing else in the task.
func (d expander) distinct(b *base, rows []row) bool {
	for i, name := range b.vars {
		if slices.Contains(b.vars[:i], name) {
			b.fail(d, b.items.pos, "matrix: %q names two values of an item; choose columns with: {from: …, with: [column]}", name)
			return false
		}
		if b.spec.Command.Argv == nil && BashSets(name) {
			b.fail(d, b.items.pos, "matrix: bash sets %q itself; choose columns with: {from: …, with: {other: %s}}", name, name)
			return false
		}
		if what, taken := b.meaning[name]; taken && what != aDimension {
			if i < b.naming {
				b.fail(d, b.items.pos, "%q names both %s and an item of the matrix; give the %s another name", name, what, strings.TrimPrefix(strings.TrimPrefix(what, "an "), "a "))
				return false
			}
			b.fail(d, b.items.pos, "%q names both %s and a value of the matrix; choose columns with: {from: …, with: {other: %s}}", name, what, name)
			return false
		}
	}
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if !slices.Equal(bindingNames(r.names), b.vars[:b.naming]) || !slices.Equal(bindingNames(r.constants), b.vars[b.naming:]) {
			b.fail(d, b.items.pos, "matrix: the lists have different columns: %s, and %s", listed(b.vars), listed(bindingNames(slices.Concat(r.names, r.constants))))
			return false
		}
		text := r.label()
		switch {
		case len(text) > MaxLabel:
			b.fail(d, b.items.pos, "matrix: the label %s would be %d bytes long, and %d is the most; name the items by a shorter column", truncate(text), len(text), MaxLabel)
			return false
		case seen[text]:
			b.fail(d, b.items.pos, "matrix: two items are named %s", text)
			return false
		}
		seen[text] = true
	}
	return true
}
