// Package term detects the abilities and the width of terminals, and filters text that must not reach them.
package term

import (
	"io"
	"os"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"e3/internal/human"
)

// Of returns w as a terminal, nil if it is none.
func Of(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Smart reports whether control sequences can be written to w.
func Smart(w io.Writer, getenv func(string) string) bool {
	return Of(w) != nil && getenv("TERM") != "dumb"
}

// Width is the width of the terminal w; 80 if w is none or its width is unknown.
func Width(w io.Writer) int {
	if f := Of(w); f != nil {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// ASCII reports whether non-ASCII characters may be shown wrongly, on a screen or after a pipe: by the locale, or by a
// terminal that is known to have few characters.
func ASCII(getenv func(string) string) bool {
	switch getenv("TERM") {
	case "dumb", "linux", "vt100", "vt220":
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return runtime.GOOS != "darwin" // where having no locale, and UTF-8, is usual
}

// Columns is the number of columns that printable text takes on a terminal.
func Columns(s string) int {
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

// Truncate cuts printable text to a number of columns and marks the cut.
func Truncate(s string, most int) string {
	if Columns(s) <= most {
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

// Middle cuts a name to a number of columns, in its middle: names differ most at their ends, where the item of a matrix
// stands.
func Middle(s string, most int) string {
	if Columns(s) <= most || most < 3 {
		return Truncate(s, most)
	}
	tail, end := 0, len(s)
	if item := strings.LastIndexByte(s, '['); item > 0 && Columns(s[item:]) <= (most-1)*2/3 {
		tail, end = Columns(s[item:]), item
	} else {
		for end > 0 {
			r, n := utf8.DecodeLastRuneInString(s[:end])
			if tail+runeColumns(r) > (most-1)/2 {
				break
			}
			tail, end = tail+runeColumns(r), end-n
		}
	}
	return Truncate(s, most-tail) + s[end:]
}

// Style holds the escape sequences of colours, all empty if there are no colours.
type Style struct{ Red, Green, Yellow, Cyan, Dim, Bold, Reset string }

func (s Style) EndOf(color string) string {
	if color == "" {
		return ""
	}
	return s.Reset
}

// StyleFor decides about colour: the flag, then NO_COLOR and FORCE_COLOR, then whether w
// is a terminal.
func StyleFor(w io.Writer, color string, getenv func(string) string) Style {
	on := Smart(w, getenv)
	if getenv("NO_COLOR") != "" {
		on = false
	} else if getenv("FORCE_COLOR") != "" {
		on = true
	}
	switch color {
	case "always":
		on = true
	case "never":
		on = false
	}
	if !on {
		return Style{}
	}
	return Style{Red: "\x1b[31m", Green: "\x1b[32m", Yellow: "\x1b[33m", Cyan: "\x1b[36m", Dim: "\x1b[2m", Bold: "\x1b[1m", Reset: "\x1b[0m"}
}

// Tone is the colour of a status, as pages and drawings have it.
func (s Style) Tone(status string) string {
	switch human.LookOf(status).Tone {
	case human.Good:
		return s.Green
	case human.Bad:
		return s.Red
	case human.Shaken, human.Held:
		return s.Yellow
	case human.Busy:
		return s.Cyan
	case human.Reused, human.Quiet, human.Absent:
		return s.Dim
	}
	return ""
}
