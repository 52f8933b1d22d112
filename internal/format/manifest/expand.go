package manifest

import (
	"strings"

	"e3/internal/format/notation"
)

// Expand replaces {name} in the elements of argv by the text that lookup returns for the name. Other braces, and names
// unknown to lookup, stay as they are, so that JSON, regular expressions and awk programs pass through. Replacement
// text is not expanded again. The names of a task are its inputs, its outputs and the dimensions of its matrix.
func Expand(argv []string, lookup func(name string) (string, bool)) []string {
	expanded := make([]string, len(argv))
	for i, arg := range argv {
		expanded[i] = expandOne(arg, lookup)
	}
	return expanded
}

func expandOne(arg string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for {
		before, name, after, ok := cutBraces(arg)
		if !ok {
			break
		}
		b.WriteString(before)
		if text, known := lookup(name); known {
			b.WriteString(text)
		} else {
			b.WriteString("{" + name + "}")
		}
		arg = after
	}
	if b.Len() == 0 {
		return arg
	}
	b.WriteString(arg)
	return b.String()
}

// cutBraces finds the first {name} in s.
func cutBraces(s string) (before, name, after string, ok bool) {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 {
			return "", "", "", false
		}
		at += i
		end := at + 1
		for end < len(s) && notation.IsWord(s[end]) {
			end++
		}
		if end < len(s) && s[end] == '}' && ValidInputName(s[at+1:end]) {
			return s[:at], s[at+1 : end], s[end+1:], true
		}
	}
}
