package compare

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/figures"
)

// Sides reads sides as a command line names them, each once; a pattern such as exp* stands for the workspaces that it
// matches. names lists all workspaces, and is called only for a pattern.
func Sides(texts []string, names func() ([]string, error)) ([]Side, error) {
	var sides []Side
	add := func(s Side) {
		if !slices.Contains(sides, s) {
			sides = append(sides, s)
		}
	}
	var known []string
	for _, text := range texts {
		if !strings.ContainsAny(text, "*?") {
			s, err := ParseSide(text, "")
			if err != nil {
				return nil, err
			}
			add(s)
			continue
		}
		if known == nil {
			list, err := names()
			if err != nil {
				return nil, err
			}
			known = slices.Sorted(slices.Values(list))
		}
		found := false
		for _, name := range known {
			if ok, err := path.Match(text, name); err == nil && ok {
				found = true
				add(Side{Workspace: name})
			}
		}
		if !found {
			return nil, &human.UnknownError{What: "workspace", Name: text, Known: known}
		}
	}
	return sides, nil
}

// HasItems reports whether rows need a column for their items. Labels that name their dimensions need none, because
// each dimension has a column of its own.
func (t *Table) HasItems() bool {
	return slices.ContainsFunc(t.Rows, func(r *TableRow) bool { return r.Item != "" && !strings.Contains(r.Item, "=") })
}

// Plain is a value of a table as people write it: a string without quotes.
func Plain(v json.RawMessage) string {
	var text string
	if err := json.Unmarshal(v, &text); err == nil {
		return text
	}
	return string(v)
}

// Leads are the names of the columns before the metrics: the side, the item if rows need one, and the parameters.
func (t *Table) Leads() []string {
	list := []string{"side"}
	if t.HasItems() {
		list = append(list, "item")
	}
	return append(list, t.Params...)
}

// Lead are the texts of a row in the columns that [Table.Leads] names.
func (t *Table) Lead(r *TableRow) []string {
	list := []string{r.Side}
	if t.HasItems() {
		list = append(list, r.Item)
	}
	for _, name := range t.Params {
		list = append(list, Plain(r.Params[name]))
	}
	return list
}

// Plain is a value of a row by the name of its column, which means the same as for sorting; "" if there is none. The time is
// in seconds.
func (r *TableRow) Plain(column string) string {
	switch {
	case column == "side":
		return r.Side
	case column == "item":
		return r.Item
	case column == "time" && r.Ms > 0:
		return strconv.FormatFloat(r.Time().Seconds(), 'f', -1, 64)
	case r.Metrics[column] != nil:
		return Plain(r.Metrics[column])
	}
	return Plain(r.Params[column])
}

// Bare are the rows without a metric, if others have some: they say nothing beside these.
func (t *Table) Bare() map[int]bool {
	bare := map[int]bool{}
	for i, r := range t.Rows {
		if len(r.Metrics) == 0 {
			bare[i] = true
		}
	}
	if len(bare) == len(t.Rows) {
		return nil
	}
	return bare
}

// BareNote names the rows without a metric, with the reasons that are known; "" if there are none.
func (t *Table) BareNote() string {
	var parts []string
	bare := t.Bare()
	for _, g := range t.alike(func(i int) []string { return []string{strings.Join(t.Rows[i].Notes, "; ")} }, func(i int) bool { return bare[i] }) {
		text := human.Few(g.rows)
		if g.note != "" {
			text += " (" + g.note + ")"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "Without metrics: " + strings.Join(parts, "; ")
}

// Remarks are the notes of rows that are in the table; rows with the same note share it.
func (t *Table) Remarks() []string {
	var list []string
	bare := t.Bare()
	for _, g := range t.alike(func(i int) []string { return t.Rows[i].Notes }, func(i int) bool { return !bare[i] }) {
		list = append(list, human.Few(g.rows)+": "+g.note)
	}
	return list
}

// noted are rows with the same note.
type noted struct {
	note string
	rows []string
}

// alike gathers rows by their notes, in the order of the first of each.
func (t *Table) alike(notes func(int) []string, of func(int) bool) (list []noted) {
	at := map[string]int{}
	for i, r := range t.Rows {
		if !of(i) {
			continue
		}
		for _, note := range notes(i) {
			k, known := at[note]
			if !known {
				k = len(list)
				at[note] = k
				list = append(list, noted{note: note})
			}
			list[k].rows = append(list[k].rows, strings.TrimSpace(r.Side+" "+r.Item))
		}
	}
	return list
}

// Cells are the texts of a metric in all rows: short, and with the number of columns that must follow each, set flush right,
// so that the points of numbers stand below each other.
func (t *Table) Cells(c *Column) (texts []string, pads []int) {
	texts = make([]string, len(t.Rows))
	for i, r := range t.Rows {
		v := r.Metrics[c.Name]
		if _, ok := figures.Number(v); ok {
			texts[i] = figures.Short(v)
		} else {
			texts[i] = Plain(v)
		}
	}
	return texts, figures.Pads(texts)
}
