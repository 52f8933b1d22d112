package manifest

import (
	"strings"

	"e3/internal/format/notation"
)

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
