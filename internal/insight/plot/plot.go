// Package plot draws tables in SVG: as lines, points, bars or confusion matrices. The tables of several tasks, such as
// the items of a matrix, are drawn together.
package plot

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
)

// Bounds of a table.
const (
	maxColumns = 24
	maxRows    = 100_000
	maxName    = 60 // bytes of a column's name
	tiny       = 1e-290
)

// A Chart can be drawn.
type Chart interface {
	// Drawing draws the chart as an element of a page, which needs [Style].
	Drawing(title string, look Look) h.Node
	// Caption says what is drawn: "loss by step". It may be empty.
	Caption() string
	// Note says what the drawing cannot; it may be empty.
	Note(look Look) string
}

// A Table is the content of a plot.
type Table struct {
	X      string   // the name of the column of the x axis
	Labels []string // its texts, unless At has it as numbers
	At     []float64
	Names  []string    // of the other columns
	Values [][]float64 // by column and row; NaN: none
	Y      string      // the column of names of bars, or the second one of a confusion matrix
	Texts  []string    // its texts
	TextsX []string    // of a confusion matrix: those of X
	Head   []string    // all columns of the file, from which X and the others are chosen
}

// NotATableError says why a file is not drawn.
type NotATableError struct{ Reason string }

func (e *NotATableError) Error() string { return e.Reason }

func notATable(format string, args ...any) error {
	return &NotATableError{fmt.Sprintf(format, args...)}
}

// Read reads the table of a plot: the first one of the document that has the columns which the plot names. Without
// names, x is the first column, and y are the other ones that are numbers. A confusion matrix takes the first two
// columns, and bars take the first column for names and the next one of numbers. An error is a *NotATableError.
func Read(name string, data []byte, p *record.Plot) (*Table, error) {
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '<' {
		return nil, notATable("it is no table")
	}
	doc, err := figures.Read(name, data)
	if err != nil {
		return nil, notATable("%v", err)
	}
	var first error
	for _, t := range doc.Tables() {
		if len(t.Rows) == 0 {
			continue
		}
		table, err := tableOf(t, p)
		if err == nil {
			table.Head = t.Head
			return table, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = notATable("it has no rows of a table with a header")
	}
	return nil, first
}

func tableOf(t *figures.Table, p *record.Plot) (*Table, error) {
	if len(t.Rows) > maxRows {
		return nil, notATable("it has more than %d rows", maxRows)
	}
	index := func(column string) (int, error) {
		i := slices.Index(t.Head, column)
		if i < 0 {
			return 0, notATable("it has no column %s; there are %s", human.Line(column), human.Few(t.Head))
		}
		return i, nil
	}
	var at []int // of y
	for _, y := range p.Y {
		i, err := index(y)
		if err != nil {
			return nil, err
		}
		at = append(at, i)
	}
	x := 0
	var err error
	if p.X != "" {
		if x, err = index(p.X); err != nil {
			return nil, err
		}
	}
	switch p.Template {
	case "confusion", "confusion_normalized":
		if p.X == "" && len(at) > 0 && at[0] == 0 {
			x = 1
		}
		return pairs(t, p, x, at)
	case "bar_horizontal", "bar_horizontal_sorted":
		return barTable(t, p, x, at)
	}
	return lineTable(t, p, x, at)
}

// lineTable has the columns of lines and points.
func lineTable(t *figures.Table, p *record.Plot, x int, y []int) (*Table, error) {
	table := &Table{X: name(t.Head[x])}
	if p.X == "" && slices.Contains(y, x) { // no column is left for x but the number of the row
		table.X, x = "row", -1
		for i := range t.Rows {
			table.At = append(table.At, float64(i))
		}
	}
	if x >= 0 {
		if at, numbers, _ := numbersOf(t, x); numbers == len(t.Rows) {
			table.At = at
		} else {
			table.Labels = textsOf(t, x)
		}
	}
	chosen := y
	for i := range t.Head {
		if len(y) == 0 && i != x && len(chosen) < maxColumns {
			chosen = append(chosen, i)
		}
	}
	for _, c := range chosen {
		list, numbers, others := numbersOf(t, c)
		switch {
		case numbers > 0 && (others == 0 || len(y) > 0):
			table.Names, table.Values = append(table.Names, name(t.Head[c])), append(table.Values, list)
		case len(y) > 0:
			return nil, notATable("its column %s has no numbers", human.Line(t.Head[c]))
		}
	}
	if len(table.Names) == 0 {
		return nil, notATable("it has no column of numbers beside the first")
	}
	return table, nil
}

// numbersOf reads a column. A number that is not finite counts as none, and is a gap in a line.
func numbersOf(t *figures.Table, c int) (list []float64, numbers, others int) {
	list = make([]float64, len(t.Rows))
	for i, row := range t.Rows {
		list[i] = math.NaN()
		if c >= len(row) || strings.TrimSpace(row[c]) == "" {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(row[c]), 64)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			others++
			continue
		case math.IsNaN(v), math.Abs(v) > 1/tiny:
			continue
		case math.Abs(v) < tiny: // the distance of ticks stays a normal number
			v = 0
		}
		list[i] = v
		numbers++
	}
	return list, numbers, others
}

func textsOf(t *figures.Table, c int) []string {
	list := make([]string, len(t.Rows))
	for i, row := range t.Rows {
		if c < len(row) {
			list[i] = name(row[c])
		}
	}
	return list
}

// name makes a text from a file fit for a chart.
func name(s string) string { return human.Line(human.Truncate(strings.TrimSpace(s), maxName)) }

// An Item is the table of one task; its name names the line. Lines of items of one kind have one colour.
type Item struct {
	Name, Kind string
	Of         int // a number of the caller's, which its lines keep
	*Table
}

// Draw draws the tables of one plot: a chart, or one for each column, or for each item.
func Draw(items []Item, p *record.Plot) []Chart {
	switch p.Template {
	case "confusion", "confusion_normalized":
		return matrices(items, p)
	case "bar_horizontal", "bar_horizontal_sorted":
		return []Chart{barsOf(items, p)}
	}
	list := lines(items, p)
	charts := make([]Chart, len(list))
	for i, c := range list {
		c.Template = p.Template
		if p.XLabel != "" {
			c.X = name(p.XLabel)
		}
		if p.YLabel != "" {
			c.Y = name(p.YLabel)
		}
		charts[i] = c
	}
	return charts
}

// lines are the charts of lines or points. One task has one chart, with a line for each column. So have several tasks
// if the plot chooses its columns or has a title; else they have a chart for each column, with a line for each task.
func lines(items []Item, p *record.Plot) []*Lines {
	index, labels := places(items)
	if len(items) > 1 && len(p.Y) == 0 && p.Title == "" {
		var names []string
		for _, it := range items {
			for _, n := range it.Names {
				if !slices.Contains(names, n) && len(names) < maxColumns {
					names = append(names, n)
				}
			}
		}
		var charts []*Lines
		for _, n := range names {
			c := &Lines{X: items[0].X, Y: n, Labels: labels}
			for _, it := range items {
				if i := slices.Index(it.Names, n); i >= 0 {
					c.Lines = append(c.Lines, Line{Name: it.Name, Kind: it.Kind, Of: it.Of, X: it.place(index), Y: it.Values[i]})
				}
			}
			charts = append(charts, c)
		}
		return charts
	}
	c := &Lines{X: items[0].X, Labels: labels}
	columns := map[string]bool{}
	for _, it := range items {
		for i, n := range it.Names {
			columns[n] = true
			c.Lines = append(c.Lines, Line{Name: strings.TrimSpace(it.Name + " " + n), Kind: it.Kind, Of: it.Of, X: it.place(index), Y: it.Values[i]})
		}
	}
	if len(columns) == 1 { // the axis names it
		c.Y = items[0].Names[0]
		for i := range c.Lines {
			c.Lines[i].Name = items[i].Name
		}
	}
	return []*Lines{c}
}

// places are the places on the x axis of labels that tasks share; none if all tasks have numbers there.
func places(items []Item) (index map[string]float64, labels []string) {
	index = map[string]float64{}
	words := slices.ContainsFunc(items, func(it Item) bool { return it.At == nil })
	if len(items) == 1 { // a label that repeats is a place of its own
		return index, items[0].Labels
	}
	for _, it := range items {
		if !words {
			break
		}
		for _, l := range it.labels() {
			if _, ok := index[l]; !ok {
				index[l], labels = float64(len(labels)), append(labels, l)
			}
		}
	}
	return index, labels
}

// labels are the texts of the x axis.
func (t *Table) labels() []string {
	if t.At == nil {
		return t.Labels
	}
	list := make([]string, len(t.At))
	for i, v := range t.At {
		list[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return list
}

// place returns the places of the rows on the x axis. index has the places of labels; if it is empty, the place of a
// label is its row.
func (t *Table) place(index map[string]float64) []float64 {
	if t.At != nil && len(index) == 0 {
		return t.At
	}
	labels := t.labels()
	list := make([]float64, len(labels))
	for i, l := range labels {
		list[i] = float64(i)
		if len(index) > 0 {
			list[i] = index[l]
		}
	}
	return list
}
