package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// printable makes text safe for a terminal: control characters, which move the cursor
// or worse, are shown as escapes. lines keeps newlines and tabs.
func printable(s string, lines bool) string {
	clean := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsPrint(r) || lines && (r == '\n' || r == '\t'))
	}
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case clean(r):
			b.WriteRune(r)
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			q := fmt.Sprintf("%+q", r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// elapsed shows a duration as people say it: 8ms, 12.3s, 4m05s, 2h03m.
func elapsed(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// seconds is elapsed for what moves on while it is looked at.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	}
	return elapsed(d)
}

// size shows bytes in units of 1024.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 1023.95 && unit < 5 {
		f /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %s", f, [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit])
}

// stamp shows a moment in local time.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// short is the part of an id that tells runs of one machine apart.
func short(id string) string {
	if len(id) > 18 {
		return id[:18]
	}
	return id
}

// plural is "1 task", "2 tasks".
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

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
