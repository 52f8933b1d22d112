package eastref

import (
	"errors"
	"fmt"
	"strings"
)

// FormatPath writes a path in a tree as the reference does: ".inputs.sales", with backticks around a name that is not
// an identifier. Inside backticks a backslash escapes every backslash and backtick. The reference escapes only the
// first backslash and the first backtick, and cannot read a name with more.
func FormatPath(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteByte('.')
		if isIdentifier(name) {
			b.WriteString(name)
			continue
		}
		b.WriteByte('`')
		b.WriteString(escapes.Replace(name))
		b.WriteByte('`')
	}
	return b.String()
}

var escapes = strings.NewReplacer(`\`, `\\`, "`", "\\`")

// ParsePath reads what FormatPath writes. The first dot may be left out. Outside backticks a name may hold anything
// but dots and backticks.
func ParsePath(text string) ([]string, error) {
	var path []string
	rest := strings.TrimPrefix(text, ".")
	for {
		var name string
		var err error
		if name, rest, err = cutName(rest); err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		path = append(path, name)
		if rest == "" {
			return path, nil
		}
		if rest[0] != '.' {
			return nil, fmt.Errorf("path %q: a dot must follow a name in backticks", text)
		}
		rest = rest[1:]
	}
}

// cutName splits the first name off a path.
func cutName(s string) (name, rest string, err error) {
	if !strings.HasPrefix(s, "`") {
		end := strings.IndexAny(s, ".`")
		switch {
		case end < 0:
			end = len(s)
		case s[end] == '`':
			return "", "", errors.New("a name with a backtick in it must be in backticks")
		}
		if end == 0 {
			return "", "", errors.New("a name is empty")
		}
		return s[:end], s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '`':
			return b.String(), s[i+1:], nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '\\' || s[i+1] == '`'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("a backtick is not closed")
}

// isIdentifier reports whether a name needs no backticks.
func isIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
