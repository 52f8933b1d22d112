package manifest

import "strings"

// MaxName is how many bytes the name of a workspace, task or package may have.
const MaxName = 64

// ValidName says whether s may name a workspace, a package or a task (without its label).
func ValidName(s string) bool {
	return len(s) <= MaxName && startsWith(s, isWord) && only(s, func(c byte) bool { return isWord(c) || c == '-' })
}

// ValidVersion says whether s may be the version of a package.
func ValidVersion(s string) bool {
	return len(s) <= MaxName && startsWith(s, isWord) && only(s, func(c byte) bool {
		return isWord(c) || c == '-' || c == '.' || c == '+'
	})
}

// ValidInputName says whether s may name an input, an output or a matrix dimension. Such names become
// environment variables; they start with a lower-case letter or "_" so that none shadows one that matters.
func ValidInputName(s string) bool {
	return startsWith(s, func(c byte) bool { return isLower(c) || c == '_' }) && only(s, isWord)
}

// ValidEnvName says whether s may name an environment variable. Names that begin with E3_ are e3's own.
func ValidEnvName(s string) bool {
	return startsWith(s, func(c byte) bool { return isWord(c) && !isDigit(c) }) && only(s, isWord) && !strings.HasPrefix(s, "E3_")
}

// ValidLabelItem says whether s may be an item of a matrix: text that can stand in brackets and, because a
// fan-in has one entry per item, be a file name.
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

func startsWith(s string, ok func(byte) bool) bool { return s != "" && ok(s[0]) }

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isWord(c byte) bool  { return isLower(c) || 'A' <= c && c <= 'Z' || isDigit(c) || c == '_' }
