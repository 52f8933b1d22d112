// Package bash knows what bash does for a script that is one plain command, so that such a script needs no bash.
//
// [Parse] decides by the text alone: one simple command of literal, quoted and "$name" words, and redirections to such
// words. [Command.Bind] decides by the environment. If either is not certain, bash runs the script. Bash also runs
// every command that cannot be started: it finds out the reason, and reports it in its own words. The caller then
// starts the same file with the same arguments, environment and descriptors ([Process]), and reports the same end
// ([Process.Died]).
//
// A [Checker] compares the installed bash with what this package knows, before any script goes without it.
package bash

import (
	"strings"
	"unicode/utf8"
)

const (
	maxScript    = 16 << 10 // bytes: a longer script is hardly one plain command
	maxRedirects = 16       // each needs a descriptor
)

// A Command is a script that bash would run as one process. It is immutable.
type Command struct {
	words     []word
	redirects []redirect
	line      int // the line of the script at which bash reports the command's end
}

// word is a word of a command.
type word struct {
	parts  []part
	source string // text in the script
}

// part is literal text, or the name of a variable.
type part struct {
	text     string
	variable bool
}

// redirect is a redirection of a descriptor to a file, or to a copy of the descriptor from.
type redirect struct {
	fd, from int // from is -1 for a file
	operator string
	target   word
}

// Parse returns the one command of a script, or nil if the script needs bash.
//
// A script that begins with blank lines or comment lines and ends with one newline has one command too. Its words
// consist of harmless characters, text in single quotes, and text in double quotes with $name and ${name}.
func Parse(script string) *Command {
	if len(script) > maxScript || !utf8.ValidString(script) {
		return nil
	}
	p := parser{src: script}
	p.skipEmptyLines()
	c := &Command{}
	for {
		p.skipBlanks()
		switch {
		case p.atEnd():
			if len(c.words) == 0 || !isProgram(c.words[0].source) {
				return nil
			}
			c.line = 1 + strings.Count(script[:p.at], "\n")
			return c
		case p.redirects():
			r, ok := p.redirect()
			if !ok || len(c.redirects) == maxRedirects {
				return nil
			}
			c.redirects = append(c.redirects, r)
		default:
			w, ok := p.word()
			if !ok {
				return nil
			}
			c.words = append(c.words, w)
		}
	}
}

// isProgram reports whether a first word, as it stands in a script, names a program, and not a builtin, a keyword, a
// job, or an assignment.
func isProgram(word string) bool {
	for i := range len(word) {
		switch c := word[i]; {
		case isNameByte(c), c == '.', c == '/':
		case c == '-', c == '+':
			if i == 0 {
				return false
			}
		default:
			return false
		}
	}
	return word != "" && !own[word]
}

// parser reads a script. Its methods return false if bash has to read it.
type parser struct {
	src string
	at  int
}

// peek returns the byte at an offset from here; 0 behind the end. A NUL byte in a script is refused as any other
// control character.
func (p *parser) peek(offset int) byte {
	if i := p.at + offset; i < len(p.src) {
		return p.src[i]
	}
	return 0
}

// skipEmptyLines skips lines without a word.
func (p *parser) skipEmptyLines() {
	for {
		rest := strings.TrimLeft(p.src[p.at:], " \t")
		if rest == "" || rest[0] != '#' && rest[0] != '\n' {
			return
		}
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			return
		}
		p.at = len(p.src) - len(rest) + end + 1
	}
}

// skipBlanks skips what separates words: blanks and escaped newlines.
func (p *parser) skipBlanks() {
	for {
		switch c := p.peek(0); {
		case c == ' ' || c == '\t':
			p.at++
		case c == '\\' && p.peek(1) == '\n':
			p.at += 2
		default:
			return
		}
	}
}

// atEnd reports whether the script has ended, with or without a newline. Anything behind the newline, even an empty
// line, means that bash does not treat the command as the last one.
func (p *parser) atEnd() bool {
	return p.at == len(p.src) || p.peek(0) == '\n' && p.at+1 == len(p.src)
}

// redirects reports whether a redirection begins here.
func (p *parser) redirects() bool {
	i := p.at
	for i < len(p.src) && isDigit(p.src[i]) {
		i++
	}
	switch {
	case i == len(p.src):
		return false
	case p.src[i] == '<' || p.src[i] == '>':
		return true
	}
	return i == p.at && p.src[i] == '&' && p.peek(1) == '>'
}

// redirect reads a redirection.
func (p *parser) redirect() (r redirect, ok bool) {
	r = redirect{fd: -1, from: -1}
	if isDigit(p.peek(0)) {
		r.fd = int(p.peek(0) - '0')
		p.at++
		if r.fd > 2 || isDigit(p.peek(0)) {
			return r, false
		}
	}
	for _, r.operator = range []string{"&>>", "&>", ">>", ">|", ">&", ">", "<<", "<>", "<&", "<"} {
		if strings.HasPrefix(p.src[p.at:], r.operator) {
			break
		}
	}
	p.at += len(r.operator)
	switch r.operator {
	case "<":
		if r.fd < 0 {
			r.fd = 0
		}
	case ">", ">>", ">|":
		if r.fd < 0 {
			r.fd = 1
		}
	case "&>", "&>>":
		if r.fd >= 0 {
			return r, false
		}
	case ">&":
		if r.fd < 0 {
			r.fd = 1
		}
		r.from = int(p.peek(0)) - '0'
		p.at++
		return r, r.from >= 0 && r.from <= 2 && (p.atEnd() || p.peek(0) == ' ' || p.peek(0) == '\t')
	default:
		return r, false
	}
	p.skipBlanks()
	r.target, ok = p.word()
	return r, ok
}

// word reads a word, which ends before a blank, a newline or a redirection.
func (p *parser) word() (w word, ok bool) {
	start := p.at
	for {
		switch c := p.peek(0); {
		case p.at == len(p.src) || c == ' ' || c == '\t' || c == '\n':
			return p.end(w, start)
		case c == '<' || c == '>':
			for i := start; i < p.at; i++ {
				if !isDigit(p.src[i]) {
					return p.end(w, start)
				}
			}
			return w, false // the word is the number of a descriptor
		case c == '\\' && p.peek(1) == '\n' && (p.peek(2) == ' ' || p.peek(2) == '\t'):
			return p.end(w, start)
		case c == '\'':
			ok = p.single(&w)
		case c == '"':
			ok = p.double(&w)
		default:
			ok = p.plain(&w)
		}
		if !ok {
			return w, false
		}
	}
}

// end ends a word.
func (p *parser) end(w word, start int) (word, bool) {
	w.source = p.src[start:p.at]
	return w, w.source != ""
}

// plain reads characters outside of quotes that mean nothing to bash wherever they stand in an argument.
func (p *parser) plain(w *word) bool {
	start := p.at
	for p.at < len(p.src) && isPlain(p.src[p.at]) {
		p.at++
	}
	w.parts = append(w.parts, part{text: p.src[start:p.at]})
	return p.at > start
}

// single reads text in single quotes.
func (p *parser) single(w *word) bool {
	length := strings.IndexByte(p.src[p.at+1:], '\'')
	if length < 0 {
		return false
	}
	text := p.src[p.at+1:][:length]
	for i := range len(text) {
		if isControl(text[i]) {
			return false
		}
	}
	w.parts = append(w.parts, part{text: text})
	p.at += length + 2
	return true
}

// double reads text in double quotes.
func (p *parser) double(w *word) bool {
	p.at++
	start := p.at
	literal := func() {
		if p.at > start {
			w.parts = append(w.parts, part{text: p.src[start:p.at]})
		}
	}
	w.parts = append(w.parts, part{}) // "" is a word, too
	for p.at < len(p.src) {
		switch c := p.src[p.at]; {
		case c == '"':
			literal()
			p.at++
			return true
		case c == '`' || isControl(c):
			return false
		case c == '\\':
			switch p.peek(1) {
			case '\n':
				return false
			case '"', '\\', '$', '`':
				literal()
				p.at++
				start = p.at
			}
			p.at++
		case c == '$':
			literal()
			name, ok := p.name()
			if !ok {
				return false
			}
			w.parts = append(w.parts, part{text: name, variable: true})
			start = p.at
		default:
			p.at++
		}
	}
	return false
}

// name reads $name or ${name}. It refuses names that bash sets or interprets itself.
func (p *parser) name() (string, bool) {
	p.at++
	braces := p.peek(0) == '{'
	if braces {
		p.at++
	}
	start := p.at
	for p.at < len(p.src) && isNameByte(p.src[p.at]) {
		p.at++
	}
	name := p.src[start:p.at]
	if braces {
		if p.peek(0) != '}' {
			return "", false
		}
		p.at++
	}
	return name, isName(name) && !Special(name)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isName(name string) bool {
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return false
		}
	}
	return name != "" && !isDigit(name[0])
}

// isPlain reports whether a byte stands for itself outside of quotes. So does an equals sign behind the first word; a
// first word with an equals sign has been refused as an assignment.
func isPlain(c byte) bool {
	switch c {
	case '.', '/', '-', '+', ',', ':', '@', '%', '=':
		return true
	}
	return isNameByte(c)
}

// isControl reports whether a byte is a control character. Bash uses two control characters internally to mark text.
func isControl(c byte) bool { return c < ' ' && c != '\n' && c != '\t' || c == 0x7f }
