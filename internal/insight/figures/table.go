package figures

import (
	"encoding/json"
)

// Bounds of a table that is made of a list of objects.
const (
	maxColumns = 1000
	maxCells   = 4 << 20
)

// Table is the table of a CSV or TSV file; false for another document.
func (d *Document) Table() (*Table, bool) { return d.table, d.table != nil }

// Tables returns the tables of a document: that of a CSV or TSV file, or each list of objects, in its order. The columns of a
// list are in the order of their first appearance.
func (d *Document) Tables() []*Table {
	if d.table != nil {
		return []*Table{d.table}
	}
	return tables(d.root, nil)
}

func tables(v any, found []*Table) []*Table {
	switch v := v.(type) {
	case object:
		for i := range v {
			found = tables(v[i].value, found)
		}
	case []any:
		if t := tableOf(v); t != nil {
			return append(found, t)
		}
		for i := range v {
			found = tables(v[i], found)
		}
	}
	return found
}

// tableOf is the table of a list of objects; nil for another list.
func tableOf(list []any) *Table {
	t := &Table{}
	at := map[string]int{}
	cells := 0
	for _, item := range list {
		o, ok := item.(object)
		if !ok {
			return nil
		}
		row := make([]string, len(t.Head))
		for i := range o {
			c, known := at[o[i].name]
			if !known {
				c = len(t.Head)
				at[o[i].name], t.Head, row = c, append(t.Head, o[i].name), append(row, "")
			}
			row[c] = cellText(o[i].value)
		}
		if cells += len(row); len(t.Head) > maxColumns || cells > maxCells {
			return nil
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// cellText is a value as the text of a cell.
func cellText(v any) string {
	switch v := v.(type) {
	case object:
		return "{…}"
	case []any:
		return "[…]"
	case json.RawMessage:
		var text string
		if json.Unmarshal(v, &text) == nil { // null leaves it empty
			return text
		}
		return string(v)
	}
	return ""
}
