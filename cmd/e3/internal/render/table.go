// Package render formats results: tables, plots, JSON.
package render

import (
	"fmt"
	"io"
	"strings"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
)

// A Table lines text up in columns, two spaces apart.
type Table struct {
	Rows  [][]string
	Right map[int]bool // columns that are aligned to the right
	heads int          // header rows, written only if rows follow
}

// Row adds a row; its cells are made printable.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = human.Line(c)
	}
	t.Rows = append(t.Rows, cells)
}

// Write prints the rows, each after the indent.
func (t *Table) Write(w io.Writer, indent string) {
	if len(t.Rows) == t.heads {
		return
	}
	var widths []int
	for _, row := range t.Rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], term.Columns(c))
		}
	}
	for _, row := range t.Rows {
		line := indent
		for i, c := range row {
			if i > 0 {
				line += "  "
			}
			space := strings.Repeat(" ", widths[i]-term.Columns(c))
			if t.Right[i] {
				line += space + c
			} else {
				line += c + space
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}
