package render

import (
	"fmt"
	"io"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
)

// A Sheet is an answer as text, written from top to bottom: lines, labelled fields, tables. Quoted text is made printable;
// Fprint to a sheet writes its text as it is.
type Sheet struct {
	io.Writer
	Style term.Style
}

// labelWidth is the width of a field's label with its colon.
const labelWidth = 10

// Line writes a line.
func (s *Sheet) Line(format string, args ...any) {
	fmt.Fprintln(s, human.Line(fmt.Sprintf(format, args...)))
}

// Ink writes a line in a colour of the style, after an indent.
func (s *Sheet) Ink(indent int, color, format string, args ...any) {
	text := human.Line(fmt.Sprintf(format, args...))
	fmt.Fprintf(s, "%*s%s%s%s\n", indent, "", color, text, s.Style.EndOf(color))
}

// Section writes a heading after an empty line.
func (s *Sheet) Section(title string) {
	fmt.Fprintln(s)
	s.Ink(0, s.Style.Bold, "%s", title)
}

// Field writes a labelled line below a heading; a field without text is left out. A label has at most nine letters. A field
// without a label goes on with the field above.
func (s *Sheet) Field(label, format string, args ...any) {
	text := human.Line(fmt.Sprintf(format, args...))
	if text == "" {
		return
	}
	if label != "" {
		label += ":"
	}
	fmt.Fprintf(s, "  %-*s %s\n", labelWidth, label, text)
}

// Table writes a table, each row after the indent.
func (s *Sheet) Table(t *Table, indent string) { t.Write(s, indent) }
