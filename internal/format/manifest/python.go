package manifest

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"e3/internal/format/notation"
)

// readPython reads what a Python file assigns, as far as that is known without running it, as one mapping: literals
// of names of the module, of its classes, and of attributes of self in the method __init__ of a class. These are the
// parameters that DVC finds. All else is passed over.
func readPython(data []byte) (node, *syntaxError) {
	if !utf8.Valid(data) {
		return node{}, &syntaxError{Pos{1, 1}, "the file is not UTF-8", utf8Only}
	}
	r := pyReader{lines: pyLines(string(data))}
	n := node{kind: mapNode, pos: Pos{1, 1}}
	r.block(&n, -1, moduleScope)
	return n, nil
}

// A pyLine is a logical line: without comments, with all lines that brackets and strings join.
type pyLine struct {
	indent int
	text   string
	line   int32
}

type pyScope uint8

const (
	moduleScope pyScope = iota
	classScope
	initScope // the body of __init__
)

type pyReader struct {
	lines []pyLine
	next  int
}

// block reads the lines that are indented deeper than its head, and puts values into n.
func (r *pyReader) block(n *node, head int, scope pyScope) {
	level := -1 // indentation of the block's own lines; deeper ones belong to if, for and the like
	for ; r.next < len(r.lines) && r.lines[r.next].indent > head; r.next++ {
		line := r.lines[r.next]
		if level < 0 {
			level = line.indent
		}
		if line.indent > level {
			continue
		}
		word, rest := pyName(line.text)
		switch {
		case word == "class" && scope != initScope:
			inner := node{kind: mapNode, pos: Pos{line.line, 1}}
			name, _ := pyName(rest)
			r.next++
			r.block(&inner, line.indent, classScope)
			r.next--
			if len(inner.list) > 0 {
				setMember(n, name, inner)
			}
		case word == "def" && scope == classScope && strings.HasPrefix(strings.TrimLeft(rest, " \t"), "__init__"):
			r.next++
			r.block(n, line.indent, initScope)
			r.next--
		default:
			text := line.text
			if scope == initScope {
				var ok bool
				if text, ok = strings.CutPrefix(text, "self."); !ok {
					continue
				}
			}
			if name, v, ok := pyAssignment(text); ok {
				v.pos = Pos{line.line, int32(line.indent) + 1}
				setMember(n, name, v)
			}
		}
	}
}

// setMember gives a mapping a member, in place of an earlier one of that name.
func setMember(n *node, name string, v node) {
	if i := member(n, name); i >= 0 {
		n.list[i] = v
		return
	}
	n.list = append(n.list, node{kind: stringNode, text: name, pos: v.pos}, v)
}

// pyLines splits a Python file into logical lines.
func pyLines(s string) []pyLine {
	var lines []pyLine
	line, indent := int32(1), 0
	more := false // the previous statement ended with a semicolon
	for s != "" {
		bare := strings.TrimLeft(s, " \t")
		if !more {
			indent = len(s) - len(bare)
		}
		s, more = bare, false
		first := line
		var text strings.Builder
		depth := 0
	logical:
		for s != "" {
			switch c := s[0]; {
			case c == '#':
				end := strings.IndexByte(s, '\n')
				if end < 0 {
					end = len(s)
				}
				s = s[end:]
				continue
			case c == '\\' && strings.HasPrefix(s[1:], "\n"):
				line++
				s = s[2:]
				continue
			case c == '\n':
				line++
				s = s[1:]
				if depth == 0 {
					break logical
				}
				text.WriteByte(' ')
				continue
			case c == '"' || c == '\'':
				n := pyStringEnd(s)
				line += int32(strings.Count(s[:n], "\n"))
				text.WriteString(s[:n])
				s = s[n:]
				continue
			case strings.IndexByte("([{", c) >= 0:
				depth++
			case strings.IndexByte(")]}", c) >= 0:
				depth = max(depth-1, 0)
			case c == ';' && depth == 0:
				s, more = s[1:], true
				break logical
			}
			text.WriteByte(s[0])
			s = s[1:]
		}
		if t := strings.TrimSpace(text.String()); t != "" {
			lines = append(lines, pyLine{indent, t, first})
		}
	}
	return lines
}

// pyStringEnd is the length of the string literal at the beginning of s, with its quotes. A literal that does not end
// goes to the end of its line, or of the file.
func pyStringEnd(s string) int {
	quote := s[:1]
	if strings.HasPrefix(s, strings.Repeat(quote, 3)) {
		quote = s[:3]
	}
	for i := len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\n' && len(quote) == 1:
			return i
		}
	}
	return len(s)
}

// pyName splits the name from the beginning of s; "" if s begins with none.
func pyName(s string) (name, rest string) {
	s = strings.TrimLeft(s, " \t")
	end := strings.IndexFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		end = len(s)
	}
	if end > 0 && notation.IsDigit(s[0]) {
		end = 0
	}
	return s[:end], s[end:]
}

// pyAssignment reads a statement "name = literal" or "name: type = literal".
func pyAssignment(s string) (name string, v node, ok bool) {
	name, rest := pyName(s)
	if name == "" {
		return "", v, false
	}
	rest = strings.TrimLeft(rest, " \t")
	if strings.HasPrefix(rest, ":") { // the annotation ends at the first sign of equality outside of brackets
		end := strings.IndexByte(rest, '=')
		for end >= 0 && strings.Count(rest[:end], "[") != strings.Count(rest[:end], "]") {
			if next := strings.IndexByte(rest[end+1:], '='); next >= 0 {
				end += 1 + next
			} else {
				end = -1
			}
		}
		if end < 0 {
			return "", v, false
		}
		rest = rest[end:]
	}
	rest, ok = strings.CutPrefix(rest, "=")
	if !ok || strings.HasPrefix(rest, "=") {
		return "", v, false
	}
	l := pyLiteral{rest: rest}
	v, ok = l.value(0)
	l.space()
	if ok && strings.HasPrefix(l.rest, ",") { // a tuple without parentheses
		list := node{kind: listNode, list: []node{v}}
		for ok && l.skip(",") {
			if l.space(); l.rest == "" {
				break
			}
			var item node
			item, ok = l.value(0)
			list.list = append(list.list, item)
			l.space()
		}
		v = list
	}
	return name, v, ok && l.rest == ""
}

// A pyLiteral reads a literal.
type pyLiteral struct{ rest string }

func (l *pyLiteral) space() { l.rest = strings.TrimLeft(l.rest, " \t\r\f") }

// skip passes over a token if it comes next.
func (l *pyLiteral) skip(token string) bool {
	l.space()
	rest, ok := strings.CutPrefix(l.rest, token)
	l.rest = rest
	return ok
}

func (l *pyLiteral) value(depth int) (n node, ok bool) {
	l.space()
	if l.rest == "" || depth > maxDepth {
		return n, false
	}
	switch c := l.rest[0]; {
	case c == '[' || c == '(':
		return l.list(depth, string(c), map[byte]string{'[': "]", '(': ")"}[c])
	case c == '{':
		return l.dict(depth)
	case c == '-' || c == '+' || c == '.' || notation.IsDigit(c):
		return l.number()
	}
	name, after := pyName(l.rest)
	if after != "" && (after[0] == '"' || after[0] == '\'') || name == "" {
		return l.text()
	}
	l.rest = after
	switch name {
	case "True", "False":
		n, _ = resolvePlain(name)
		return n, true
	case "None":
		return node{kind: nullNode, text: "null"}, true
	}
	return n, false
}

// list reads a list or a tuple. One value in parentheses is that value.
func (l *pyLiteral) list(depth int, open, end string) (n node, ok bool) {
	l.skip(open)
	n.kind = listNode
	comma := false
	for !l.skip(end) {
		item, ok := l.value(depth + 1)
		if !ok {
			return n, false
		}
		n.list = append(n.list, item)
		if !l.skip(",") {
			if !l.skip(end) {
				return n, false
			}
			break
		}
		comma = true
	}
	if open == "(" && len(n.list) == 1 && !comma {
		return n.list[0], true
	}
	return n, true
}

// dict reads a mapping, or a set, which becomes a list.
func (l *pyLiteral) dict(depth int) (n node, ok bool) {
	l.skip("{")
	n.kind = mapNode
	for !l.skip("}") {
		key, ok := l.value(depth + 1)
		if !ok || key.kind == listNode || key.kind == mapNode {
			return n, false
		}
		if l.skip(":") && n.kind == mapNode {
			v, ok := l.value(depth + 1)
			if !ok {
				return n, false
			}
			setMember(&n, key.text, v)
		} else {
			n.kind = listNode
			n.list = append(n.list, key)
		}
		if !l.skip(",") && !strings.HasPrefix(l.rest, "}") {
			return n, false
		}
	}
	return n, true
}

// number reads a number with its sign.
func (l *pyLiteral) number() (n node, ok bool) {
	sign := ""
	for l.rest != "" && (l.rest[0] == '-' || l.rest[0] == '+') {
		if l.rest[0] == '-' {
			sign = map[string]string{"": "-", "-": ""}[sign]
		}
		l.rest = strings.TrimLeft(l.rest[1:], " \t")
	}
	end := 0
	for end < len(l.rest) {
		c := l.rest[end]
		exponent := end > 0 && (c == '-' || c == '+') && l.rest[end-1]|0x20 == 'e' && !strings.HasPrefix(l.rest, "0x")
		if !notation.IsWord(c) && c != '.' && !exponent {
			break
		}
		end++
	}
	text := l.rest[:end]
	l.rest = l.rest[end:]
	if i, err := strconv.ParseInt(sign+text, 0, 64); err == nil && text != "" {
		return node{kind: intNode, bits: uint64(i), text: strconv.FormatInt(i, 10)}, true
	}
	f, err := strconv.ParseFloat(sign+strings.ReplaceAll(text, "_", ""), 64)
	if err != nil || text == "" || strings.HasPrefix(text, "0x") || !notation.IsDigit(text[0]) && text[0] != '.' {
		return n, false
	}
	n, fault := resolvePlain(formatFloat(f))
	return n, fault == ""
}

// text reads string literals, of which adjacent ones are one string.
func (l *pyLiteral) text() (n node, ok bool) {
	n.kind = stringNode
	for {
		l.space()
		prefix, rest := pyName(l.rest)
		if rest == "" || rest[0] != '"' && rest[0] != '\'' {
			return n, ok
		}
		if prefix = strings.ToLower(prefix); !slices.Contains([]string{"", "r", "u"}, prefix) {
			return n, false // bytes, and strings that are made when the program runs
		}
		end := pyStringEnd(rest)
		quotes := 1
		if strings.HasPrefix(rest, strings.Repeat(rest[:1], 3)) && end >= 6 {
			quotes = 3
		}
		if end < 2*quotes || rest[end-1] != rest[0] {
			return n, false
		}
		part := rest[quotes : end-quotes]
		if prefix != "r" {
			if part, ok = pyUnescape(part); !ok {
				return n, false
			}
		}
		if strings.IndexByte(part, 0) >= 0 {
			return n, false
		}
		n.text, l.rest, ok = n.text+part, rest[end:], true
	}
}

// pyUnescape replaces the escapes of a string literal; false if one is not known.
func pyUnescape(s string) (string, bool) {
	var b strings.Builder
	for s != "" {
		if s[0] != '\\' || len(s) == 1 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		if s[1] == '\n' {
			s = s[2:]
			continue
		}
		if s[1] == '\'' || s[1] == '"' {
			b.WriteByte(s[1])
			s = s[2:]
			continue
		}
		r, multibyte, rest, err := strconv.UnquoteChar(s, 0)
		switch {
		case err != nil && strings.IndexByte("xuUN01234567", s[1]) >= 0:
			return "", false
		case err != nil: // an unknown escape stands for itself
			b.WriteString(s[:2])
			s = s[2:]
			continue
		case multibyte || r >= utf8.RuneSelf:
			b.WriteRune(r)
		default:
			b.WriteByte(byte(r))
		}
		s = rest
	}
	return b.String(), true
}
