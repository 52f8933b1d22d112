// Package plot draws tables of numbers as line charts in SVG. The tables of several tasks, such as the items of a
// matrix, become one chart with a line for each.
package plot

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"e3/internal/human"
)

// Bounds of a table.
const (
	maxColumns = 24
	maxRows    = 100_000
	maxName    = 60 // bytes of a column's name
	tiny       = 1e-290
)

// A Table is the content of a plot: the first column is the x axis, each other column with a number a line.
type Table struct {
	X      string   // the name of the first column
	Labels []string // its texts, unless At has it as numbers
	At     []float64
	Names  []string    // of the other columns
	Values [][]float64 // by column and row; NaN: none
}

// Read reads a CSV or TSV table with a header, or a JSON list of objects. It reports false for other content, and for
// a table without a column of numbers beside the first.
func Read(data []byte) (*Table, bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := bytes.TrimSpace(data)
	if len(text) == 0 || !utf8.Valid(text) || text[0] == '<' {
		return nil, false
	}
	if text[0] == '[' {
		head, rows, ok := objects(text)
		return tableOf(head, rows, ok)
	}
	r := csv.NewReader(bytes.NewReader(data))
	if line, _, _ := bytes.Cut(text, []byte("\n")); bytes.Contains(line, []byte("\t")) {
		r.Comma = '\t'
	}
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, false
	}
	return tableOf(rows[0], rows[1:], true)
}

// objects reads a JSON list of flat objects; the columns are in the order of their first appearance.
func objects(data []byte) (head []string, rows [][]string, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil || len(list) > maxRows {
		return nil, nil, false
	}
	at := map[string]int{}
	for _, item := range list {
		d := json.NewDecoder(bytes.NewReader(item))
		d.UseNumber()
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return nil, nil, false
		}
		row := make([]string, len(head))
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, nil, false
			}
			v, err := d.Token()
			if _, nested := v.(json.Delim); nested || err != nil {
				return nil, nil, false
			}
			name := key.(string)
			i, known := at[name]
			if !known {
				if i = len(head); i >= maxColumns {
					return nil, nil, false
				}
				at[name], head, row = i, append(head, name), append(row, "")
			}
			switch v := v.(type) {
			case json.Number:
				row[i] = v.String()
			case string:
				row[i] = v
			case bool:
				row[i] = strconv.FormatBool(v)
			}
		}
		rows = append(rows, row)
	}
	return head, rows, true
}

func tableOf(head []string, rows [][]string, ok bool) (*Table, bool) {
	if !ok || len(head) < 2 || len(head) > maxColumns || len(rows) == 0 || len(rows) > maxRows {
		return nil, false
	}
	t := &Table{X: name(head[0])}
	column := func(c int) (list []float64, numbers, others int) {
		list = make([]float64, len(rows))
		for i, row := range rows {
			list[i] = math.NaN()
			if c >= len(row) || strings.TrimSpace(row[c]) == "" {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(row[c]), 64)
			switch {
			case err != nil && !errors.Is(err, strconv.ErrRange), math.Abs(v) > 1/tiny:
				others++
				continue
			case math.Abs(v) < tiny: // the distance of ticks stays a normal number
				v = 0
			}
			if list[i] = v; !math.IsNaN(v) {
				numbers++
			}
		}
		return list, numbers, others
	}
	at, numbers, _ := column(0)
	if numbers == len(rows) {
		t.At = at
	} else {
		for _, row := range rows {
			label := ""
			if len(row) > 0 {
				label = name(row[0])
			}
			t.Labels = append(t.Labels, label)
		}
	}
	for c := 1; c < len(head); c++ {
		if list, numbers, others := column(c); numbers > 0 && others == 0 {
			t.Names, t.Values = append(t.Names, name(head[c])), append(t.Values, list)
		}
	}
	return t, len(t.Names) > 0
}

// name makes a text from a file fit for a chart.
func name(s string) string { return human.Line(human.Truncate(strings.TrimSpace(s), maxName)) }

// An Item is the table of one task; its name names the line.
type Item struct {
	Name string
	*Table
}

// A Chart is a set of lines over one x axis.
type Chart struct {
	X, Y   string
	Labels []string // of the x axis: x is an index of them; nil: x is a number
	Lines  []Line
}

// A Line is a line of a chart. NaN in X or Y breaks it.
type Line struct {
	Name string
	X, Y []float64
}

// Alone draws the table of one task: a chart with a line for each column.
func Alone(t *Table) *Chart {
	c := &Chart{X: t.X, Labels: t.Labels}
	for i, name := range t.Names {
		c.Lines = append(c.Lines, Line{Name: name, X: t.place(nil), Y: t.Values[i]})
	}
	if len(c.Lines) == 1 {
		c.Y, c.Lines[0].Name = c.Lines[0].Name, ""
	}
	return c
}

// Together draws the tables of several tasks: a chart for each column, with a line for each task that has it.
func Together(items []Item) []*Chart {
	var labels []string
	index := map[string]float64{}
	words := false
	var names []string
	seen := map[string]bool{}
	for _, it := range items {
		words = words || it.At == nil
		for _, n := range it.Names {
			if !seen[n] {
				seen[n], names = true, append(names, n)
			}
		}
	}
	if words {
		for _, it := range items {
			for _, l := range it.labels() {
				if _, ok := index[l]; !ok {
					index[l], labels = float64(len(labels)), append(labels, l)
				}
			}
		}
	}
	var charts []*Chart
	for _, n := range names[:min(len(names), maxColumns)] {
		c := &Chart{X: items[0].X, Y: n, Labels: labels}
		for _, it := range items {
			i := slices.Index(it.Names, n)
			if i < 0 {
				continue
			}
			c.Lines = append(c.Lines, Line{Name: it.Name, X: it.place(index), Y: it.Values[i]})
		}
		charts = append(charts, c)
	}
	return charts
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

// place returns the places of the rows on the x axis. index has the places of labels; nil: the place of a label is
// its row.
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
