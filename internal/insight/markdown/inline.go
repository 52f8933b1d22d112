package markdown

import (
	"strings"

	h "e3/internal/insight/markup"
)

// marks are characters that a backslash makes plain.
const marks = "\\`*_{}[]()#+-.!|<>~\"'&$%,/:;=?@^"

// inline reads the text of a paragraph.
func inline(s string, depth int) h.Group {
	if depth > maxDepth {
		return h.Group{h.Text(s)}
	}
	var out h.Group
	from := 0
	put := func(at int, n h.Node, next int) int { // a node in place of s[at:next]
		if at > from {
			out = append(out, h.Text(s[from:at]))
		}
		out = append(out, n)
		from = next
		return next
	}
	for i := 0; i < len(s); {
		n, next := special(s, i, depth)
		if next == 0 {
			i++
			continue
		}
		i = put(i, n, next)
	}
	if from < len(s) {
		out = append(out, h.Text(s[from:]))
	}
	return out
}

// special reads what is not plain text at a place. next is the place behind it; 0: it is plain text.
func special(s string, i, depth int) (n h.Node, next int) {
	ahead := s[i:min(len(s), i+maxAhead)]
	switch s[i] {
	case '\\':
		if len(ahead) > 1 && ahead[1] == '\n' {
			return h.El("br"), i + 2
		}
		if len(ahead) > 1 && strings.IndexByte(marks, ahead[1]) >= 0 {
			return h.Text(ahead[1:2]), i + 2
		}
	case ' ':
		if end := len(ahead) - len(strings.TrimLeft(ahead, " ")); end >= 2 && end < len(ahead) && ahead[end] == '\n' {
			return h.El("br"), i + end + 1
		}
	case '`':
		return code(ahead, i)
	case '*', '_', '~':
		return emphasis(s, i, depth)
	case '!':
		if strings.HasPrefix(ahead, "![") {
			if text, _, size := linked(ahead[1:]); size > 0 {
				return h.El("em", h.Text("[picture: "+text+"]")), i + 1 + size
			}
		}
	case '[':
		if text, address, size := linked(ahead); size > 0 {
			return anchor(address, inline(text, depth+1)), i + size
		}
	case '<':
		if end := strings.IndexByte(ahead, '>'); end > 0 && isWeb(ahead[1:end]) && !strings.ContainsAny(ahead[1:end], " \n<") {
			return anchor(ahead[1:end], h.Text(ahead[1:end])), i + end + 1
		}
	case 'h':
		if address := bare(ahead); address != "" && (i == 0 || !isWord(s[i-1])) {
			return anchor(address, h.Text(address)), i + len(address)
		}
	}
	return nil, 0
}

// code reads text between two runs of as many backquotes.
func code(ahead string, i int) (h.Node, int) {
	n := run(ahead)
	for at := n; at < len(ahead); {
		k := strings.IndexByte(ahead[at:], '`')
		if k < 0 {
			break
		}
		at += k
		m := run(ahead[at:])
		if m == n {
			text := strings.ReplaceAll(ahead[n:at], "\n", " ")
			if trimmed := strings.TrimSpace(text); trimmed != "" && text[0] == ' ' && text[len(text)-1] == ' ' {
				text = text[1 : len(text)-1]
			}
			return h.El("code", h.Text(text)), i + at + n
		}
		at += m
	}
	return h.Text(ahead[:n]), i + n
}

// emphasis reads text between two marks: one for emphasis, two for strong text, or three for both; two tildes for text that is
// struck out.
func emphasis(s string, i, depth int) (h.Node, int) {
	ahead := s[i:min(len(s), i+maxAhead)]
	n := run(ahead)
	plain := func() (h.Node, int) { return h.Text(ahead[:n]), i + n }
	if n > 3 || ahead[0] == '~' && n != 2 || n == len(ahead) || isSpace(ahead[n]) || ahead[0] == '_' && i > 0 && isWord(s[i-1]) {
		return plain()
	}
	for at := n; at < len(ahead); {
		k := strings.IndexByte(ahead[at:], ahead[0])
		if k < 0 {
			break
		}
		at += k
		m := run(ahead[at:])
		after := i + at + m
		if m == n && !isSpace(ahead[at-1]) && ahead[at-1] != '\\' && (ahead[0] != '_' || after >= len(s) || !isWord(s[after])) {
			inner := h.Node(inline(ahead[n:at], depth+1))
			switch {
			case ahead[0] == '~':
				inner = h.El("del", inner)
			case n == 1:
				inner = h.El("em", inner)
			case n == 2:
				inner = h.El("strong", inner)
			default:
				inner = h.El("strong", h.El("em", inner))
			}
			return inner, after
		}
		at += m
	}
	return plain()
}

// linked reads [text](address "title"). size is its length, 0 if it is none.
func linked(s string) (text, address string, size int) {
	level := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			level++
		case ']':
			if level--; level > 0 {
				continue
			}
			rest := s[i+1:]
			end := closed(rest)
			if end == 0 {
				return "", "", 0
			}
			address, _, _ = strings.Cut(strings.TrimSpace(rest[1:end]), " ")
			return s[1:i], strings.Trim(address, "<>"), i + 1 + end + 1
		}
	}
	return "", "", 0
}

// closed is the place of the parenthesis that closes the one with which a text begins; 0: there is none.
func closed(s string) int {
	level := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			level++
		case ')':
			level--
		}
		if level == 0 {
			return i
		}
	}
	return 0
}

// anchor is a link, or its text alone if it leads to no place of the web or of mail.
func anchor(address string, text h.Node) h.Node {
	if !isWeb(address) {
		return text
	}
	return h.El("a", h.Attr("href", address), h.Attr("rel", "noopener noreferrer nofollow"), text)
}

func isWeb(address string) bool {
	scheme, rest, ok := strings.Cut(strings.ToLower(address), ":")
	return ok && (scheme == "mailto" || (scheme == "http" || scheme == "https") && strings.HasPrefix(rest, "//"))
}

// bare is an address that stands in the text as it is; "" if there is none.
func bare(ahead string) string {
	if !strings.HasPrefix(ahead, "http://") && !strings.HasPrefix(ahead, "https://") {
		return ""
	}
	if end := strings.IndexAny(ahead, " \n<>\"`|"); end >= 0 {
		ahead = ahead[:end]
	}
	ahead = strings.TrimRight(ahead, ".,;:!?'*_~])")
	if strings.HasSuffix(ahead, ":") || strings.HasSuffix(ahead, "/") && strings.Count(ahead, "/") == 2 {
		return ""
	}
	return ahead
}

// run is the length of the run of one character at the beginning.
func run(s string) int {
	n := 1
	for n < len(s) && s[n] == s[0] {
		n++
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' }

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}
