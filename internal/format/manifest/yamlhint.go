package manifest

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/pattern"
)

var (
	keyed      = pattern.Of(`^(\s*(?:- )?)([^\s:#"'\[\]{}]+):(?:\s|$)`)
	glued      = pattern.Of(`^\s*(?:- )?([A-Za-z_][\w-]*):(\S.*)$`)
	bracketed  = pattern.Of(`[a-z_][A-Za-z0-9_]*\[[^\]"']*\](?:\.[a-z_][a-z0-9_]*)?`)
	twoColons  = pattern.Of(`^\s*[^\s:]+: ([a-z_]+): (\S+)\s*$`)
	blockStart = pattern.Of(`: *[|>][+-]?[0-9]?\s*$`)
)

// A yamlText is the text around a fault of syntax.
type yamlText [][]byte

// line is a line by its number, from 1; "" if there is none.
func (t yamlText) line(n int) string {
	if n < 1 || n > len(t) {
		return ""
	}
	return strings.TrimRight(string(t[n-1]), "\r")
}

// above is the number of the nearest line above n that is neither empty nor a comment; 0 if there is none.
func (t yamlText) above(n int) int {
	for n--; n > 0; n-- {
		if text := strings.TrimSpace(t.line(n)); text != "" && text[0] != '#' {
			return n
		}
	}
	return 0
}

// syntaxHint says what to write, of a fault that the YAML library reports at a place of data. first is the number of
// lines of the file before data.
func syntaxHint(load *yaml.LoadError, data []byte, first int) string {
	t := yamlText(bytes.Split(data, []byte("\n")))
	at := load.Mark.Line
	line := t.line(at)
	rest := ""
	if c := load.Mark.Column - 1; c >= 0 && c <= len(line) {
		rest = line[c:]
	}
	for _, n := range []int{at, load.ContextMark.Line} {
		if strings.ContainsRune(t.line(n), '\u00a0') {
			return fmt.Sprintf("line %d has a no-break space (U+00A0), as web pages and word processors write it: replace it by a space", n+first)
		}
	}
	says := func(text string) bool { return strings.Contains(load.Message, text) }
	switch {
	case says("tab character"), says("cannot start any token") && strings.HasPrefix(rest, "\t"):
		return "indent with spaces: this line begins with a tab"
	case says("cannot start any token"):
		return fmt.Sprintf("quote text that begins with a special character: %s", yamlQuoted(rest))
	case says("mapping values are not allowed"):
		return t.colonHint(at, load.Mark.Column, first)
	case says("unknown escape"):
		return `in double quotes \ begins an escape: write \\, or single quotes, or the text in lines of its own below |`
	case strings.Contains(load.ContextMsg, "quoted scalar"):
		return "the quote is not closed: text that holds quotes is best written in lines of its own below |"
	case says("unknown anchor"), strings.Contains(load.ContextMsg, "alias"), strings.Contains(load.ContextMsg, "anchor"):
		if word := wordAround(line, load.Mark.Column-1); word != "" {
			return fmt.Sprintf("quote what has brackets: %q", word)
		}
		return fmt.Sprintf("quote text that begins with * or &: %s", yamlQuoted(strings.TrimLeft(rest, " ")))
	case says("',' or ']'"):
		if word := wordAround(line, load.Mark.Column-1); word != "" {
			return fmt.Sprintf("quote what has brackets: %q", word)
		}
		return "a list ends with ]; text that begins with [ is quoted"
	case says("',' or '}'"):
		return "a mapping in braces ends with }; text that begins with { is quoted"
	case says("did not find expected key"):
		if indent := len(line) - len(strings.TrimLeft(line, " ")); load.Mark.Column-1 > indent {
			return "what follows a closing quote, ] or } belongs to no value: quote the whole text, or write it in lines of its own below |"
		}
		return fmt.Sprintf("it is indented like no key above it: see line %d; the keys of one mapping have the same indentation", t.above(at)+first)
	case says("could not find expected ':'"):
		n := load.ContextMark.Line
		if blockStart().MatchString(t.line(t.above(n))) {
			return "indent the text below | or > by more than its key"
		}
		return fmt.Sprintf("line %d has no colon: a key is followed by a colon and a space", n+first)
	}
	return ""
}

// colonHint is the hint for a colon where none may be, at a line and a column from 1: the value of an earlier key goes
// on there.
func (t yamlText) colonHint(at, column, first int) string {
	line := t.line(at)
	m := keyed().FindStringSubmatch(line)
	if m == nil || column > len(m[1])+len(m[2])+1 {
		if two := twoColons().FindStringSubmatch(line); two != nil {
			return fmt.Sprintf("write {%s: %s}, or quote the text", two[1], two[2])
		}
		return `quote text that contains ": ", or write it in lines of its own below |`
	}
	n := t.above(at)
	before := t.line(n)
	switch key := keyed().FindStringSubmatch(before); {
	case n == 0:
	case key != nil && len(key[1]) < len(m[1]):
		return fmt.Sprintf("it is indented deeper than line %d, which has a value already: give both the same indentation", n+first)
	case key != nil:
	default:
		if g := glued().FindStringSubmatch(before); g != nil {
			return fmt.Sprintf("line %d needs a space after the colon: %s: %s", n+first, g[1], truncate(g[2]))
		}
		word, value, _ := strings.Cut(strings.TrimSpace(before), " ")
		return fmt.Sprintf("line %d has no colon: %s", n+first, strings.TrimSpace(truncate(word)+": "+truncate(value)))
	}
	return `quote text that contains ": "`
}

// wordAround is the source with brackets, as train[*], at or around a column from 0; "" if there is none.
func wordAround(line string, column int) string {
	for _, span := range bracketed().FindAllStringIndex(line, -1) {
		if span[0] <= column && column <= span[1] {
			return line[span[0]:span[1]]
		}
	}
	return ""
}

// yamlQuoted is the text up to the end of its value in double quotes.
func yamlQuoted(text string) string {
	if end := strings.IndexAny(text, ",}]\r"); end > 0 {
		text = text[:end]
	}
	text = strings.TrimRight(text, " ")
	if text == "" {
		return `"text"`
	}
	if strings.ContainsAny(text, `"\`) {
		return "'" + truncate(strings.ReplaceAll(text, "'", "''")) + "'"
	}
	return `"` + truncate(text) + `"`
}
