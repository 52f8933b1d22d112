package record

import (
	"fmt"
	"strings"
)

// A ViewKind says as what people see a file.
type ViewKind int

// The kinds of views. The values are the case tags on disk.
const (
	ViewMetrics ViewKind = iota
	ViewPlot
	ViewReport
)

// Cases are the names of the kinds, as a package file has them.
func (k ViewKind) Cases() []string { return []string{"metrics", "plot", "report"} }

func (k ViewKind) String() string { return k.Cases()[min(max(k, 0), ViewReport)] }

// A View marks files among the outputs of a task that people look at.
type View struct {
	Entry string `json:"entry,omitempty"` // the output's name; "" if the task has one output
	// Path is the name of an output that is a file. In a directory it is the path of a file or folder, or a pattern; "": all files.
	Path string   `json:"path,omitempty"`
	Kind ViewKind `json:"kind,omitempty"`
	Plot Plot     `beast2:",option" json:"plot,omitzero"`
}

// A Plot says how a table is drawn.
type Plot struct {
	X        string   `json:"x,omitempty"` // the column; "": the first one
	Y        []string `json:"y,omitempty"` // none: each other column of numbers
	Title    string   `json:"title,omitempty"`
	XLabel   string   `json:"xLabel,omitempty"`
	YLabel   string   `json:"yLabel,omitempty"`
	Template string   `json:"template,omitempty"` // one of Templates; "": the first
}

// Templates are the names of the ways to draw a table. They are DVC's.
var Templates = []string{"linear", "smooth", "scatter", "bar_horizontal", "bar_horizontal_sorted", "confusion", "confusion_normalized"}

// String says what the view shows and how, for people.
func (v View) String() string {
	text := v.Kind.String() + " " + strings.Trim(v.Entry+"/"+v.Path, "/")
	p := v.Plot
	for _, part := range []struct{ key, value string }{
		{"x", p.X}, {"y", strings.Join(p.Y, ", ")}, {"title", p.Title}, {"x_label", p.XLabel}, {"y_label", p.YLabel}, {"template", p.Template},
	} {
		if part.value != "" {
			text += fmt.Sprintf(" %s: %s", part.key, part.value)
		}
	}
	return strings.TrimSpace(text)
}
