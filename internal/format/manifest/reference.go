package manifest

import (
	"slices"
	"strings"

	"e3/internal/format/notation"
)

// A reference is the parsed text of a source: name[selectors].entry[items].
type reference struct {
	name      string
	selected  bool // the reference has brackets
	selectors []selector
	entry     string     // "" for no entry
	items     []selector // selectors of the second brackets, which select files of a directory
}

// A selector is one part between brackets: dimension=value or a value alone.
type selector struct {
	dimension string // "" for a value alone
	value     string
}

// parseReference parses the text of a source. The fault is "" if it is well-formed.
func parseReference(s string) (r reference, fault string) {
	end := strings.IndexAny(s, "[.")
	if end < 0 {
		end = len(s)
	}
	r.name, s = s[:end], s[end:]
	if !notation.ValidName(r.name) {
		return r, "does not begin with the name of an input or task"
	}
	if strings.HasPrefix(s, "[") {
		r.selected = true
		if r.selectors, s, fault = parseSelectors(s); fault != "" {
			return r, fault
		}
	}
	if strings.HasPrefix(s, ".") {
		end := strings.IndexByte(s, '[')
		if end < 0 {
			end = len(s)
		}
		if r.entry, s = s[1:end], s[end:]; !ValidInputName(r.entry) && !ValidParamPath(r.entry) {
			return r, notEntry
		}
	}
	if strings.HasPrefix(s, "[") {
		if r.items, s, fault = parseSelectors(s); fault != "" {
			return r, fault
		}
	}
	if s != "" {
		return r, notEntry
	}
	return r, ""
}

const notEntry = "does not end in .output after the name or the brackets"

// parseSelectors parses the selectors in brackets at the beginning of s, and returns the rest of s.
func parseSelectors(s string) (list []selector, rest, fault string) {
	inner, rest, closed := strings.Cut(s[1:], "]")
	if !closed {
		return nil, "", "has no closing bracket"
	}
	for part := range strings.SplitSeq(inner, ",") {
		dimension, value, named := strings.Cut(part, "=")
		if !named {
			dimension, value = "", part
		}
		sel := selector{strings.TrimSpace(dimension), strings.TrimSpace(value)}
		if sel.value == "" || named && sel.dimension == "" || strings.Contains(sel.value, "=") {
			return nil, "", "has an empty or malformed selection in brackets"
		}
		list = append(list, sel)
	}
	return list, rest, ""
}

// A choice is the selection of a reference in one dimension of its target.
type choice struct {
	mode  choiceMode
	fixed int32   // chooseFixed: the item
	own   int     // chooseOwn: the dimension of the referring task
	match []int32 // chooseOwn: the target's item for each item of that dimension
}

type choiceMode uint8

const (
	chooseNone choiceMode = iota
	chooseFixed
	chooseAll
	chooseOwn
)

// choose resolves the selectors of a reference from b to items of target. It reports a fault, and then returns nil.
func (d *decoder) choose(b, target *base, w *wire, r reference) []choice {
	where := "task " + b.spec.Base
	name := target.spec.Base
	dims := target.dims
	choices := make([]choice, len(dims))
	if isAll(r.selectors) {
		for i := range choices {
			choices[i].mode = chooseAll
		}
		return choices
	}
	rest := false
	for _, sel := range r.selectors {
		if sel == (selector{value: "*"}) && len(dims) > 1 {
			rest = true
			continue
		}
		i := d.dimensionOf(b, target, w, sel)
		if i < 0 {
			return nil
		}
		if choices[i].mode != chooseNone {
			d.report.add(w.pos, "", "%s: %q selects %s twice", where, truncate(w.source), dims[i].name)
			return nil
		}
		if choices[i] = d.chooseItem(b, target, w, i, sel.value); choices[i].mode == chooseNone {
			return nil
		}
	}
	for i := range choices {
		if rest && choices[i].mode == chooseNone {
			choices[i].mode = chooseAll
		}
		if choices[i].mode == chooseNone {
			d.report.add(w.pos, "add "+dims[i].name+"=* for all, or one item",
				"%s: %q does not say which %s of %s", where, truncate(w.source), dims[i].name, name)
			return nil
		}
	}
	return choices
}

// dimensionOf finds the dimension of target that a selector names. It reports a fault, and then returns -1.
func (d *decoder) dimensionOf(b, target *base, w *wire, sel selector) int {
	where := "task " + b.spec.Base
	switch {
	case sel.dimension != "":
		if i := dimensionAt(target.dims, sel.dimension); i >= 0 {
			return i
		}
		d.report.add(w.pos, d.suggest(sel.dimension, dimensionNames(target.dims)), "%s: %s has no dimension %q", where, target.spec.Base, truncate(sel.dimension))
		return -1
	case len(target.dims) == 1:
		return 0
	}
	if i := dimensionAt(target.dims, sel.value); i >= 0 && dimensionAt(b.dims, sel.value) >= 0 {
		return i
	}
	d.report.add(w.pos, "write "+target.dims[0].name+"=…, or * alone for all items",
		"%s: %q does not say to which dimension of %s %q belongs", where, truncate(w.source), target.spec.Base, truncate(sel.value))
	return -1
}

// chooseItem resolves a value in a dimension of target. It reports a fault, and then returns the mode chooseNone.
func (d *decoder) chooseItem(b, target *base, w *wire, dim int, value string) choice {
	where := "task " + b.spec.Base
	items := &target.dims[dim]
	if value == "*" {
		return choice{mode: chooseAll}
	}
	fixed, isItem := items.index[value]
	own := dimensionAt(b.dims, value)
	switch {
	case own >= 0 && isItem:
		d.report.add(w.pos, "rename the dimension", "%s: in %q, %s is both a dimension of this task and an item of %s", where, truncate(w.source), value, target.spec.Base)
		return choice{}
	case own >= 0:
		match := make([]int32, len(b.dims[own].items))
		for i, text := range b.dims[own].items {
			j, ok := items.index[text]
			if !ok {
				d.report.add(w.pos, "", "%s: the item %s has no counterpart in the %s of %s", where, text, items.name, target.spec.Base)
				return choice{}
			}
			match[i] = j
		}
		return choice{mode: chooseOwn, own: own, match: match}
	case isItem:
		return choice{mode: chooseFixed, fixed: fixed}
	}
	hint := ""
	if !d.report.full() {
		if hint = d.suggest(value, items.items); hint == "" {
			hint = "the items are " + listed(items.items)
		}
	}
	d.report.add(w.pos, hint, "%s: %s has no item %q", where, target.spec.Base, truncate(value))
	return choice{}
}

// dimensionAt is the index of the dimension of a name, -1 if there is none.
func dimensionAt(dims []dimension, name string) int {
	return slices.IndexFunc(dims, func(d dimension) bool { return d.name == name })
}

func dimensionNames(dims []dimension) []string {
	names := make([]string, len(dims))
	for i := range dims {
		names[i] = dims[i].name
	}
	return names
}

// listed joins the first few of many names.
func listed(names []string) string {
	const few = 6
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
