package manifest

import (
	"fmt"
	"slices"
	"strings"
)

var resultKeys = []string{"dir", "of", "gitignore"}

// A resultsDecoder reads the top-level key results: a folder, or a folder with a selection of outputs.
type resultsDecoder struct {
	*decoder
	at, of Pos     // places of the folder, and of the selection
	ignore Pos     // of gitignore
	places []place // of outputs in place
}

func (d *resultsDecoder) read(n *node) {
	r := &Results{}
	switch n.kind {
	case stringNode:
		r.Dir = d.dir("results", n)
	case mapNode:
		d.fields("results", n, resultKeys, func(key, v *node) {
			switch key.text {
			case "dir":
				r.Dir = d.dir("results: dir", v)
			case "of":
				d.of = v.pos
				r.Of = d.names(v)
			case "gitignore":
				d.ignore = v.pos
				r.GitIgnore, _ = d.boolean("results: gitignore", v)
			}
		})
		if d.at == (Pos{}) {
			d.missing(n, "add dir: with a folder beside the package file", "results: no folder is named")
		}
	default:
		d.wrongType("results", n, "a folder such as results/")
	}
	if r.GitIgnore && r.Dir != InPlace {
		d.report.add(d.ignore, "a folder for results alone needs one line in .gitignore", "results: gitignore is for dir: .")
	}
	d.def.Results = r
}

func (d *resultsDecoder) dir(where string, n *node) string {
	d.at = n.pos
	if n.kind != stringNode {
		d.wrongType(where, n, "a folder such as results/")
		return ""
	}
	clean, fault, hint := cleanPath(n.text)
	if fault != "" {
		d.report.add(n.pos, hint, "%s %q: %s", where, truncate(n.text), fault)
	}
	return clean
}

func (d *resultsDecoder) names(n *node) []string {
	if n.kind == stringNode {
		return []string{n.text}
	}
	if n.kind != listNode {
		d.wrongType("results: of", n, "a list of tasks, such as [report, \"fit[*]\"]")
		return nil
	}
	var names []string
	for i := range n.list {
		if name := d.text("results: of", &n.list[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// check makes the checks that need the whole file.
func (d *resultsDecoder) check() {
	r := d.def.Results
	if r == nil || d.report.full() {
		return
	}
	if r.Dir != "" && r.Dir != InPlace {
		for i := range d.def.Inputs {
			in := &d.def.Inputs[i]
			if in.Kind == DirInput && (in.Path == r.Dir || strings.HasPrefix(r.Dir, in.Path+"/")) {
				d.report.add(d.at, "name a folder outside of it", "results %q: the input %s takes in this folder, so each start would change its own input", r.Dir, in.Name)
			}
		}
	}
	if len(d.report.errs) > 0 {
		return // some tasks may be unknown yet
	}
	for _, pattern := range r.Of {
		if !slices.ContainsFunc(d.def.Tasks, func(t Task) bool { return t.named(pattern) }) && !d.awaited(pattern) {
			hint := d.suggest(pattern, baseNames(d.bases))
			if base, output, ok := strings.Cut(pattern, "."); ok {
				if every := base + "[*]." + output; slices.ContainsFunc(d.def.Tasks, func(t Task) bool { return t.Base == base && t.named(every) }) {
					hint = fmt.Sprintf("write %q", every)
				}
			}
			d.report.add(d.of, hint, "results: no task or output matches %q", truncate(pattern))
		}
	}
	if r.Dir == InPlace {
		(&placer{resultsDecoder: d}).place()
	}
}

// leavesOut reports whether inputs leave out a path, since an output lies there.
func (d *resultsDecoder) leavesOut(file string) bool {
	return slices.ContainsFunc(d.places, func(p place) bool {
		return matchParts(strings.Split(p.path, "/"), strings.Split(file, "/"))
	})
}

// awaited reports whether a name or pattern may mean tasks that are not known yet, because a task makes the list of their
// items.
func (d *resultsDecoder) awaited(pattern string) bool {
	return slices.ContainsFunc(d.def.Families, func(f Family) bool {
		return f.Pending && (matchPart(pattern, f.Base) || strings.HasPrefix(pattern, f.Base+"[") || strings.HasPrefix(pattern, f.Base+"."))
	})
}

// named reports whether a name or pattern means the task, all items of its matrix, or one of its outputs.
func (t *Task) named(pattern string) bool {
	if pattern == t.Base || matchPart(pattern, t.Name) {
		return true
	}
	return t.Several && slices.ContainsFunc(t.Outputs, func(o Output) bool { return matchPart(pattern, t.Name+"."+o.Name) })
}

func baseNames(bases []base) []string {
	names := make([]string, len(bases))
	for i := range bases {
		names[i] = bases[i].spec.Base
	}
	return names
}
