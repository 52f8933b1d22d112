package newfile

import (
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A figure is a file or folder that DVC shows as metrics or plots.
type figure struct {
	kind   string // metrics or plot
	file   string // in an output that is a folder; "": the output itself
	x      string
	y      []string
	title  string
	xLabel string
	yLabel string
	form   string // template
	node   *yaml.Node
}

// templates are DVC's names of the ways to draw.
var templates = map[string]string{
	"": "", "linear": "", "default": "", "simple": "", "smooth": "smooth", "scatter": "scatter", "scatter_jitter": "scatter",
	"bar_horizontal": "bar_horizontal", "bar_horizontal_sorted": "bar_horizontal_sorted",
	"confusion": "confusion", "confusion_normalized": "confusion_normalized",
}

// read takes the settings of a plot.
func (f *figure) read(c *converter, n *yaml.Node) {
	pairs(n, func(k, v *yaml.Node) {
		switch k.Value {
		case "x":
			if f.x = v.Value; v.Kind == yaml.MappingNode && len(v.Content) > 1 {
				f.x = resolved(v.Content[1]).Value
			}
		case "y":
			if v.Kind == yaml.ScalarNode {
				f.y = []string{v.Value}
			} else if v.Kind == yaml.SequenceNode {
				f.y = scalars(v)
			}
		case "title":
			f.title = v.Value
		case "x_label":
			f.xLabel = v.Value
		case "y_label":
			f.yLabel = v.Value
		case "template":
			form, known := templates[strings.TrimSuffix(path.Base(v.Value), ".json")]
			if !known {
				c.note(v, true, "plots: the template %s has no counterpart: the chart has lines", v.Value)
			}
			f.form = form
		case "cache", "persist", "push", "remote", "desc", "type", "labels", "meta":
		case "header":
			if v.Value == "false" {
				c.note(v, true, "plots: header: e3 takes the names of columns from the first line")
			}
		default:
			c.note(k, true, "plots: %s: e3 new does not know this key; look up what it does, and do it by hand", k.Value)
		}
	})
}

func scalars(n *yaml.Node) (list []string) {
	for _, item := range n.Content {
		list = append(list, resolved(item).Value)
	}
	return list
}

// plots reads the plots at the top of dvc.yaml: paths, or charts with the files of their y axis.
func (c *converter) plots(v *yaml.Node) {
	list := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		list = v.Content
	}
	for _, item := range list {
		if item = resolved(item); item.Kind == yaml.ScalarNode {
			c.figure(item.Value, figure{kind: "plot", node: item})
			continue
		}
		pairs(item, func(k, body *yaml.Node) {
			f := figure{kind: "plot", node: k}
			f.read(c, body)
			y := field(body, "y")
			if y == nil || y.Kind != yaml.MappingNode {
				c.figure(k.Value, f)
				return
			}
			if f.title == "" {
				f.title = k.Value
			}
			pairs(y, func(file, columns *yaml.Node) {
				one := f
				if one.y = []string{columns.Value}; columns.Kind == yaml.SequenceNode {
					one.y = scalars(columns)
				}
				if x := field(body, "x"); x != nil && x.Kind == yaml.MappingNode {
					if own := field(x, file.Value); own != nil {
						one.x = own.Value
					}
				}
				c.figure(file.Value, one)
			})
		})
	}
}

func (c *converter) figure(p string, f figure) {
	p = path.Join(c.dir(), p)
	c.figures[p] = append(c.figures[p], f)
}

// draw puts figures into an output.
func (s *stage) draw(out *Out, figures []figure) {
	for _, f := range figures {
		switch {
		case !out.Dir && f.file == "" && out.Kind == "":
			out.Kind, out.Plot = f.kind, f.plot()
		case !out.Dir && f.file == "" && out.Kind == f.kind && (f.plot() == "" || f.plot() == out.Plot):
		case !out.Dir && out.Kind == f.kind && out.Plot == "":
			out.Plot = f.plot()
		case !out.Dir:
			s.note(f.node, true, "%s is shown once; this chart of it is left out", out.Path)
		case f.kind == "metrics":
			out.Metrics = append(out.Metrics, scalar(s.inFolder(out, f)))
		default:
			text := "file: " + scalar(s.inFolder(out, f))
			if plot := f.plot(); plot != "" {
				out.Plots = append(out.Plots, "{"+text+", "+plot+"}")
			} else {
				out.Plots = append(out.Plots, scalar(s.inFolder(out, f)))
			}
		}
	}
}

// inFolder is the path of a figure in the folder that a task writes; all of the folder if DVC names that.
func (s *stage) inFolder(out *Out, f figure) string {
	if f.file == "" {
		return "**"
	}
	return f.file
}

// plot says how a figure is drawn, as keys of an output.
func (f *figure) plot() string {
	var b []string
	add := func(key, v string) {
		if v != "" {
			b = append(b, key+": "+scalar(v))
		}
	}
	add("x", f.x)
	switch len(f.y) {
	case 0:
	case 1:
		add("y", f.y[0])
	default:
		names := make([]string, len(f.y))
		for i, y := range f.y {
			names[i] = scalar(y)
		}
		b = append(b, "y: ["+strings.Join(names, ", ")+"]")
	}
	add("title", f.title)
	add("x_label", f.xLabel)
	add("y_label", f.yLabel)
	add("template", f.form)
	return strings.Join(b, ", ")
}

// unplaced names the figures that no task writes.
func (c *converter) unplaced() {
	for _, p := range slices.Sorted(maps.Keys(c.figures)) {
		written := false
		for q, m := range c.made {
			q = m.stage.present(q)
			written = written || p == q || strings.HasPrefix(p, q+"/")
		}
		if !written {
			c.note(c.figures[p][0].node, true, "%s: %s is not in the output of a stage", c.figures[p][0].kind, p)
		}
	}
}
