package manifest

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// waitForItems notes that a family waits for the tasks that make its lists.
func (d expander) waitForItems(b *base) {
	if b.items == nil {
		return
	}
	for i := range b.items.factors {
		f := b.items.factors[i].from
		if f == nil {
			continue
		}
		if n, ok := d.names[f.ref.name]; ok && n.task && n.index >= 0 {
			d.targets = append(d.targets, target{n.index, f.pos})
		}
	}
}

// isAll reports whether a selection has all items.
func isAll(selectors []selector) bool {
	return len(selectors) == 1 && selectors[0] == selector{value: "*"}
}

// anyAll reports whether a selection may have several items.
func anyAll(selectors []selector) bool {
	return slices.ContainsFunc(selectors, func(s selector) bool { return s.value == "*" })
}

// output is the index of the output that an entry names, which is "" for the only one; -1 if there is none.
func (s *Spec) output(entry string) int {
	if !s.Several && entry == "" {
		return 0
	}
	return slices.IndexFunc(s.Outputs, func(o Output) bool { return o.Name == entry })
}

func (s *Spec) outputNames() []string {
	names := make([]string, len(s.Outputs))
	for i := range names {
		names[i] = s.Outputs[i].Name
	}
	return names
}

// makesFolder reports whether an output, or the entry of several, is a directory.
func (s *Spec) makesFolder(entry string) bool {
	i := s.output(entry)
	return i >= 0 && s.Outputs[i].Kind == Dir
}

// unselected reports a reference to a family that does not say which items it reads. If both tasks have the same
// dimensions, it suggests to read item by item.
func (d expander) unselected(where string, b, to *base, ref *wire, r *reference) {
	what := "a matrix"
	example := r.name + "[*]" + dotted(r.entry) + " for all items"
	names, naming := to.variables()
	if to.items != nil && naming == 0 {
		names = to.staticNames()
		naming = len(names)
	}
	if to.dims != nil {
		what = "a matrix of " + itemCount(to.count)
		if to.count > 0 {
			example += " or " + d.def.Tasks[to.first].Name + dotted(r.entry) + " for one"
		}
	}
	mine, _ := b.variables()
	if b.items != nil && len(mine) == 0 {
		mine = b.staticNames()
	}
	shared := slices.DeleteFunc(slices.Clone(names[:naming]), func(name string) bool { return !slices.Contains(mine, name) })
	switch {
	case len(shared) > 0 && len(shared) == naming:
		example = r.name + "[" + strings.Join(shared, ",") + "]" + dotted(r.entry) + " for the same item, or " + example
	case len(shared) > 0:
		example = r.name + "[" + strings.Join(shared, ",") + ",*]" + dotted(r.entry) + " for all of the same " + strings.Join(shared, " and ") + ", or " + example
	}
	d.report.add(ref.pos, "write "+example, "%s: %s is %s", where, r.name, what)
}

// fromItems completes a plan that selects files of a directory.
func (d expander) fromItems(p *plan, where string, ref *wire, selectors []selector) bool {
	switch {
	case selectors == nil:
		return true
	case isAll(selectors):
		d.report.add(ref.pos, "write "+strings.TrimSuffix(ref.source, ref.source[strings.LastIndexByte(ref.source, '['):]),
			"%s: %q: all files together are the directory itself", where, truncate(ref.source))
		return false
	case p.input.Kind != Dir || p.fan:
		d.report.add(ref.pos, "", "%s: %q: only a directory has files to select", where, truncate(ref.source))
		return false
	}
	p.joined, p.itemSelectors = true, selectors
	d.grows = true
	if p.byItem {
		p.glob, p.byItem = path.Join(p.target.spec.Outputs[max(p.input.Source.Entry, 0)].Glob(), "**"), false
		p.input.Path = GlobPrefix(p.glob)
	}
	if anyAll(selectors) {
		p.input.Path, p.glob, p.project = p.input.Name, "", false
		return true
	}
	if p.glob == "" { // the directory may have any file
		p.glob = path.Join(p.input.Path, "**")
	}
	return true
}

// ending is the text behind the label in the entries of a fan-in: the suffix of the output, unless the reader wants
// none.
func ending(to *base, ref *wire, entry string) string {
	if ref.bare {
		return ""
	}
	if i := to.spec.output(entry); i >= 0 && to.spec.Outputs[i].Kind == File {
		return Suffix(to.spec.Outputs[i].Path)
	}
	return ""
}

// compressed are suffixes of compressed files: the suffix of the content, before these, is kept, too.
var compressed = []string{".gz", ".bz2", ".xz", ".zst"}

// Suffix returns the suffix of a file's name: ".json", ".fq.gz". It is "" for a name without one.
func Suffix(p string) string {
	name := path.Base(p)
	ext := path.Ext(name)
	if slices.Contains(compressed, ext) {
		ext = path.Ext(strings.TrimSuffix(name, ext)) + ext
	}
	if ext == name || strings.ContainsAny(ext, ",=[]{} ") {
		return ""
	}
	return ext
}

func itemCount(n int) string {
	if n == 1 {
		return "1 item"
	}
	return strconv.Itoa(n) + " items"
}
