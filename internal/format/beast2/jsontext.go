package beast2

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxJSONDepth is sufficient for every value that Decode accepts: a level of the value takes at most four levels of
// JSON (a definition, its array, an entry, a variant).
const maxJSONDepth = 4*maxDepth + 16

// A jsonKind is the kind of a piece of JSON. Its zero value means no JSON.
type jsonKind uint8

const (
	jsonNull jsonKind = iota + 1
	jsonBool
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

func (k jsonKind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// A jsonValue is a piece of JSON with its numbers as written and members in order.
// encoding/json would replace unpaired surrogates, drop repeated members, and stop at 10,000
// levels.
type jsonValue struct {
	kind  jsonKind
	text  string      // the string, the number as written, or true or false
	items []jsonValue // elements, or the values of members
	names []string    // names of members
}

// parseJSON reads one JSON text (RFC 8259). In strings an unpaired high surrogate is dropped, as the reference drops it
// when it writes beast2, and an unpaired low surrogate becomes three bytes.
func parseJSON(data []byte) (jsonValue, error) {
	if !utf8.Valid(data) {
		return jsonValue{}, &SyntaxError{invalidOffset(data), "JSON is not UTF-8"}
	}
	p := jsonParser{data: data}
	p.space()
	var v jsonValue
	p.value(&v)
	p.space()
	if p.off < len(p.data) {
		p.fail("JSON goes on after its value")
	}
	return v, p.err
}

func invalidOffset(data []byte) int {
	i := 0
	for i < len(data) {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// A jsonParser stops at the first fault: it then treats the rest as empty.
type jsonParser struct {
	data  []byte
	off   int
	depth int
	err   error
}

func (p *jsonParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &SyntaxError{p.off, fmt.Sprintf(format, args...)}
		p.data = p.data[:p.off]
	}
}

// peek returns the next byte, or 0 at the end.
func (p *jsonParser) peek() byte {
	if p.off < len(p.data) {
		return p.data[p.off]
	}
	return 0
}

func (p *jsonParser) space() {
	for c := p.peek(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = p.peek() {
		p.off++
	}
}

// accept reads c and the white space after it, if c is next.
func (p *jsonParser) accept(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.off++
	p.space()
	return true
}

// value reads into v and does not return it, since JSON may nest deeply and stack frames should be small.
func (p *jsonParser) value(v *jsonValue) {
	switch c := p.peek(); {
	case c == '{':
		v.kind = jsonObject
		p.composite(v, '}')
	case c == '[':
		v.kind = jsonArray
		p.composite(v, ']')
	case c == '"':
		v.kind = jsonString
		v.text = p.string()
	case c == '-' || '0' <= c && c <= '9':
		v.kind = jsonNumber
		v.text = p.number()
	case c == 'n':
		v.kind = jsonNull
		v.text = p.word("null")
	case c == 't':
		v.kind = jsonBool
		v.text = p.word("true")
	case c == 'f':
		v.kind = jsonBool
		v.text = p.word("false")
	default:
		p.unexpected("a JSON value")
	}
}

func (p *jsonParser) word(w string) string {
	if !bytes.HasPrefix(p.data[p.off:], []byte(w)) {
		p.unexpected("a JSON value")
		return ""
	}
	p.off += len(w)
	return w
}

func (p *jsonParser) unexpected(want string) {
	if p.off == len(p.data) {
		p.fail("JSON ends where %s belongs", want)
	} else {
		p.fail("JSON has %q where %s belongs", p.data[p.off], want)
	}
}

// composite reads the text after the opening bracket, including the closing one.
func (p *jsonParser) composite(v *jsonValue, end byte) {
	if p.depth++; p.depth > maxJSONDepth {
		p.fail("JSON nests deeper than %d", maxJSONDepth)
		return
	}
	p.off++
	p.space()
	for p.peek() != end && p.err == nil {
		if len(v.items) > 0 && !p.accept(',') {
			p.unexpected("a comma or the end")
			return
		}
		if end == '}' && !p.name(v) {
			return
		}
		v.items = append(v.items, jsonValue{})
		p.value(&v.items[len(v.items)-1])
		p.space()
	}
	if p.err == nil {
		p.off++
		p.depth--
	}
}

// name reads a member's name and the colon after it.
func (p *jsonParser) name(v *jsonValue) bool {
	if p.peek() != '"' {
		p.unexpected("a name")
		return false
	}
	v.names = append(v.names, p.string())
	p.space()
	if !p.accept(':') {
		p.unexpected("a colon")
		return false
	}
	return true
}

func (p *jsonParser) number() string {
	start := p.off
	if p.peek() == '-' {
		p.off++
	}
	if p.peek() == '0' {
		p.off++
	} else {
		p.digits()
	}
	if p.peek() == '.' {
		p.off++
		p.digits()
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.off++
		if c := p.peek(); c == '+' || c == '-' {
			p.off++
		}
		p.digits()
	}
	return string(p.data[start:p.off])
}

// digits reads one digit or more.
func (p *jsonParser) digits() {
	start := p.off
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.off++
	}
	if p.off == start {
		p.unexpected("a digit")
	}
}

func (p *jsonParser) string() string {
	p.off++
	var b []byte
	for p.off < len(p.data) {
		start := p.off
		for p.off < len(p.data) && p.data[p.off] >= ' ' && p.data[p.off] != '"' && p.data[p.off] != '\\' {
			p.off++
		}
		run := p.data[start:p.off]
		switch p.peek() {
		case '"':
			p.off++
			if b == nil {
				return string(run)
			}
			return string(append(b, run...))
		case '\\':
			b = p.escape(append(b, run...))
		default:
			if p.off < len(p.data) {
				p.fail("JSON string has the control character %#02x", p.data[p.off])
			}
		}
	}
	p.fail("JSON ends inside a string")
	return ""
}

// escape appends the character of the escape sequence at the cursor.
func (p *jsonParser) escape(b []byte) []byte {
	if b == nil {
		b = []byte{} // tells string that there was an escape
	}
	if p.off+1 >= len(p.data) {
		p.off = len(p.data)
		return b
	}
	c := p.data[p.off+1]
	if c == 'u' {
		return p.unicode(b)
	}
	plain, ok := unescape(c)
	if !ok {
		p.fail("JSON has no escape \\ and %q", c)
		return b
	}
	p.off += 2
	return append(b, plain)
}

func unescape(c byte) (byte, bool) {
	switch c {
	case '"', '\\', '/':
		return c, true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	}
	return 0, false
}

func (p *jsonParser) unicode(b []byte) []byte {
	unit, ok := p.unit(p.off)
	if !ok {
		p.fail("JSON has \\u without four hexadecimal digits")
		return b
	}
	p.off += 6
	switch {
	case unit < 0xD800 || unit > 0xDFFF:
		return utf8.AppendRune(b, unit)
	case unit >= 0xDC00:
		return append(b, 0xED, byte(0x80|unit>>6&0x3F), byte(0x80|unit&0x3F))
	}
	low, ok := p.unit(p.off)
	if !ok || low < 0xDC00 || low > 0xDFFF {
		return b
	}
	p.off += 6
	return utf8.AppendRune(b, 0x10000+(unit-0xD800)<<10+(low-0xDC00))
}

// unit reads \uXXXX at off without moving the cursor.
func (p *jsonParser) unit(off int) (rune, bool) {
	if off+6 > len(p.data) || p.data[off] != '\\' || p.data[off+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.data[off+2:off+6]), 16, 16)
	return rune(n), err == nil
}

// appendJSONString appends s, which is UTF-8 or an unpaired low surrogate at places.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c == 0xED && isLowSurrogate(s[i:]):
			b = append(b, '\\', 'u', 'd', hex[s[i+1]>>2&15], hex[(s[i+1]&3)<<2|s[i+2]>>4&3], hex[s[i+2]&15])
			i += 2
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
