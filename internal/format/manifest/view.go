package manifest

import (
	"path"
	"slices"
	"strings"

	"e3/internal/format/record"
)

// Keys of an output that say what people see of it. They enter no cache key.
var (
	viewNames = record.ViewKind(0).Cases()
	plotKeys  = []string{"x", "y", "title", "x_label", "y_label", "template"}
	listKeys  = map[string]record.ViewKind{"metrics": record.ViewMetrics, "plots": record.ViewPlot, "reports": record.ViewReport}
)

// views reads the keys of an output that say what people see of it.
type views struct {
	*policyReader
	where     string
	kind      *node // the value of the key kind
	plot      record.Plot
	firstPlot *node // the first key of a plot
	lists     []*node
}

// field takes a key; false if the key is not of a view.
func (r *views) field(key, v *node) bool {
	_, isList := listKeys[key.text]
	switch {
	case key.text == "kind":
		r.kind = v
	case isList:
		r.lists = append(r.lists, key, v)
	case slices.Contains(plotKeys, key.text):
		if r.firstPlot == nil {
			r.firstPlot = key
		}
		r.plotField(r.where, key, v, &r.plot)
	default:
		return false
	}
	return true
}

// done adds the views of an output that is read. entry is the output's name, "" if the task has one output.
func (r *views) done(out *Output, entry string) {
	add := func(kind record.ViewKind, at string, p record.Plot) {
		r.Views = append(r.Views, record.View{Entry: entry, Path: r.intern(at), Kind: kind, Plot: p})
	}
	own := path.Base(out.Path)
	if out.Kind == Dir {
		own = ""
	}
	plain := false // an output whose kind is a plot
	if v := r.kind; v != nil {
		k := slices.Index(viewNames, v.text)
		switch {
		case v.kind != stringNode:
			r.wrongType(r.where+": kind", v, "metrics, plot or report")
		case k < 0:
			r.report.add(v.pos, r.suggest(v.text, viewNames), "%s: kind %q is not metrics, plot or report", r.where, truncate(v.text))
		case len(r.lists) > 0:
			r.report.add(r.lists[0].pos, "leave kind out", "%s: both kind and %s are given", r.where, r.lists[0].text)
		default:
			plain = record.ViewKind(k) == record.ViewPlot
			add(record.ViewKind(k), own, r.plot)
		}
	}
	if r.firstPlot != nil && !plain && (r.kind == nil || slices.Contains(viewNames, r.kind.text)) {
		r.report.add(r.firstPlot.pos, "write kind: plot as well, or the key at an element of plots", "%s: %s belongs to a plot", r.where, r.firstPlot.text)
	}
	for i := 0; i+1 < len(r.lists); i += 2 {
		key, v := r.lists[i], r.lists[i+1]
		where, kind := r.where+": "+key.text, listKeys[key.text]
		items := []node{*v}
		if v.kind == listNode {
			items = v.list
		}
		for k := range items {
			at, p, ok := r.element(where, &items[k], kind, out.Kind == Dir)
			if ok && out.Kind != Dir {
				at = own
			}
			if ok {
				add(kind, at, p)
			}
		}
	}
}

// element reads an element of a list: the path of a file or folder in the directory, or a pattern of files, or a mapping that also
// says how a plot is drawn. An output that is a file has only mappings without a path.
func (r *views) element(where string, n *node, kind record.ViewKind, inDir bool) (at string, p record.Plot, ok bool) {
	file := n
	if n.kind == mapNode && kind == record.ViewPlot {
		file = nil
		r.fields(where, n, append([]string{"file"}, plotKeys...), func(key, v *node) {
			if key.text == "file" {
				file = v
				return
			}
			r.plotField(where, key, v, &p)
		})
	}
	switch {
	case !inDir && file == nil:
		return "", p, true
	case !inDir:
		r.report.add(file.pos, "write kind: "+kind.String(), "%s: paths belong to a directory, and this output is a file", where)
	case file == nil:
		r.report.add(n.pos, "", "%s: a plot of a directory needs file: its path there", where)
	case file.kind != stringNode:
		r.wrongType(where, file, "a path in the directory")
	default:
		clean, fault, hint := cleanPath(file.text)
		if fault == "" && strings.ContainsAny(clean, "*?") {
			if err := CheckGlob(clean); err != nil {
				fault = err.Error()
			}
		}
		if fault != "" {
			r.report.add(file.pos, hint, "%s %q: %s", where, truncate(file.text), fault)
			return "", p, false
		}
		return strings.TrimSuffix(clean, "."), p, true
	}
	return "", p, false
}

// plotField reads one of plotKeys.
func (r *views) plotField(where string, key, v *node, p *record.Plot) {
	where += ": " + key.text
	switch key.text {
	case "x":
		p.X = r.text(where, v)
	case "y":
		list := []node{*v}
		if v.kind == listNode {
			list = v.list
		}
		for i := range list {
			p.Y = append(p.Y, r.text(where, &list[i]))
		}
	case "title":
		p.Title = r.text(where, v)
	case "x_label":
		p.XLabel = r.text(where, v)
	case "y_label":
		p.YLabel = r.text(where, v)
	case "template":
		p.Template = r.text(where, v)
		if v.kind == stringNode && !slices.Contains(record.Templates, v.text) {
			hint := map[string]string{
				"simple": "it is linear", "line": "it is called linear", "scatter_jitter": "write scatter", "bar": "write bar_horizontal",
			}[v.text]
			if hint == "" {
				hint = "there are " + strings.Join(record.Templates, ", ")
			}
			r.report.add(v.pos, hint, "%s: there is no template %q", where, truncate(v.text))
		}
	}
}
