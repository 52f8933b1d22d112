package manifest

import (
	"slices"
	"strings"

	"e3/internal/format/record"
)

// A dimension is one key of a matrix. The items of a task are numbered in the order of its
// dimensions, the last one varying fastest.
type dimension struct {
	name  string
	pos   Pos
	items []string
	index map[string]int32 // numbers of items
}

// matrix reads the dimensions of a task.
func (d matrixReader) matrix(where string, n *node) []dimension {
	where += ": matrix"
	if n.kind != mapNode || len(n.list) == 0 {
		if n.kind == mapNode {
			d.report.add(n.pos, "", "%s: there is no dimension", where)
		} else {
			d.wrongType(where, n, "a mapping such as {depth: [4, 8]}")
		}
		return nil
	}
	if len(n.list)/2 > maxDimensions {
		d.report.add(n.pos, "", "%s: more than %d dimensions", where, maxDimensions)
		return nil
	}
	dims := make([]dimension, 0, len(n.list)/2)
	d.members(where, n, "dimension", func(key, v *node) {
		if !ValidInputName(key.text) {
			d.report.add(key.pos, inputNameRule, "%s: %q is not the name of a dimension", where, truncate(key.text))
			return
		}
		dims = append(dims, d.dimension(where+": "+key.text, key, v))
	})
	size, label := 1, 0
	for i := range dims {
		size *= max(len(dims[i].items), 1)
		if size > MaxTasks {
			d.report.add(n.pos, "", "%s: more than %d items", where, MaxTasks)
			return nil
		}
		longest := 0
		for _, item := range dims[i].items {
			longest = max(longest, len(item))
		}
		if label += longest; len(dims) > 1 {
			label += len(dims[i].name) + len("=,")
		}
	}
	if len(dims) > 1 {
		label -= len(",")
	}
	if label > MaxLabel {
		d.report.add(n.pos, "shorten the items or the names of the dimensions", "%s: a label would be %d bytes long, and %d is the most", where, label, MaxLabel)
	}
	return dims
}

func (d matrixReader) dimension(where string, key, n *node) dimension {
	dim := dimension{name: d.intern(key.text), pos: key.pos}
	if n.kind != listNode {
		d.wrongType(where, n, "a list of strings, numbers or booleans")
		return dim
	}
	if len(n.list) == 0 {
		d.report.add(n.pos, "", "%s: there is no item", where)
	}
	dim.items = make([]string, 0, len(n.list))
	dim.index = make(map[string]int32, len(n.list))
	for i := range n.list {
		item := &n.list[i]
		text, ok := d.itemText(where, item)
		if !ok {
			continue
		}
		if _, again := dim.index[text]; again {
			d.report.add(item.pos, "", "%s: the item %s is here for the second time", where, truncate(text))
			continue
		}
		dim.index[text] = int32(len(dim.items))
		dim.items = append(dim.items, text)
	}
	return dim
}

const labelItemRule = "an item is a file name of at most 128 bytes without , = [ ] and control characters, not * or a name of dots"

// stride is the distance between two items that differ by one in the dimension.
func stride(dims []dimension, dim int) int {
	s := 1
	for _, after := range dims[dim+1:] {
		s *= len(after.items)
	}
	return s
}

// item is the index within a dimension of the matrix item with the given number.
func item(dims []dimension, dim, number int) int {
	return number / stride(dims, dim) % len(dims[dim].items)
}

// expand appends the items of a task, without their inputs.
func (d *decoder) expand(b *base) {
	if b.dims == nil {
		if i := slices.IndexFunc(b.spec.Outputs, func(o Output) bool { return o.ByItem }); i >= 0 {
			out := &b.spec.Outputs[i]
			_, name, _, _ := cutBraces(out.Path)
			d.report.add(out.Pos, "", "task %s: out %q: the task has no matrix, so {%s} stands for nothing", b.spec.Base, truncate(out.Path), name)
		}
		d.def.Tasks = append(d.def.Tasks, Task{Spec: b.spec, Name: b.spec.Base})
		return
	}
	d.def.Tasks = slices.Grow(d.def.Tasks, b.count)
	bindings := make([]record.EnvVar, b.count*len(b.dims))
	for number := range b.count {
		own := bindings[:len(b.dims):len(b.dims)]
		bindings = bindings[len(b.dims):]
		for j := range b.dims {
			own[j] = record.EnvVar{Name: b.dims[j].name, Value: b.dims[j].items[item(b.dims, j, number)]}
		}
		d.def.Tasks = append(d.def.Tasks, Task{Spec: b.spec, Name: b.spec.Base + "[" + label(own) + "]", Items: own})
	}
	if e := d.placeOutputs(b); e != nil {
		d.report.note(*e)
	}
}

// label is the text in brackets of an item.
func label(items []record.EnvVar) string {
	if len(items) == 1 {
		return items[0].Value
	}
	var s strings.Builder
	for i, item := range items {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(item.Name)
		s.WriteByte('=')
		s.WriteString(item.Value)
	}
	return s.String()
}
