package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// With results: . an output lies in the project at the path that its task writes. So a path of the project belongs to
// one output or to an input, and what outputs leave there is no input of the next start.

// A placer gives outputs their places in the project.
type placer struct {
	*resultsDecoder
	claims []claim // of outputs, later of inputs too
}

// A place is a path, or a pattern of paths, that inputs of several files leave out.
type place struct {
	path string
	dir  bool
}

// isPattern reports whether the place is a pattern.
func (p place) isPattern() bool { return strings.ContainsAny(p.path, "*?") }

// place reports outputs that cannot lie at their paths, and lets inputs leave out the others.
func (d *placer) place() {
	tasks := d.def.Tasks // of this base and later ones
	for i := range d.bases {
		b := &d.bases[i]
		var own []Task
		if !b.pending {
			own, tasks = tasks[:b.count], tasks[b.count:]
		}
		for k := range b.spec.Outputs {
			d.output(b, &b.spec.Outputs[k], own)
		}
	}
	for i := range d.def.Inputs {
		for _, in := range d.def.Inputs[i].Sources() {
			if in.Kind == ValueInput || in.Kind == ParamInput || in.Kind == PartInput {
				continue
			}
			c := claim{what: "the input " + in.Name, path: in.Path, project: true, pos: in.Pos, folder: in.Kind == DirInput}
			if in.Kind == GlobInput {
				c.path, c.glob = GlobPrefix(in.Path), in.Path
			}
			d.claims = append(d.claims, c)
		}
	}
	nested(d.claims, d.clash)
	if len(d.report.errs) == 0 {
		d.leaveOut()
	}
}

// output gives an output of a task its places.
func (d *placer) output(b *base, out *Output, tasks []Task) {
	chosen, all := d.choose(b, out, tasks)
	switch {
	case chosen == 0 && !all && !(b.pending && d.mayChoose(b)):
		return
	case b.isFamily() && !out.ByItem && (chosen > 1 || b.items != nil && all):
		d.report.add(out.Pos, "put the item in the path, as "+withItem(b, out),
			"results in the project: the items of %s would all write %s", b.spec.Base, truncate(out.Path))
		return
	}
	p := place{out.Glob(), out.Kind == Dir}
	top, _, _ := strings.Cut(p.path, "/")
	switch {
	case top == ".git":
		d.report.add(out.Pos, "give it another path", "results in the project: %s is git's own", truncate(out.Path))
	case strings.Trim(p.path, "*") == "":
		d.report.add(out.Pos, "put a folder before the braces, as out/"+out.Path,
			"results in the project: %s may be any path at its top", truncate(out.Path))
	}
	d.places = append(d.places, p)
}

// choose counts the items of which an output is left in the project, and adds a claim for each; all says that items
// which are not known yet are among them.
func (d *placer) choose(b *base, out *Output, tasks []Task) (count int, all bool) {
	of := d.def.Results.Of
	any := b.spec.Base + "[]"
	all = len(of) == 0 || slices.ContainsFunc(of, func(p string) bool {
		return p == b.spec.Base || strings.ContainsAny(p, "*?") && (matchPart(p, any) || matchPart(p, any+"."+out.Name))
	})
	if all && b.pending && !b.isFamily() { // it waits for a family
		tasks = []Task{{Spec: b.spec, Name: b.spec.Base}}
	}
	for i := range tasks {
		t := &tasks[i]
		name := t.Name
		if t.Several {
			name += "." + out.Name
		}
		means := func(p string) bool { return matchPart(p, t.Name) || matchPart(p, name) }
		if !all && !slices.ContainsFunc(of, means) {
			continue
		}
		if count++; count == 1 || out.ByItem { // else the items have one path, which is a fault
			d.claims = append(d.claims, claim{what: name, path: t.PathOf(out), pos: out.Pos})
		}
	}
	return count, all && (b.pending || b.items != nil || count > 0)
}

// mayChoose reports whether a name may mean an item of a task that is not known yet.
func (d *placer) mayChoose(b *base) bool {
	return slices.ContainsFunc(d.def.Results.Of, func(p string) bool { return strings.HasPrefix(p, b.spec.Base+"[") })
}

// withItem suggests a path with the item.
func withItem(b *base, out *Output) string {
	names, naming := b.variables()
	if b.items != nil && naming == 0 {
		names = b.staticNames()
		naming = len(names)
	}
	suffix := Suffix(out.Path)
	if out.Kind == Dir {
		suffix = "/"
	}
	p := strings.TrimSuffix(out.Path, suffix)
	for _, name := range names[:naming] {
		p += "-{" + name + "}"
	}
	return p + suffix
}

// clash reports an output at the path of an input or of another output, or in it.
func (d *placer) clash(outer, inner *claim) {
	switch {
	case outer.project && inner.project:
	case outer.path == inner.path:
		d.refuse(outer, inner, "%s and %s are both at %s", outer.what, inner.what, truncate(inner.path))
	case outer.folder || outer.glob != "": // the input leaves it out
	default:
		d.refuse(outer, inner, "%s at %s lies inside %s at %s",
			inner.what, truncate(inner.path), outer.what, truncate(outer.path))
	}
}

// refuse reports the later one of two claims.
func (d *placer) refuse(a, b *claim, format string, args ...any) {
	first, later := a.pos, b.pos
	if later.before(first) {
		first, later = later, first
	}
	d.report.add(later, "give one of them another path", "results in the project: %s; line %d has the other one",
		fmt.Sprintf(format, args...), first.Line)
}

// leaveOut lets inputs of several files leave out the places, and the files .gitignore beside them, which may name
// them.
func (d *placer) leaveOut() {
	seen := map[string]bool{}
	for _, p := range d.places {
		if at := path.Join(path.Dir(p.path), ".gitignore"); !seen[at] {
			seen[at] = true
			d.places = append(d.places, place{path: at})
		}
	}
	for _, patterns := range []bool{true, false} { // paths at the end are looked up: see NewExcept
		for i := range d.def.Inputs {
			in := &d.def.Inputs[i]
			sources := slices.DeleteFunc(in.Sources(), func(s Input) bool { return s.Kind != DirInput && s.Kind != GlobInput })
			for _, p := range d.places {
				if p.isPattern() == patterns && slices.ContainsFunc(sources, func(in Input) bool { return in.mayHold(p) }) {
					in.LeftOut = append(in.LeftOut, "/"+p.path)
				}
			}
		}
	}
}

// mayHold reports whether an input of several files would take in a place.
func (in *Input) mayHold(p place) bool {
	folder := in.Folder()
	switch {
	case p.isPattern():
		top := GlobPrefix(p.path)
		return contains(folder, top) || contains(top, folder)
	case in.Kind == GlobInput && !p.dir:
		return MatchGlob(in.Path, p.path)
	}
	return contains(folder, p.path)
}
