package report

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/plot"
	"e3/objectstore"
)

// Bounds of charts.
const (
	maxPlot  = 1 << 20 // bytes of a table that is drawn
	maxDrawn = 200     // tables that are drawn for a family
)

// A Chart is a plot of a task, or of all tasks of a matrix with a line for each.
type Chart struct {
	Task, Name string // the task or family, and the file
	Title      string // with what is drawn

	of   plot.Chart
	left string
}

// Look says how charts of lines are drawn.
type Look = plot.Look

// Drawing draws the chart.
func (c *Chart) Drawing(look Look) h.Node { return c.of.Drawing(c.Title, look) }

// Note says what the drawing cannot; it may be empty.
func (c *Chart) Note(look Look) string { return strings.TrimPrefix(c.of.Note(look)+c.left, "; ") }

// Item names the item that a chart is of, if others are of other items.
func (c *Chart) Item() string {
	if m, ok := c.of.(*plot.Matrix); ok {
		return m.Task()
	}
	return ""
}

// Figure is the chart as a figure.
func (c Chart) Figure() Figure {
	name := c.Name
	if of := c.Item(); of != "" {
		name = strings.TrimPrefix(name+" · "+of, " · ")
	}
	return Figure{Task: c.Task, Name: name, Size: -1, Content: Content{Chart: c.Drawing(Look{}), Note: c.Note(Look{})}}
}

// ChartStyle is for pages that show charts.
var ChartStyle = plot.Style

// A Plotted is a file that is to be drawn, and how.
type Plotted struct {
	Task, Name string // the task with its label, and the file
	Kind       string // lines of one kind have one colour; "": a colour of its own
	Of         int    // a number of the caller's, which its lines keep
	record.Plot
}

// family is the task without its label; label is "" for a task that is no item of a matrix.
func (p *Plotted) family() (base, label string) {
	if base = matrixOf(p.Task); base == "" {
		return p.Task, ""
	}
	return base, strings.TrimSuffix(p.Task[len(base)+1:], "]")
}

// group is what is drawn together: the plots of one title and template, or the same file of the items of a matrix.
type group struct {
	plots  []Plotted
	tables []*plot.Table
	left   int // tables beyond the bound
}

// Charts gathers tables, and draws those together that belong together. The zero value is ready.
type Charts struct {
	groups map[string]*group
	order  []*group
}

// Columns are the columns of the tables that lines are drawn of, each once.
func (c *Charts) Columns() (list []string) {
	known := map[string]bool{}
	for _, g := range c.order {
		if strings.HasPrefix(g.plots[0].Template, "confusion") || strings.HasPrefix(g.plots[0].Template, "bar") {
			continue
		}
		for _, t := range g.tables {
			for _, name := range t.Head {
				if !known[name] {
					known[name] = true
					list = append(list, name)
				}
			}
		}
	}
	return list
}

// Take takes the content of a file if it is a table that can be drawn; else reason says why not. read is called at most
// once.
func (c *Charts) Take(p Plotted, size int64, read func() ([]byte, error)) (reason string, err error) {
	if size > maxPlot {
		return "it is larger than " + human.Bytes(maxPlot), nil
	}
	base, _ := p.family()
	key := fmt.Sprintf("%s\x00%s\x00%v", base, p.Name, p.Plot)
	if p.Title != "" {
		key = fmt.Sprintf("%s\x00%s", p.Title, p.Template)
	}
	g := c.groups[key]
	if g != nil && len(g.tables) >= maxDrawn {
		g.left++
		return "", nil
	}
	data, err := read()
	if err != nil {
		return "", err
	}
	t, err := plot.Read(p.Name, data, &p.Plot)
	var none *plot.NotATableError
	if errors.As(err, &none) {
		return none.Reason, nil
	}
	if err != nil {
		return "", err
	}
	if g == nil {
		if c.groups == nil {
			c.groups = map[string]*group{}
		}
		g = &group{}
		c.groups[key], c.order = g, append(c.order, g)
	}
	g.plots, g.tables = append(g.plots, p), append(g.tables, t)
	return "", nil
}

// Draw returns the charts in the order of their first tables.
func (c *Charts) Draw() []Chart {
	var list []Chart
	for _, g := range c.order {
		first := &g.plots[0]
		task, _ := first.family()
		items := g.items()
		if len(items) == 1 && (first.Title != "" || len(g.tables[0].Names) > 1) { // one item is no family
			task, items[0].Name = first.Task, ""
		}
		name := first.Name
		if first.Title != "" {
			task, name = first.Title, ""
		}
		for _, ch := range plot.Draw(items, &first.Plot) {
			title := strings.TrimSuffix(visible(task)+" · "+visible(name), " · ")
			if caption := ch.Caption(); caption != "" {
				title += ": " + caption
			}
			out := Chart{Task: visible(task), Name: visible(name), Title: title, of: ch}
			if g.left > 0 {
				out.left = fmt.Sprintf("; the first %d of %d tables", maxDrawn, maxDrawn+g.left)
			}
			list = append(list, out)
		}
	}
	return list
}

// items names the tables by what tells them apart: task, file and label.
func (g *group) items() []plot.Item {
	var bases, files bool
	first, _ := g.plots[0].family()
	for i := range g.plots {
		base, _ := g.plots[i].family()
		bases, files = bases || base != first, files || g.plots[i].Name != g.plots[0].Name
	}
	items := make([]plot.Item, len(g.plots))
	for i := range g.plots {
		p := &g.plots[i]
		base, label := p.family()
		var parts []string
		if bases {
			parts = append(parts, base)
		}
		if label != "" {
			parts = append(parts, label)
		}
		if files {
			parts = append(parts, p.Name)
		}
		items[i] = plot.Item{Name: visible(strings.Join(parts, " ")), Kind: visible(p.Kind), Of: p.Of, Table: g.tables[i]}
	}
	return items
}

// ChartsOf draws one file; none, and the reason, if it is no table that can be drawn.
func ChartsOf(p Plotted, data []byte) (list []Chart, reason string) {
	var c Charts
	reason, err := c.Take(p, int64(len(data)), func() ([]byte, error) { return data, nil })
	if err != nil {
		reason = err.Error()
	}
	return c.Draw(), reason
}

// chart takes a plot if it is a table; else it returns the reason.
func (o *outputs) chart(ctx context.Context, f file, p record.Plot) (reason string, err error) {
	return o.charts.Take(Plotted{Task: f.task, Name: f.name, Plot: p}, f.size, func() ([]byte, error) {
		return objectstore.ReadAll(ctx, o.b.s.Runs.Objects, f.hash, maxPlot)
	})
}

// drawn adds the charts to the page, before its other figures.
func (o *outputs) drawn() {
	var list []Figure
	for _, c := range o.charts.Draw() {
		f := c.Figure()
		if o.bytes += int64(len(h.String(f.Chart))); o.bytes > allFigures {
			o.left++
			continue
		}
		list = append(list, f)
	}
	o.page.Figures = append(list, o.page.Figures...)
}
