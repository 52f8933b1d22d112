package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/figures"
	"e3/objectstore"
)

// Bounds of metrics.
const (
	maxKeys    = 400 // of one file
	maxColumns = 24  // columns of a table of several files
	maxValue   = 200 // bytes of a text
	maxCSVRows = 200
)

// Table is a table of numbers and words. For one file it has a line for each key; for the files of several items of a
// matrix, a line for each item.
type Table struct {
	Title  string
	Head   []string
	Rows   [][]Cell
	Note   string
	Number []bool  // columns that hold numbers
	Items  bool    // a line for each item of a matrix
	Best   [][]int // by column the lines with the best value, if a caller has ranked them
}

// Tasks is the number of tasks whose metrics the table has.
func (t *Table) Tasks() int {
	if t.Items {
		return len(t.Rows)
	}
	return 1
}

// Cell is a value: its text and, if it is a number, the number by which it is sorted.
type Cell struct {
	Text, Whole string // Whole where Text is rounded
	Number      bool
}

// TableOf reads a file of metrics or a table, whose format its name says, as a table; a note says why it is none.
func TableOf(name string, data []byte) Table {
	m := &metricSource{file: file{name: name}, values: map[string]Cell{}}
	m.read(data)
	if m.table != nil {
		return m.asTable()
	}
	return m.alone()
}

// metricSource is the content of one file.
type metricSource struct {
	file
	keys   []string
	values map[string]Cell
	table  *figures.Table // of a CSV or TSV file
	note   string
}

// readMetrics reads a file of metrics.
func (o *outputs) readMetrics(f file) error {
	m := &metricSource{file: f, values: map[string]Cell{}}
	if o.rows >= maxMetricRows {
		o.rows++
		return nil
	}
	o.metrics = append(o.metrics, m)
	if f.size > maxMetrics {
		m.note = fmt.Sprintf("%s are too large for this page; get them with: e3 get", human.Bytes(f.size))
		return nil
	}
	data, err := objectstore.ReadAll(o.b.ctx, o.b.s.Runs.Objects, f.hash, maxMetrics)
	if err != nil {
		return err
	}
	m.read(data)
	o.rows += max(len(m.keys), 1)
	if m.table != nil {
		o.rows += len(m.table.Rows)
	}
	return nil
}

// read parses a document: a table, or values by keys.
func (m *metricSource) read(data []byte) {
	doc, err := figures.Read(m.name, data)
	var list []figures.Value
	if err == nil {
		if t, ok := doc.Table(); ok && len(t.Rows) > 0 && len(t.Head) > 1 && len(t.Head) <= maxColumns {
			m.table = t
			return
		}
		list, err = doc.Values(true)
	}
	if err != nil {
		m.note = visible(human.Truncate(err.Error(), 200))
		return
	}
	for _, v := range list {
		if v.Key == "" {
			m.note = "it has no keys"
			return
		}
		if v.List != nil {
			m.set(v.Key, Cell{Text: visible(human.Truncate(listText(v.List), maxValue))})
			continue
		}
		m.set(v.Key, scalar(v.JSON))
	}
}

// listText is a list in a cell: its values if they are few and none is a list or a mapping.
func listText(list []json.RawMessage) string {
	const few = 8
	words := make([]string, len(list))
	for i, v := range list {
		if v == nil || len(list) > few {
			return human.Count(len(list), "value")
		}
		words[i] = human.Truncate(scalar(v).Text, maxValue)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (m *metricSource) set(key string, c Cell) {
	key = visible(human.Truncate(key, maxValue))
	if _, twice := m.values[key]; !twice {
		if len(m.keys) >= maxKeys {
			m.note = fmt.Sprintf("only the first %d keys are shown", maxKeys)
			return
		}
		m.keys = append(m.keys, key)
	}
	m.values[key] = c
}

// scalar is the cell of a value in JSON.
func scalar(v json.RawMessage) Cell {
	switch _, ok := figures.Number(v); {
	case ok && v[0] == '"': // NaN and infinities
		return Cell{Text: figures.Text(v), Number: true}
	case v[0] == '-' || v[0] >= '0' && v[0] <= '9': // 1e999 too
		return number(string(v))
	}
	var text string
	if json.Unmarshal(v, &text) == nil && v[0] == '"' {
		return Cell{Text: visible(human.Truncate(text, maxValue))}
	}
	return Cell{Text: visible(human.Truncate(string(v), maxValue))}
}

// textCell is the cell of a text of a table.
func textCell(text string) Cell {
	c := scalar(figures.Cell(text))
	if !c.Number {
		c.Text = visible(human.Truncate(text, maxValue))
	}
	return c
}

// number shortens a number, and keeps the full text in Whole.
func number(text string) Cell {
	text = human.Truncate(text, maxValue)
	c := Cell{Text: figures.Short(json.RawMessage(text)), Number: true}
	if c.Text != text {
		c.Whole = text
	}
	return c
}

// tables lays out all metrics: the files of a matrix in one table, each other file in a table of its own.
func (o *outputs) tables() []Table {
	var list []Table
	groups := map[string][]*metricSource{}
	var order []string
	for _, m := range o.metrics {
		name := m.task + "\x00" + m.name
		if matrixOf(m.task) != "" {
			m.single()
		}
		if base := matrixOf(m.task); base != "" && m.table == nil && len(m.keys) > 0 {
			name = base + "\x00" + m.name
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], m)
	}
	for _, name := range order {
		g := groups[name]
		switch {
		case len(g) > 1:
			base, _, _ := strings.Cut(name, "\x00")
			list = append(list, sideBySide(visible(base)+" · "+visible(g[0].name), g))
		case g[0].table != nil:
			list = append(list, g[0].asTable())
		default:
			list = append(list, g[0].alone())
		}
	}
	if o.rows > maxMetricRows {
		o.note("Some metrics are left out to keep the page small; get them with: e3 get")
	}
	return list
}

// single turns a table with one line into keys, so that it fits into the table of its matrix.
func (m *metricSource) single() {
	if m.table == nil || len(m.table.Rows) != 1 {
		return
	}
	t := m.table
	m.table = nil
	for i, text := range t.Rows[0] {
		m.set(t.Head[i], textCell(text))
	}
}

func (m *metricSource) title() string { return visible(m.task) + " · " + visible(m.name) }

func (m *metricSource) alone() Table {
	t := Table{Title: m.title(), Note: m.note}
	if len(m.keys) == 0 {
		if t.Note == "" {
			t.Note = "it has no keys"
		}
		return t
	}
	t.Head, t.Number = []string{"metric", "value"}, []bool{false, true}
	for _, k := range m.keys {
		t.Rows = append(t.Rows, []Cell{{Text: k}, m.values[k]})
		t.Number[1] = t.Number[1] && m.values[k].Number
	}
	return t
}

func (m *metricSource) asTable() Table {
	t := Table{Title: m.title(), Note: m.note}
	for _, h := range m.table.Head {
		t.Head = append(t.Head, visible(human.Truncate(h, maxValue)))
		t.Number = append(t.Number, true)
	}
	lines := m.table.Rows
	if len(lines) > maxCSVRows {
		t.Note = fmt.Sprintf("the first %d of %d lines", maxCSVRows, len(lines))
		lines = lines[:maxCSVRows]
	}
	for _, line := range lines {
		row := make([]Cell, len(line))
		for i, text := range line {
			row[i] = textCell(text)
			t.Number[i] = t.Number[i] && row[i].Number
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sideBySide has a line for each item and a column for each key.
func sideBySide(title string, g []*metricSource) Table {
	t := Table{Title: title, Head: []string{"task"}, Number: []bool{false}, Items: true}
	var keys []string
	left := map[string]bool{}
	for _, m := range g {
		for _, k := range m.keys {
			switch {
			case slices.Contains(keys, k):
			case len(keys) < maxColumns:
				keys = append(keys, k)
			default:
				left[k] = true
			}
		}
	}
	for _, k := range keys {
		t.Head, t.Number = append(t.Head, k), append(t.Number, true)
	}
	for _, m := range g {
		row := []Cell{{Text: visible(m.task)}}
		for i, k := range keys {
			c, ok := m.values[k]
			row = append(row, c)
			t.Number[i+1] = t.Number[i+1] && (c.Number || !ok)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(left) > 0 {
		t.Note = fmt.Sprintf("the first %d of %d keys", maxColumns, maxColumns+len(left))
	}
	return t
}
