package manifest

import (
	"strings"

	"e3/internal/format/notation"
)

// ValidInputName reports whether s may name an input, an output or a matrix dimension. Such names become environment
// variables. They begin with a lower-case letter or "_", so that no name shadows a variable such as PATH.
func ValidInputName(s string) bool {
	return s != "" && ('a' <= s[0] && s[0] <= 'z' || s[0] == '_') && notation.Only(s, notation.IsWord)
}

// ValidEnvName reports whether s may name an environment variable. Names that begin with E3_ are e3's own.
func ValidEnvName(s string) bool {
	return s != "" && notation.IsWord(s[0]) && !notation.IsDigit(s[0]) && notation.Only(s, notation.IsWord) && !strings.HasPrefix(s, "E3_")
}

// ValidLabelItem reports whether s may be an item of a matrix. An item appears in the brackets of a label. It is also
// the file name of an entry of a fan-in.
func ValidLabelItem(s string) bool {
	if s == "" || s == "." || s == ".." || s == "*" || len(s) > MaxLabel || strings.TrimSpace(s) != s {
		return false
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || strings.ContainsRune("/,=[]", r) {
			return false
		}
	}
	return true
}
