package term

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A SafeWriter passes text to a terminal without what could harm it or hide text. Of all control sequences only colours and
// emphasis pass (SGR), and of these no background, no concealment, and no colour that may be the terminal's own background.
// Newlines, tabs and carriage returns stay; other control characters, C1 included, characters that turn the direction of text,
// and invalid UTF-8 show as U+FFFD. A sequence may be split over several writes. Close resets the colours.
type SafeWriter struct {
	To     io.Writer
	Colors bool

	state   safeState
	seq     []byte // the sequence, or the rune, so far
	colored bool
	out     []byte
}

type safeState int

const (
	safeText      safeState = iota
	safeRune                // inside a multi-byte character
	safeEscape              // after ESC
	safeCSI                 // after ESC [
	safeCSIOther            // a CSI that will be dropped
	safeString              // OSC, DCS, SOS, PM, APC: up to ST, or BEL
	safeStringEsc           // ESC inside such a string
	safeCharset             // after ESC and an intermediate: up to the final byte
)

// longestSGR bounds a colour sequence.
const longestSGR = 64

// replacement is shown in place of unprintable bytes.
const replacement = "\uFFFD"

// Write filters p. Like every writer it returns the number of bytes that it accepted, not of those that it passed on.
func (s *SafeWriter) Write(p []byte) (int, error) {
	s.out = s.out[:0]
	for _, c := range p {
		s.take(c)
	}
	if _, err := s.To.Write(s.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close resets open colours.
func (s *SafeWriter) Close() error {
	s.out = s.out[:0]
	if s.state == safeRune {
		s.out = append(s.out, replacement...)
	}
	if s.colored {
		s.out = append(s.out, "\x1b[0m"...)
	}
	s.state, s.colored = safeText, false
	_, err := s.To.Write(s.out)
	return err
}

func (s *SafeWriter) take(c byte) {
	if s.state != safeText && s.state != safeRune {
		switch c {
		case 0x18, 0x1a: // CAN and SUB end every sequence
			s.state = safeText
			return
		case 0x1b:
			if s.state == safeString {
				s.state = safeStringEsc
			} else {
				s.state = safeEscape
			}
			return
		}
	}
	switch s.state {
	case safeText:
		s.text(c)
	case safeRune:
		s.continuation(c)
	case safeEscape:
		s.escape(c)
	case safeCSI, safeCSIOther:
		s.csi(c)
	case safeString:
		if c == 0x07 {
			s.state = safeText
		} else if c == '\n' { // it was none: a log is not to vanish in it
			s.state = safeText
			s.text(c)
		}
	case safeStringEsc:
		if c == '\\' {
			s.state = safeText
		} else {
			s.escape(c)
		}
	case safeCharset:
		if c < 0x20 || c > 0x7e {
			s.state = safeText
			s.text(c)
		} else if c > 0x2f {
			s.state = safeText
		}
	}
}

func (s *SafeWriter) text(c byte) {
	switch {
	case c == 0x1b:
		s.state = safeEscape
	case c == '\n', c == '\t', c == '\r', c >= 0x20 && c < 0x7f:
		s.out = append(s.out, c)
	case c >= 0xc2 && c <= 0xf4:
		s.state, s.seq = safeRune, append(s.seq[:0], c)
	default:
		s.out = append(s.out, replacement...)
	}
}

// continuation adds a byte to a character of several bytes.
func (s *SafeWriter) continuation(c byte) {
	if c&0xc0 != 0x80 { // the character is cut off
		s.state = safeText
		s.out = append(s.out, replacement...)
		s.text(c)
		return
	}
	s.seq = append(s.seq, c)
	if !utf8.FullRune(s.seq) {
		return
	}
	s.state = safeText
	if r, _ := utf8.DecodeRune(s.seq); r == utf8.RuneError || r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029 || r >= 0xe0000 && r < 0xe0080 {
		s.out = append(s.out, replacement...)
	} else {
		s.out = append(s.out, s.seq...)
	}
}

// escape handles the byte after an ESC.
func (s *SafeWriter) escape(c byte) {
	switch {
	case c == '[':
		s.state, s.seq = safeCSI, append(s.seq[:0], "\x1b["...)
	case c == ']', c == 'P', c == 'X', c == '^', c == '_':
		s.state = safeString
	case c >= 0x20 && c <= 0x2f:
		s.state = safeCharset
	case c < 0x20 || c > 0x7e:
		s.state = safeText
		s.text(c)
	default: // ESC and one byte
		s.state = safeText
	}
}

// visible returns a colour sequence with those of its parameters that cannot hide text; "" if there are none.
func visible(params string) string {
	if params == "" {
		return "\x1b[m"
	}
	var keep []string
	list := strings.Split(params, ";")
	for i := 0; i < len(list); i++ {
		n, err := strconv.Atoi(list[i])
		switch {
		case list[i] == "":
			n = 0
		case err != nil: // a colour with colons
			continue
		}
		switch {
		case n == 38, n == 48, n == 58: // of a palette, or by its parts
			if i+1 < len(list) && list[i+1] == "5" {
				i += 2
			} else if i+1 < len(list) && list[i+1] == "2" {
				i += 4
			}
		case n == 0, n == 1, n == 3, n == 4, n == 7, n >= 22 && n <= 24, n == 27, n >= 31 && n <= 36, n == 39, n >= 90 && n <= 96:
			keep = append(keep, strconv.Itoa(n))
		}
	}
	if keep == nil {
		return ""
	}
	return "\x1b[" + strings.Join(keep, ";") + "m"
}

func (s *SafeWriter) csi(c byte) {
	switch {
	case c < 0x20 || c > 0x7e: // it was none
		s.state = safeText
		s.text(c)
	case c >= 0x40 && c <= 0x7e:
		if s.state == safeCSI && c == 'm' && s.Colors {
			if seq := visible(string(s.seq[2:])); seq != "" {
				s.out = append(s.out, seq...)
				s.colored = true
			}
		}
		s.state = safeText
	case s.state == safeCSI && len(s.seq) < longestSGR && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		s.seq = append(s.seq, c)
	default:
		s.state = safeCSIOther
	}
}
