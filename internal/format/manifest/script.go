package manifest

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"e3/internal/format/pattern"
)

// maxScript is the greatest length in bytes of a script that is parsed. The bound keeps hostile nesting from exhausting
// the stack.
const maxScript = 128 << 10

// A use is the expansion of a variable outside of quotes.
type use struct {
	name string
	line int
}

// unquoted finds the variables that a script expands where bash splits the result into words: in arguments of
// commands, lists of loops, elements of arrays and targets of redirections. Assignments, here-documents, case and the
// double-bracket forms do not split. A script that does not parse has no uses.
func unquoted(parser *syntax.Parser, script string) []use {
	if len(script) > maxScript || plainlyQuoted(script) {
		return nil
	}
	file, err := parser.Parse(strings.NewReader(script), "")
	if err != nil {
		return nil
	}
	var uses []use
	var split func(words ...*syntax.Word)
	split = func(words ...*syntax.Word) {
		for _, word := range words {
			if word == nil {
				continue
			}
			for _, part := range word.Parts {
				p, ok := part.(*syntax.ParamExp)
				if !ok {
					continue
				}
				if p.Param != nil && !p.Length && !p.Excl && !alternate(p) {
					uses = append(uses, use{p.Param.Value, int(p.Pos().Line())})
				}
				if p.Exp != nil && substitutes(p) {
					split(p.Exp.Word)
				}
			}
		}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			split(n.Args...)
		case *syntax.WordIter:
			split(n.Items...)
		case *syntax.ArrayElem:
			split(n.Value)
		case *syntax.DeclClause:
			for _, arg := range n.Args {
				if arg.Name == nil {
					split(arg.Value)
				}
			}
		case *syntax.Redirect:
			if n.Hdoc == nil && n.Op != syntax.WordHdoc {
				split(n.Word)
			}
		}
		return true
	})
	return uses
}

// foreign finds the variables that a script expands, without a value of their own, and that have neither one of the names
// nor a place in the script where it might set them. A script that does not parse has none.
func foreign(parser *syntax.Parser, script string, names []string) (list []use) {
	if len(script) > maxScript {
		return nil
	}
	words, some := map[string]bool{}, false // beside expansions: read x, for x, x=1, printf -v x
	for _, word := range wordOf().FindAllString(script, -1) {
		if name := strings.TrimLeft(word, "${"); name == word {
			words[name] = true
		} else if !slices.Contains(names, name) {
			some = true
		}
	}
	if !some {
		return nil
	}
	file, err := parser.Parse(strings.NewReader(script), "")
	if err != nil {
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if p, ok := node.(*syntax.ParamExp); ok && p.Param != nil && p.Exp == nil && !slices.Contains(names, p.Param.Value) && !words[p.Param.Value] {
			list = append(list, use{p.Param.Value, int(p.Pos().Line())})
		}
		return true
	})
	return list
}

var wordOf = pattern.Of(`(?:\$\{?)?[A-Za-z_][A-Za-z0-9_]*`)

// A brace is a word in braces that a script has outside of quotes, as {input} or {wildcards.sample}.
type brace struct {
	name, member string
	line         int
}

var braced = pattern.Of(`\{([a-z_][a-z0-9_]*)(?:\.([A-Za-z_][A-Za-z0-9_]*)|\[\w+\])?\}`)

// braces finds names in braces in arguments of commands and targets of redirections, where bash takes them as they are.
// Programs of Snakemake and others are written so. A script that does not parse has none.
func braces(parser *syntax.Parser, script string) (list []brace) {
	if len(script) > maxScript || !braced().MatchString(script) {
		return nil
	}
	file, err := parser.Parse(strings.NewReader(script), "")
	if err != nil {
		return nil
	}
	look := func(word *syntax.Word) {
		if word == nil {
			return
		}
		for _, part := range word.Parts {
			if lit, ok := part.(*syntax.Lit); ok {
				for _, m := range braced().FindAllStringSubmatch(lit.Value, -1) {
					list = append(list, brace{m[1], m[2], int(lit.Pos().Line())})
				}
			}
		}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			for _, word := range n.Args {
				look(word)
			}
		case *syntax.Redirect:
			if n.Hdoc == nil {
				look(n.Word)
			}
		}
		return true
	})
	return list
}

// plainlyQuoted reports whether all expansions of a script are in double quotes. It gives up, and returns false, at any
// character that could change the meaning of a double quote. Most scripts therefore need no parser, which is ten times
// slower.
func plainlyQuoted(script string) bool {
	inside := false
	for i := range len(script) {
		switch c := script[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' || c == '\'' || c == '`':
			return false
		case c == '#' || c == '<':
			if !inside { // a comment or a here-document
				return false
			}
		case c == '$':
			if !inside || i+1 < len(script) && (script[i+1] == '(' || script[i+1] == '{' || script[i+1] == '[') {
				return false
			}
		}
	}
	return !inside
}

// alternate reports whether p is ${name+word} or ${name:+word}, whose result is word and never the variable's value.
func alternate(p *syntax.ParamExp) bool {
	return p.Exp != nil && (p.Exp.Op == syntax.AlternateUnset || p.Exp.Op == syntax.AlternateUnsetOrNull)
}

// substitutes reports whether the result of p may be the word after its operator, as opposed to a part of the
// variable's value.
func substitutes(p *syntax.ParamExp) bool {
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		return true
	}
	return alternate(p)
}
