package fs

import (
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxName is the length, in bytes, beyond which an escaped segment is cut into several path components. File systems
// allow 255, and suffixes are added.
const maxName = 200

const hexDigits = "0123456789ABCDEF"

// escape turns one segment of a key into a relative path; different segments give different paths. Most segments are
// returned as they are. Bytes that are unsafe in a file name on some system become "%" and two hexadecimal digits; the
// empty segment becomes "%". A segment that is too long becomes several components; all but the last end in a bare
// "%". "~" never occurs in the result, so that names of other files can contain it.
func escape(segment string) string {
	if plain(segment) {
		return segment
	}
	return chunk(escapeBytes(segment))
}

// plain reports whether a segment needs no escaping.
func plain(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf || unsafeByte(s[i]) {
			return false
		}
	}
	return s[len(s)-1] != '.' && s[len(s)-1] != ' '
}

func unsafeByte(c byte) bool {
	return c < 0x20 || c == 0x7f || strings.IndexByte(`%~/\:*?"<>|`, c) >= 0
}

// escapeBytes escapes without cutting. The result is a safe name if it is short enough.
func escapeBytes(s string) string {
	if s == "" {
		return "%"
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		c := s[i]
		switch {
		case r == utf8.RuneError && size == 1, // not UTF-8
			size == 1 && unsafeByte(c),
			i == 0 && c == '.',                                   // "..", and hidden files
			i == len(s)-1 && size == 1 && (c == '.' || c == ' '): // shares for Windows drop these
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// chunk cuts an escaped segment into components of at most maxName bytes, never within an escape or a rune.
func chunk(escaped string) string {
	if len(escaped) <= maxName {
		return escaped
	}
	var b strings.Builder
	for len(escaped) > maxName {
		n := maxName - 1 // one byte is for the "%"
		for !utf8.RuneStart(escaped[n]) {
			n--
		}
		if escaped[n-1] == '%' {
			n--
		} else if escaped[n-2] == '%' {
			n -= 2
		}
		b.WriteString(escaped[:n])
		b.WriteByte('%')
		b.WriteByte(filepath.Separator)
		escaped = escaped[n:]
	}
	b.WriteString(escaped)
	return b.String()
}

// unescape is the inverse of escape. It refuses paths that escape does not return: files put there by other means.
func unescape(path string) (segment string, ok bool) {
	if plain(path) {
		return path, true
	}
	var b strings.Builder
	for rest := path; rest != ""; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		rest = rest[i+1:]
		switch {
		case rest == "": // the empty segment
		case rest[0] == filepath.Separator: // the next component
			rest = rest[1:]
		case len(rest) < 2:
			return "", false
		default:
			hi, lo := strings.IndexByte(hexDigits, rest[0]), strings.IndexByte(hexDigits, rest[1])
			if hi < 0 || lo < 0 {
				return "", false
			}
			b.WriteByte(byte(hi<<4 | lo))
			rest = rest[2:]
		}
	}
	segment = b.String()
	return segment, escape(segment) == path
}

// continues reports whether a name belongs to a folder in which an escaped segment continues.
func continues(name string) bool { return len(name) > 1 && name[len(name)-1] == '%' }
