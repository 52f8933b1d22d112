package manifest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A path of an output may have values of the item in braces: models/{k}.pkl. The text is the item's own, as in the
// variable of the task, and not the escaped text of a label.

// PathOf returns the path at which the task writes an output.
func (t *Task) PathOf(o *Output) string {
	if !o.ByItem {
		return o.Path
	}
	return inBraces(o.Path, func(name string) string { return t.value(name) })
}

// Glob is the pattern of the paths of an output in all items.
func (o *Output) Glob() string {
	if !o.ByItem {
		return o.Path
	}
	return inBraces(o.Path, func(string) string { return "*" })
}

// Covers reports whether a file of the project lies where the task leaves an output of some item.
func (o *Output) Covers(file string) bool {
	pattern, parts := strings.Split(o.Glob(), "/"), strings.Split(file, "/")
	if len(parts) > len(pattern) && o.Kind == Dir {
		parts = parts[:len(pattern)]
	}
	return matchParts(pattern, parts)
}

// inBraces replaces each name in braces.
func inBraces(s string, value func(name string) string) string {
	var b strings.Builder
	for {
		before, name, after, ok := cutBraces(s)
		if !ok {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(before)
		b.WriteString(value(name))
		s = after
	}
}

// value is a value of the item; "" if the matrix has no such value.
func (t *Task) value(name string) string {
	for i := range t.Items {
		if t.Items[i].Name == name {
			return t.Items[i].Value
		}
	}
	return ""
}

// placeOutputs returns the fault of the first item whose outputs have no path, or have the path of another item; nil if
// there is none. The items of the task are known.
func (d *decoder) placeOutputs(b *base) *Error {
	for i := range b.spec.Outputs {
		if out := &b.spec.Outputs[i]; out.ByItem {
			if hint, why := d.placeOutput(b, out); why != "" {
				e := faultAt(d.report.file, out.Pos, hint, "task %s: out %q: %s", b.spec.Base, truncate(out.Path), why)
				return &e
			}
		}
	}
	return nil
}

// placeOutput returns the fault of one output.
func (d *decoder) placeOutput(b *base, out *Output) (hint, why string) {
	var used []string
	inBraces(out.Path, func(name string) string { used = append(used, name); return "" })
	names, naming := b.variables()
	for _, name := range used {
		if b.count > 0 && !slices.Contains(names, name) {
			return "the values are " + listed(names), fmt.Sprintf("{%s} is no value of the matrix", name)
		}
	}
	differs := naming == 1 && len(used) == 1 && used[0] == names[0] // as the items do
	seen := map[string]int{}
	for number := range b.count {
		t := &d.def.Tasks[b.first+number]
		for _, name := range used {
			if fault := pathText(t.value(name)); fault != "" {
				return "leave {" + name + "} out of the path, or give the items other names",
					fmt.Sprintf("%s of %s %s, so it cannot be in a path", name, t.Name, fault)
			}
		}
		at := t.PathOf(out)
		for part := range strings.SplitSeq(at, "/") {
			if fault := pathPart(part); fault != "" {
				return "put text around the braces", fmt.Sprintf("%s would write %s, and %s", t.Name, truncate(at), fault)
			}
		}
		if differs {
			continue
		}
		if first, again := seen[at]; again {
			return "name in braces what tells the items apart: " + listed(names[:naming]),
				fmt.Sprintf("%s and %s would both write %s", d.def.Tasks[b.first+first].Name, t.Name, truncate(at))
		}
		seen[at] = number
	}
	return "", ""
}

// pathText says why the value of an item cannot be in a path; "" if it can.
func pathText(value string) string {
	switch {
	case value == "":
		return "is empty"
	case strings.ContainsAny(value, `/\`):
		return fmt.Sprintf("is %q, with a slash", truncate(value))
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Sprintf("is %q, with a control character", truncate(value))
	}
	return ""
}

// maxName is the length of the longest name that file systems allow.
const maxName = 255

// pathPart says why a name cannot be one of a path; "" if it can.
func pathPart(name string) string {
	switch {
	case name == "." || name == "..":
		return name + " is no name of a file"
	case name == repositoryDir || name == valuesDir:
		return name + " is e3's own"
	case len(name) > maxName:
		return fmt.Sprintf("a name has at most %d bytes", maxName)
	}
	return ""
}

// byItem reports whether the path of an output depends on the item.
func (s *Spec) byItem() bool {
	return slices.ContainsFunc(s.Outputs, func(o Output) bool { return o.ByItem })
}

// byItem completes an input that reads an output whose path depends on the item.
func (d *decoder) byItem(p *plan, in *TaskInput) {
	if p.byItem {
		t := &d.def.Tasks[in.Source.Index]
		in.Path = t.PathOf(&t.Outputs[max(in.Source.Entry, 0)])
	}
}
