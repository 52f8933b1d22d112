package runner

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// encoded returns a piece of a secret in every form in which shells, HTTP clients and languages print text.
func encoded(piece string) []string {
	return slices.Concat(quoted(piece), percent(piece), markup(piece), hexadecimal(piece), base64s(piece))
}

// quoted returns a piece as shells and languages quote it, without the outer quotes.
func quoted(piece string) []string {
	return []string{
		strings.ReplaceAll(piece, `'`, `'\''`),  // bash -x, ${x@Q}, zsh
		strings.ReplaceAll(piece, `'`, `'"'"'`), // dash -x, Python's shlex.quote
		escaped(piece, ansiC, false),            // bash $'…' in a UTF-8 locale
		escaped(piece, ansiC, true),             // the same in any other locale
		backslashed(piece, false),               // bash's printf %q
		backslashed(piece, true),
		unquoted(strconv.Quote(piece)),                             // Go's %q
		unquoted(strconv.QuoteToASCII(piece)),                      // Go's %+q
		escaped(piece, jsonText, false),                            // JSON
		escaped(piece, jsonText, true),                             // Python's json.dumps
		escaped(piece, jsonHTML, false),                            // Go's json.Marshal
		escaped(piece, jsonSlash, false),                           // PHP's json_encode
		escaped(piece, python(`'`), false),                         // Python's repr
		escaped(piece, python(""), false),                          // the same between double quotes
		escaped(piece, python(`'`), true),                          // Python's ascii
		escaped(piece, python(""), true),                           // the same between double quotes
		strings.ReplaceAll(piece, `"`, `\"`),                       // programs that escape quotes only
		strings.ReplaceAll(piece, `\`, `\\`),                       // programs that escape backslashes only
		strings.ReplaceAll(piece, `"`, `""`),                       // CSV, SQL
		strings.ReplaceAll(piece, `'`, `''`),                       // SQL, YAML
		strings.ReplaceAll(piece, "\n", "\r\n"),                    // HTTP, terminals
		strings.ReplaceAll(piece, "\r\n", "\n"),                    // texts that lose their \r
		strings.NewReplacer("\r\n", " ", "\n", " ").Replace(piece), // unquoted $x
	}
}

func unquoted(s string) string { return s[1 : len(s)-1] }

// A rule returns the escape of a character in quoted text; "": none is needed. raw is true for a byte that is not
// UTF-8.
type rule func(r rune, raw, ascii bool) string

// escaped applies a rule to each character; ascii asks for nothing beyond ASCII.
func escaped(s string, escape rule, ascii bool) string {
	var b strings.Builder
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		raw := r == utf8.RuneError && size == 1
		if raw {
			r = rune(s[i])
		}
		if text := escape(r, raw, ascii); text != "" {
			b.WriteString(text)
		} else {
			b.WriteString(s[i : i+size])
		}
	}
	return b.String()
}

// letters are the escapes that bash and C have in common.
var letters = map[rune]string{'\a': `\a`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\v': `\v`, '\\': `\\`}

func ansiC(r rune, raw, ascii bool) string {
	switch text := letters[r]; {
	case text != "":
		return text
	case r == '\'':
		return `\'`
	case r == 0x1b:
		return `\E`
	case raw || r < 0x20 || r == 0x7f:
		return fmt.Sprintf(`\%03o`, r)
	case ascii && r >= utf8.RuneSelf:
		var b strings.Builder
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, `\%03o`, c)
		}
		return b.String()
	}
	return ""
}

func jsonText(r rune, raw, ascii bool) string {
	switch r {
	case '"':
		return `\"`
	case '\a', '\v':
		return fmt.Sprintf(`\u%04x`, r)
	}
	switch text := letters[r]; {
	case text != "":
		return text
	case raw:
		return `\ufffd`
	case r < 0x20 || ascii && r == 0x7f:
		return fmt.Sprintf(`\u%04x`, r)
	case ascii && r >= utf8.RuneSelf:
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

func jsonHTML(r rune, raw, ascii bool) string {
	if strings.ContainsRune("<>&\u2028\u2029", r) {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return jsonText(r, raw, ascii)
}

func jsonSlash(r rune, raw, ascii bool) string {
	if r == '/' {
		return `\/`
	}
	return jsonText(r, raw, ascii)
}

// python is the rule of repr, which escapes only the quotes that surround the text.
func python(quote string) rule {
	return func(r rune, raw, ascii bool) string {
		switch {
		case string(r) == quote:
			return `\` + quote
		case strings.ContainsRune("\n\r\t\\", r):
			return letters[r]
		case raw:
			return fmt.Sprintf(`\udc%02x`, r)
		case r < 0x20 || r == 0x7f || r < 0x100 && (ascii && r >= utf8.RuneSelf || !unicode.IsPrint(r)):
			return fmt.Sprintf(`\x%02x`, r)
		case r < 0x10000 && (ascii && r >= utf8.RuneSelf || !unicode.IsPrint(r)):
			return fmt.Sprintf(`\u%04x`, r)
		case ascii && r >= utf8.RuneSelf || !unicode.IsPrint(r):
			return fmt.Sprintf(`\U%08x`, r)
		}
		return ""
	}
}

// backslashed puts a backslash before characters that are special in bash, as printf %q does. ~ and # are special at
// the beginning of a word, ~ also after = and :.
func backslashed(s string, begins bool) string {
	var b strings.Builder
	for i, c := range []byte(s) {
		switch {
		case strings.IndexByte(" \t'\"\\|&;()<>!{}*[]?^$`,", c) >= 0,
			(c == '~' || c == '#') && i == 0 && begins,
			c == '~' && i > 0 && (s[i-1] == '=' || s[i-1] == ':'):
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unreserved lists, for each encoding, the characters beside letters and digits that it keeps.
var unreserved = []string{
	"-_.~",                 // RFC 3986; Go's QueryEscape; Python's quote with safe=""
	"-_.~/",                // Python's quote; curl's paths
	"-_.!~*'()",            // JavaScript's encodeURIComponent
	"-_.!~*'();,/?:@&=+$#", // JavaScript's encodeURI
	"-_.~$&+:=@",           // Go's PathEscape
	"*-._",                 // HTML forms
}

// percent returns a piece as in a URL: with digits of either case, and with %20 or + for a space.
func percent(piece string) []string {
	var list []string
	for _, safe := range unreserved {
		for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
			var b strings.Builder
			for _, c := range []byte(piece) {
				if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(safe, c) >= 0 {
					b.WriteByte(c)
				} else {
					b.Write([]byte{'%', digits[c>>4], digits[c&15]})
				}
			}
			text := b.String()
			list = append(list, text, strings.ReplaceAll(text, "%20", "+"))
		}
	}
	return list
}

// markup returns a piece as in HTML and XML.
func markup(piece string) []string {
	plain := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(piece)
	list := []string{plain, html.EscapeString(piece), strings.ReplaceAll(plain, `"`, "&quot;")}
	for _, quote := range []string{"&#x27;", "&#39;", "&#039;", "&apos;"} {
		list = append(list, strings.NewReplacer(`"`, "&quot;", `'`, quote).Replace(plain))
	}
	return list
}

// hexadecimal returns a piece in hexadecimal digits of either case, also in lines of 60 digits, as xxd -p prints them.
func hexadecimal(piece string) []string {
	whole := hex.EncodeToString([]byte(piece))
	list := append(broken(whole, 60), whole)
	for _, text := range slices.Clone(list) {
		list = append(list, strings.ToUpper(text))
	}
	return list
}

// base64s returns a piece in both alphabets, with and without padding, also broken into lines as programs do. Within a
// longer text the piece may begin at any of three offsets; for each it returns the characters that depend on the piece
// alone.
func base64s(piece string) []string {
	var list []string
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := alphabet.EncodeToString([]byte(piece))
		list = append(list, whole, strings.TrimRight(whole, "="))
		list = append(append(list, broken(whole, 64)...), broken(whole, 76)...)
		for before := range 3 {
			text := alphabet.EncodeToString(append(make([]byte, before), piece...))
			from, to := (8*before+5)/6, 8*(before+len(piece))/6 // other characters depend on neighbouring bytes
			list = append(list, text[from:to])
		}
	}
	return list
}

// broken returns the lines of a text that is longer than width, else nil.
func broken(text string, width int) []string {
	var lines []string
	if len(text) <= width {
		return nil
	}
	for line := range slices.Chunk([]byte(text), width) {
		lines = append(lines, string(line))
	}
	return lines
}
