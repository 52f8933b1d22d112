package beast2

import "unicode/utf8"

// checkWTF8 returns the index of the first byte that no writer emits, or -1. It accepts UTF-8 and also unpaired low
// surrogates (U+DC00 to U+DFFF) in three bytes. High surrogates are refused: writers drop them when unpaired, so a low
// one never follows a high one.
func checkWTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			if !isLowSurrogate(b[i:]) {
				return i
			}
			n = 3
		}
		i += n
	}
	return -1
}

// isLowSurrogate reports whether b starts with a low surrogate in three bytes.
func isLowSurrogate[S []byte | string](b S) bool {
	return len(b) >= 3 && b[0] == 0xED && b[1] >= 0xB0 && b[1] <= 0xBF && b[2]&0xC0 == 0x80
}

// CompareStrings orders strings as East does, by UTF-16 code units. This order differs from the order of bytes only
// where a character above U+FFFF (two units from U+D800 up) meets a character from U+DC00 to U+FFFF.
func CompareStrings(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	switch {
	case i == n:
		return len(a) - len(b)
	case a[i] >= 0xF0 && aboveHighSurrogates(b[i:]):
		return -1
	case b[i] >= 0xF0 && aboveHighSurrogates(a[i:]):
		return 1
	}
	return int(a[i]) - int(b[i])
}

// aboveHighSurrogates reports whether s starts with a character from U+DC00 to U+FFFF.
func aboveHighSurrogates(s string) bool {
	return s[0] == 0xEE || s[0] == 0xEF || isLowSurrogate(s)
}
