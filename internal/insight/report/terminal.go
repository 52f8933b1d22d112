package report

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Segment is a text of one look. Class names the look: colours of terminals are classes of the style sheet, which fits
// them to a light or a dark page.
type Segment struct{ Class, Text string }

// look is the state of a terminal's colours.
type look struct {
	bold, dim, italic, under, inverse bool
	ink                               int // 1 to 16; 0: the default
}

func (l look) class() string {
	var words []string
	if l.bold {
		words = append(words, "t-bold")
	}
	if l.dim {
		words = append(words, "t-dim")
	}
	if l.italic {
		words = append(words, "t-italic")
	}
	if l.under {
		words = append(words, "t-under")
	}
	if l.inverse {
		words = append(words, "t-inverse")
	}
	if l.ink > 0 {
		words = append(words, "t-"+strconv.Itoa(l.ink-1))
	}
	return strings.Join(words, " ")
}

// Painter turns lines of a program's output into segments: colours are kept, other control sequences dropped, an
// overwritten line has its last text, and any other invisible character is U+FFFD. Colours go on in the next line, as in
// a terminal.
type Painter struct{ now look }

// Line returns the segments of the next line.
func (p *Painter) Line(data []byte) []Segment {
	var list []Segment
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			list = append(list, Segment{p.now.class(), text.String()})
			text.Reset()
		}
	}
	data = []byte(strings.TrimRight(string(data), "\r"))
	for len(data) > 0 {
		switch c := data[0]; {
		case c == 0x1b:
			flush()
			data = data[p.sequence(data):]
			continue
		case c == '\r':
			text.Reset()
			list = nil
			data = data[1:]
			continue
		}
		r, n := utf8.DecodeRune(data)
		if r != '\t' && !unicode.IsPrint(r) && !unicode.In(r, unicode.Zs) && r != '\u200d' && r != '\u200c' {
			r = unicode.ReplacementChar // also one that turns the direction of text
		}
		text.WriteRune(r)
		data = data[n:]
	}
	flush()
	return list
}

// sequence handles the control sequence at the beginning of data, and returns its length.
func (p *Painter) sequence(data []byte) int {
	if len(data) < 2 {
		return len(data)
	}
	switch data[1] {
	case '[':
		for i := 2; i < len(data); i++ {
			switch c := data[i]; {
			case c == 'm':
				p.colour(string(data[2:i]))
				return i + 1
			case c >= 0x40 && c <= 0x7e:
				return i + 1
			case c < 0x20 || c > 0x3f:
				return i // no sequence
			}
		}
		return len(data)
	case ']', 'P', 'X', '^', '_':
		for i := 2; i < len(data); i++ {
			if data[i] == 7 {
				return i + 1
			}
			if data[i] == 0x1b && i+1 < len(data) && data[i+1] == '\\' {
				return i + 2
			}
		}
		return len(data)
	}
	n := 1
	for n < len(data) && data[n] >= ' ' && data[n] <= '/' { // as in the choice of a character set
		n++
	}
	return min(n+1, len(data))
}

// colour applies the parameters of a sequence that ends with m.
func (p *Painter) colour(params string) {
	list := strings.FieldsFunc(params, func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		list = []string{"0"}
	}
	for i := 0; i < len(list); i++ {
		n, err := strconv.Atoi(list[i])
		if err != nil {
			return
		}
		switch {
		case n == 0:
			p.now = look{}
		case n == 1:
			p.now.bold = true
		case n == 2:
			p.now.dim = true
		case n == 3:
			p.now.italic = true
		case n == 4:
			p.now.under = true
		case n == 7:
			p.now.inverse = true
		case n == 22:
			p.now.bold, p.now.dim = false, false
		case n == 23:
			p.now.italic = false
		case n == 24:
			p.now.under = false
		case n == 27:
			p.now.inverse = false
		case n >= 30 && n <= 37:
			p.now.ink = n - 30 + 1
		case n >= 90 && n <= 97:
			p.now.ink = n - 90 + 9
		case n == 39:
			p.now.ink = 0
		case n == 38 || n == 48: // of a palette: the first 16 are ours, others have no class
			if i+2 < len(list) && list[i+1] == "5" {
				if at, err := strconv.Atoi(list[i+2]); err == nil && at >= 0 && at < 16 && n == 38 {
					p.now.ink = at + 1
				}
				i += 2
			} else {
				i += 4
			}
		}
	}
}

// Plain is a program's output as text without colours.
func Plain(data []byte) string {
	var p Painter
	var b strings.Builder
	for i, line := range bytes.Split(data, []byte("\n")) {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, s := range p.Line(line) {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}
