package report

import (
	"context"
	"fmt"
	"strings"

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
	Drawing    h.Node
	Note       string
}

// Figure is the chart as a figure.
func (c Chart) Figure() Figure {
	return Figure{Task: c.Task, Name: c.Name, Size: -1, Content: Content{Chart: c.Drawing, Note: c.Note}}
}

// ChartStyle is for pages that show charts.
const ChartStyle = plot.Style

// plotted is a table that is to be drawn.
type plotted struct {
	file
	*plot.Table
}

// Charts gathers tables, and draws the tables of a family together. The zero value is ready.
type Charts struct {
	groups map[string][]plotted
	order  []string
	left   map[string]int // by group: tables beyond the bound
}

// Take takes the content of a file of a task if it is a table that can be drawn. read is called at most once.
func (c *Charts) Take(task, name string, size int64, read func() ([]byte, error)) (bool, error) {
	if size > maxPlot {
		return false, nil
	}
	key := task
	if base := matrixOf(task); base != "" {
		key = base
	}
	key += "\x00" + name
	if len(c.groups[key]) >= maxDrawn {
		c.left[key]++
		return true, nil
	}
	data, err := read()
	if err != nil {
		return false, err
	}
	t, ok := plot.Read(data)
	if !ok {
		return false, nil
	}
	if c.groups == nil {
		c.groups, c.left = map[string][]plotted{}, map[string]int{}
	}
	if c.groups[key] == nil {
		c.order = append(c.order, key)
	}
	c.groups[key] = append(c.groups[key], plotted{file{task: task, name: name}, t})
	return true, nil
}

// Draw returns the charts in the order of their first tables.
func (c *Charts) Draw() []Chart {
	var list []Chart
	for _, key := range c.order {
		task, name, _ := strings.Cut(key, "\x00")
		group := c.groups[key]
		charts := []*plot.Chart{plot.Alone(group[0].Table)}
		if matrixOf(group[0].task) != "" && (len(group) > 1 || len(charts[0].Lines) == 1) {
			items := make([]plot.Item, len(group))
			for i := range group {
				items[i] = plot.Item{Name: visible(strings.TrimSuffix(group[i].task[len(task)+1:], "]")), Table: group[i].Table}
			}
			charts = plot.Together(items)
		} else {
			task = group[0].task
		}
		for _, ch := range charts {
			title := visible(task) + " · " + visible(name)
			if ch.Y != "" {
				title += ": " + ch.Y + " by " + ch.X
			}
			out := Chart{Task: visible(task), Name: visible(name), Drawing: ch.Drawing(title), Note: ch.Names()}
			if n := c.left[key]; n > 0 {
				out.Note = strings.TrimPrefix(fmt.Sprintf("%s; the first %d of %d tasks", out.Note, maxDrawn, maxDrawn+n), "; ")
			}
			list = append(list, out)
		}
	}
	return list
}

// ChartOf draws one table; false if it is none.
func ChartOf(name string, data []byte) (Chart, bool) {
	var c Charts
	ok, err := c.Take("", name, int64(len(data)), func() ([]byte, error) { return data, nil })
	if !ok || err != nil {
		return Chart{}, false
	}
	return c.Draw()[0], true
}

// chart takes a plot if it is a table.
func (o *outputs) chart(ctx context.Context, f file) (bool, error) {
	return o.charts.Take(f.task, f.name, f.size, func() ([]byte, error) {
		return objectstore.ReadAll(ctx, o.b.s.Runs.Objects, f.hash, maxPlot)
	})
}

// drawn adds the charts to the page, before its other figures.
func (o *outputs) drawn() {
	var list []Figure
	for _, c := range o.charts.Draw() {
		if o.bytes += int64(len(h.String(c.Drawing))); o.bytes > allFigures {
			o.left++
			continue
		}
		list = append(list, c.Figure())
	}
	o.page.Figures = append(list, o.page.Figures...)
}
