package manifest

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/notation"
)

// A Warning is something in a correct file that is probably not meant.
type Warning struct {
	File         string
	Line, Column int
	Msg          string
}

// String gives "file:line:column: message".
func (w Warning) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", w.File, w.Line, w.Column, w.Msg)
}

// Lint finds inputs that no task reads, braces
// in arguments that look like a misspelt name, and shell scripts that use a name outside of quotes. It guesses: it
// reads scripts by the rough shape of the shell's grammar only.
func Lint(d *Definition) []Warning {
	l := linter{def: d}
	l.unusedInputs()
	var last *Spec
	for i := range d.Tasks {
		if t := &d.Tasks[i]; t.Spec != last {
			last = t.Spec
			l.task(t)
		}
	}
	slices.SortStableFunc(l.warnings, func(a, b Warning) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return l.warnings
}

type linter struct {
	def      *Definition
	warnings []Warning
}

func (l *linter) warn(pos Pos, format string, args ...any) {
	l.warnings = append(l.warnings, Warning{l.def.File, int(pos.Line), int(pos.Column), fmt.Sprintf(format, args...)})
}

func (l *linter) unusedInputs() {
	used := make([]bool, len(l.def.Inputs))
	for i := range l.def.Tasks {
		for _, in := range l.def.Tasks[i].Inputs {
			if in.Source.Kind == FromInput {
				used[in.Source.Index] = true
			}
		}
	}
	for i, u := range used {
		if !u {
			l.warn(l.def.Inputs[i].Pos, "no task reads the input %s", l.def.Inputs[i].Name)
		}
	}
}

func (l *linter) task(t *Task) {
	names := make([]string, 0, len(t.Inputs)+len(t.Outputs)+len(t.Items))
	for i := range t.Inputs {
		names = append(names, t.Inputs[i].Name)
	}
	for i := range t.Outputs {
		names = append(names, t.Outputs[i].Name)
	}
	for i := range t.Items {
		names = append(names, t.Items[i].Name)
	}
	if t.Command.Shell != "" {
		declared := make(map[string]bool, len(names))
		for _, name := range names {
			declared[name] = true
		}
		for _, use := range unquoted(t.Command.Shell) {
			if declared[use.name] {
				delete(declared, use.name) // once a task
				l.warn(t.RunPos, `task %s: line %d of the script uses $%s outside of double quotes; write "$%s"`, t.Base, use.line, use.name, use.name)
			}
		}
		return
	}
	for _, arg := range t.Command.Argv {
		for {
			_, name, after, ok := cutBraces(arg)
			if !ok {
				break
			}
			if !slices.Contains(names, name) {
				if like := notation.Nearest(name, slices.Values(names)); like != "" {
					l.warn(t.RunPos, "task %s: {%s} is passed on as it is; did you mean {%s}?", t.Base, name, like)
				}
			}
			arg = after
		}
	}
}

// A use is a variable of a script outside of quotes.
type use struct {
	name string
	line int
}

// unquoted finds the variables that a shell script expands where the result is split into words. It knows quotes,
// comments, here-documents, command substitution, assignments and the double-bracket forms, which do not split.
func unquoted(script string) []use {
	var uses []use
	var nest []byte // what is open: '"', '(' of $(…), '[' of [[ … ]], '#' of ((…))
	line, wordStart := 1, 0
	assigned := false // the present word is name=…, whose value is not split
	var heredocs []string
	inside := func(c byte) bool { return len(nest) > 0 && nest[len(nest)-1] == c }
	has := func(i int, s string) bool { return strings.HasPrefix(script[i:], s) }
	for i := 0; i < len(script); i++ {
		c := script[i]
		if inside('"') {
			switch {
			case c == '\n':
				line++
			case c == '\\':
				i++
			case c == '"':
				nest = nest[:len(nest)-1]
			case c == '$' && has(i, "$(") && !has(i, "$(("):
				nest = append(nest, '(')
				i++
				wordStart, assigned = i+1, false
			}
			continue
		}
		switch {
		case c == '\n':
			line++
			assigned = false
			for _, end := range heredocs {
				for i+1 < len(script) {
					text, _, _ := strings.Cut(script[i+1:], "\n")
					i += len(text) + 1
					line++
					if strings.Trim(text, "\t") == end {
						break
					}
				}
			}
			heredocs = nil
			wordStart = i + 1
		case c == '\\':
			i++
			if i < len(script) && script[i] == '\n' {
				line++
			}
		case c == '\'':
			end := strings.IndexByte(script[i+1:], '\'')
			if end < 0 {
				return uses
			}
			line += strings.Count(script[i+1:i+1+end], "\n")
			i += end + 1
		case c == '"':
			nest = append(nest, '"')
		case c == '#' && i == wordStart:
			end := strings.IndexByte(script[i:], '\n')
			if end < 0 {
				return uses
			}
			i += end - 1
		case has(i, "[[") && i == wordStart:
			nest = append(nest, '[')
			i++
		case has(i, "]]") && inside('['):
			nest = nest[:len(nest)-1]
			i++
		case has(i, "((") || has(i, "$(("):
			nest = append(nest, '#')
			i += strings.IndexByte(script[i:], '(') + 1
		case has(i, "))") && inside('#'):
			nest = nest[:len(nest)-1]
			i++
		case has(i, "$("):
			nest = append(nest, '(')
			i++
			wordStart, assigned = i+1, false
		case c == ')' && inside('('):
			nest = nest[:len(nest)-1]
			assigned = false
		case has(i, "<<") && !has(i, "<<<") && !inside('#'):
			rest := strings.TrimLeft(script[i+2:], "- \t")
			rest, _, _ = strings.Cut(rest, "\n")
			if word := strings.Trim(firstWord(rest), `'"\`); word != "" {
				heredocs = append(heredocs, word)
			}
			i++
		case has(i, "<<<"):
			i += 2
			wordStart, assigned = i+1, true // a here-string is not split
		case strings.IndexByte(" \t;&|()<>", c) >= 0:
			wordStart, assigned = i+1, assigned && wordStart == i
		case c == '=' && i > wordStart && assignable(script[wordStart:i]):
			assigned = true
		case c == '$' && !assigned && !inside('[') && !inside('#'):
			if name := variable(script[i+1:]); name != "" {
				uses = append(uses, use{name, line})
			}
		}
	}
	return uses
}

// assignable says whether s is a name to which a shell can assign.
func assignable(s string) bool { return !notation.IsDigit(s[0]) && notation.Only(s, notation.IsWord) }

func firstWord(s string) string {
	if i := strings.IndexAny(s, " \t;&|()<>"); i >= 0 {
		return s[:i]
	}
	return s
}

// variable is the name that is expanded after a dollar sign: name, {name} or {name followed by an operator. The
// length ${#name} is a number and safe.
func variable(s string) string {
	s = strings.TrimPrefix(s, "{")
	end := 0
	for end < len(s) && notation.IsWord(s[end]) {
		end++
	}
	if name := s[:end]; ValidInputName(name) {
		return name
	}
	return ""
}
