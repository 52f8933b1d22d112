package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"e3/internal/human"
)

// printable is human.Printable: what comes from names, logs, records and messages goes through it.
func printable(s string, lines bool) string { return human.Printable(s, lines) }

// elapsed is human.Duration.
func elapsed(d time.Duration) string { return human.Duration(d) }

// seconds is elapsed for what moves on while it is looked at.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	}
	return elapsed(d)
}

// size is human.Bytes.
func size(n int64) string { return human.Bytes(n) }

// stamp shows a moment in local time, - where it is not known.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// short is the part of an id that tells runs of one machine apart.
func short(id string) string {
	if len(id) > 18 {
		return id[:18]
	}
	return id
}

// plural is human.Count.
func plural(n int64, what string) string { return human.Count(n, what) }

// ago is human.Ago.
func ago(now, t time.Time) string { return human.Ago(now, t) }

// columns is how many columns of a terminal printable text takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// clip cuts printable text to a number of columns and marks the cut.
func clip(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	if most <= 0 {
		return ""
	}
	n := 0
	for i, r := range s {
		if n += runeColumns(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// A table lines text up in columns, two spaces apart.
type table struct {
	rows  [][]string
	right map[int]bool // columns that are aligned to the right
}

// row adds a row; its cells are made printable.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c, false)
	}
	t.rows = append(t.rows, cells)
}

// write prints the rows, each after the indent.
func (t *table) write(w io.Writer, indent string) {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c))
		}
	}
	for _, row := range t.rows {
		line := indent
		for i, c := range row {
			if i > 0 {
				line += "  "
			}
			space := strings.Repeat(" ", widths[i]-columns(c))
			if t.right[i] {
				line += space + c
			} else {
				line += c + space
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// prefix is the beginning of a hash.
func prefix(id string, n int) string { return id[:min(len(id), n)] }
