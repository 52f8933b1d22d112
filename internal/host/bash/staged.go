package bash

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Staged returns a script that runs files of its working directory in place of programs of the same names in the PATH.
// It replaces the command's name in simple commands, also behind exec and command. files has the names of these files
// by the variables that hold them. If a script assigns such a variable, or has a function of such a name, that variable
// or name stays. A script that does not parse stays as it is, and bash says what is wrong.
func Staged(script string, files map[string]string) string {
	if len(files) == 0 {
		return script
	}
	file := parse(script)
	if file == nil {
		return script
	}
	own, names := owned(file), slices.Collect(maps.Values(files))
	staged := func(word *syntax.Word) bool {
		if lit := literal(word); lit != "" {
			return !own[lit] && slices.Contains(names, lit)
		}
		name := expanded(word)
		_, known := files[name]
		return known && !own[name] && !own[files[name]]
	}
	var at []int
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		args := call.Args
		for len(args) > 1 && (literal(args[0]) == "exec" || literal(args[0]) == "command") {
			args = args[1:]
		}
		if len(args) > 0 && staged(args[0]) {
			at = append(at, int(args[0].Pos().Offset()))
		}
		return true
	})
	slices.Sort(at)
	for _, i := range slices.Backward(at) {
		// Within backquotes the parser's offsets may be offsets in the unescaped text.
		if i < len(script) && (strings.IndexByte(`$"'`, script[i]) >= 0 || slices.ContainsFunc(names, func(f string) bool { return strings.HasPrefix(script[i:], f) })) {
			script = script[:i] + "./" + script[i:]
		}
	}
	return script
}

// maxStatement is the greatest length in bytes of a statement that is parsed. The bound keeps hostile nesting from
// exhausting the stack.
const maxStatement = 32 << 10

var errStatement = errors.New("a statement is too long")

// parse parses a script; nil if it does not parse.
func parse(script string) *syntax.File {
	source, file := &source{strings.NewReader(script), maxStatement}, &syntax.File{}
	for stmt, err := range syntax.NewParser().StmtsSeq(source) {
		if err != nil {
			return nil
		}
		file.Stmts, source.left = append(file.Stmts, stmt), maxStatement
	}
	return file
}

// A source is what is left to read of a script before its next statement must end.
type source struct {
	script *strings.Reader
	left   int
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 && s.script.Len() > 0 {
		return 0, errStatement
	}
	n, err := s.script.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

// owned are the names that a script itself assigns or defines.
func owned(file *syntax.File) map[string]bool {
	own := map[string]bool{}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.Assign:
			if n.Name != nil && !n.Naked {
				own[n.Name.Value] = true
			}
		case *syntax.WordIter:
			own[n.Name.Value] = true
		case *syntax.FuncDecl:
			own[n.Name.Value] = true
		case *syntax.CallExpr:
			if len(n.Args) > 0 && slices.Contains([]string{"read", "printf", "mapfile", "readarray", "getopts", "unset", "alias"}, literal(n.Args[0])) {
				for _, arg := range n.Args[1:] {
					name, _, _ := strings.Cut(literal(arg), "=")
					own[name] = true
				}
			}
		}
		return true
	})
	return own
}

// literal is the text of a word without expansions; "" if it has any.
func literal(word *syntax.Word) string {
	if len(word.Parts) != 1 {
		return ""
	}
	switch p := word.Parts[0].(type) {
	case *syntax.Lit:
		return p.Value
	case *syntax.SglQuoted:
		return p.Value
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 {
			if lit, ok := p.Parts[0].(*syntax.Lit); ok {
				return lit.Value
			}
		}
	}
	return ""
}

// expanded is the variable if the word is nothing but its expansion; else "".
func expanded(word *syntax.Word) string {
	parts := word.Parts
	if len(parts) == 1 {
		if q, ok := parts[0].(*syntax.DblQuoted); ok {
			parts = q.Parts
		}
	}
	if len(parts) != 1 {
		return ""
	}
	p, ok := parts[0].(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Excl || p.Length || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil {
		return ""
	}
	return p.Param.Value
}
