package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"e3/internal/human"
	"e3/objectstore"
)

// Bounds of metrics.
const (
	maxKeys    = 400 // of one file
	maxColumns = 24  // columns of a table of several files
	maxDepth   = 32
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
	Number []bool // columns that hold numbers
}

// Cell is a value: its text and, if it is a number, the number by which it is sorted.
type Cell struct {
	Text, Whole string // Whole where Text is rounded
	Number      bool
}

// TableOf reads a JSON object, or a CSV table with a header, as a table; a note says why it is none.
func TableOf(data []byte) Table {
	m := &metricSource{values: map[string]Cell{}}
	m.read(data)
	if m.table != nil {
		return m.csv()
	}
	return m.alone()
}

// metricSource is the content of one file.
type metricSource struct {
	file
	keys   []string
	values map[string]Cell
	table  [][]string // of a CSV file
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
	o.rows += max(len(m.keys), len(m.table), 1)
	return nil
}

// read parses a JSON object, or a CSV table with a header.
func (m *metricSource) read(data []byte) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	err := m.json(data)
	if err == nil {
		return
	}
	m.keys, m.values = nil, map[string]Cell{}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '{' && trimmed[0] != '[' {
		if table, bad := csv.NewReader(bytes.NewReader(data)).ReadAll(); bad == nil && len(table) > 1 && len(table[0]) > 1 && len(table[0]) <= maxColumns {
			m.table = table
			return
		}
	}
	m.note = "no JSON object: " + visible(human.Truncate(err.Error(), 200))
}

func (m *metricSource) json(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	tok, err := d.Token()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case err != nil:
		return err
	case tok != json.Delim('{'):
		return errors.New("it begins with something else")
	}
	if err := m.object(d, "", 0); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows after its end")
	}
	return nil
}

// object reads the members of an object after its opening brace; keys of nested objects are joined by dots.
func (m *metricSource) object(d *json.Decoder, prefix string, depth int) error {
	if depth > maxDepth {
		return errors.New("it nests too deep")
	}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := tok.(string)
		if prefix != "" {
			key = prefix + "." + key
		}
		if err := m.value(d, key, depth); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (m *metricSource) value(d *json.Decoder, key string, depth int) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch tok {
	case json.Delim('{'):
		return m.object(d, key, depth+1)
	case json.Delim('['):
		n, words, err := array(d, depth)
		if err != nil {
			return err
		}
		text := "[" + strings.Join(words, ", ") + "]"
		if words == nil && n > 0 {
			text = human.Count(n, "value")
		}
		m.set(key, Cell{Text: visible(human.Truncate(text, maxValue))})
		return nil
	}
	m.set(key, scalar(tok))
	return nil
}

// array reads an array after its opening bracket. It returns the values as words if they are few and none is an object
// or an array.
func array(d *json.Decoder, depth int) (n int, words []string, err error) {
	const few = 8
	words = []string{}
	for inside := 1; inside > 0; {
		tok, err := d.Token()
		if err != nil {
			return 0, nil, err
		}
		switch tok {
		case json.Delim('['), json.Delim('{'):
			if inside == 1 {
				n++
			}
			if inside++; inside+depth > maxDepth {
				return 0, nil, errors.New("it nests too deep")
			}
			words = nil
		case json.Delim(']'), json.Delim('}'):
			inside--
		default:
			if inside > 1 {
				continue
			}
			if n++; n > few {
				words = nil
			}
			if words != nil {
				words = append(words, human.Truncate(scalar(tok).Text, maxValue))
			}
		}
	}
	return n, words, nil
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

func scalar(tok json.Token) Cell {
	switch v := tok.(type) {
	case json.Number:
		return number(v.String())
	case string:
		return Cell{Text: visible(human.Truncate(v, maxValue))}
	case nil:
		return Cell{Text: "null"}
	default:
		return Cell{Text: fmt.Sprint(v)}
	}
}

// number shortens a number to six digits, and keeps the full text in Whole.
func number(text string) Cell {
	text = human.Truncate(text, maxValue)
	c := Cell{Text: text, Number: true}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return c
	}
	if strings.ContainsAny(text, ".eE") {
		if short := strconv.FormatFloat(f, 'g', 6, 64); len(short) < len(text) {
			c.Text, c.Whole = short, text
		}
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
			list = append(list, g[0].csv())
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
	if len(m.table) != 2 {
		return
	}
	head, line := m.table[0], m.table[1]
	m.table = nil
	for i, text := range line {
		c := Cell{Text: visible(human.Truncate(text, maxValue))}
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			c = number(text)
		}
		m.set(head[i], c)
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

func (m *metricSource) csv() Table {
	t := Table{Title: m.title(), Note: m.note}
	for _, h := range m.table[0] {
		t.Head = append(t.Head, visible(human.Truncate(h, maxValue)))
		t.Number = append(t.Number, true)
	}
	lines := m.table[1:]
	if len(lines) > maxCSVRows {
		t.Note = fmt.Sprintf("the first %d of %d lines", maxCSVRows, len(lines))
		lines = lines[:maxCSVRows]
	}
	for _, line := range lines {
		row := make([]Cell, len(line))
		for i, text := range line {
			row[i] = Cell{Text: visible(human.Truncate(text, maxValue))}
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				row[i] = number(text)
			}
			t.Number[i] = t.Number[i] && row[i].Number
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sideBySide has a line for each item and a column for each key.
func sideBySide(title string, g []*metricSource) Table {
	t := Table{Title: title, Head: []string{"task"}, Number: []bool{false}}
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
