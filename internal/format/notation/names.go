// Package notation reads names, sizes, durations and misspelt words as people write them, in package files, settings
// and flags.
package notation

// MaxName is the greatest length in bytes of the name of a workspace, task or package.
const MaxName = 64

// ValidName reports whether s may name a workspace, a package or a task (without its label).
func ValidName(s string) bool {
	return len(s) <= MaxName && s != "" && IsWord(s[0]) && Only(s, func(c byte) bool { return IsWord(c) || c == '-' })
}

// ValidVersion reports whether s may be the version of a package.
func ValidVersion(s string) bool {
	return len(s) <= MaxName && s != "" && IsWord(s[0]) && Only(s, func(c byte) bool {
		return IsWord(c) || c == '-' || c == '.' || c == '+'
	})
}

// Only reports whether every byte of s satisfies ok.
func Only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// IsDigit reports whether c is an ASCII digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// IsWord reports whether c is an ASCII letter, a digit or "_".
func IsWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || IsDigit(c) || c == '_'
}
