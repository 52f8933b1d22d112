package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Pattern is the path of an input whose files are items: it has names in braces, such as raw/{sample}_{lane}.fq. A
// name stands for any non-empty text without a slash; the same name stands for the same text everywhere in the path.
// Beside names a pattern may have the wildcards of a glob. A brace that encloses no name is literal.
type Pattern struct {
	Names []string // in the order of their first appearance
	Glob  string   // the glob of the files: with * for each name
	parts []string // parts of the path, between slashes
}

// ParsePattern reads a clean relative pattern.
func ParsePattern(s string) (*Pattern, error) {
	p := &Pattern{parts: strings.Split(s, "/")}
	var glob strings.Builder
	for rest := s; ; {
		before, name, after, ok := cutBraces(rest)
		glob.WriteString(before)
		if !ok {
			glob.WriteString(rest)
			break
		}
		glob.WriteByte('*')
		if !slices.Contains(p.Names, name) {
			p.Names = append(p.Names, name)
		}
		if strings.HasPrefix(after, "*") || strings.HasSuffix(before, "*") || strings.HasPrefix(after, "{") && startsName(after) {
			return nil, fmt.Errorf("nothing separates {%s} from what stands beside it, so that its text cannot be told", name)
		}
		rest = after
	}
	if len(p.Names) == 0 {
		return nil, errors.New("the pattern has no {name}")
	}
	if len(p.Names) > maxDimensions {
		return nil, fmt.Errorf("the pattern has more than %d names", maxDimensions)
	}
	p.Glob = glob.String()
	return p, CheckGlob(p.Glob)
}

func startsName(s string) bool {
	before, _, _, ok := cutBraces(s)
	return ok && before == ""
}

// Match returns the texts of the names in a path that the glob matches, in the order of Names; false if the pattern
// does not match. If several texts are possible, the first name gets the longest text, then the second, and so on.
func (p *Pattern) Match(path string) ([]string, bool) {
	m := matcher{names: p.Names, texts: make([]string, len(p.Names)), budget: 1 << 20}
	ok := m.parts(p.parts, strings.Split(path, "/"))
	return m.texts, ok
}

// A matcher finds the texts of names by trying, with a bound on the number of tries.
type matcher struct {
	names  []string
	texts  []string // "" while a name has none
	budget int
}

func (m *matcher) parts(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if m.budget--; m.budget < 0 {
		return false
	}
	if pattern[0] == "**" {
		if len(pattern) == 1 {
			return len(path) > 0
		}
		for skip := 0; skip <= len(path); skip++ {
			if m.parts(pattern[1:], path[skip:]) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return false
	}
	return m.part(pattern[0], path[0], func() bool { return m.parts(pattern[1:], path[1:]) })
}

// part matches one part of a path and then the following parts.
func (m *matcher) part(pattern, s string, then func() bool) bool {
	if m.budget--; m.budget < 0 {
		return false
	}
	if pattern == "" {
		return s == "" && then()
	}
	if before, name, after, ok := cutBraces(pattern); ok && before == "" {
		k := slices.Index(m.names, name)
		if known := m.texts[k]; known != "" {
			rest, ok := strings.CutPrefix(s, known)
			return ok && m.part(after, rest, then)
		}
		for n := len(s); n > 0; n-- {
			if !atCharacter(s, n) {
				continue
			}
			m.texts[k] = s[:n]
			if m.part(after, s[n:], then) {
				return true
			}
		}
		m.texts[k] = ""
		return false
	}
	switch pattern[0] {
	case '*':
		for n := len(s); n >= 0; n-- {
			if atCharacter(s, n) && m.part(pattern[1:], s[n:], then) {
				return true
			}
		}
		return false
	case '?':
		if s == "" {
			return false
		}
		_, size := utf8.DecodeRuneInString(s)
		return m.part(pattern[1:], s[size:], then)
	}
	return s != "" && s[0] == pattern[0] && m.part(pattern[1:], s[1:], then)
}

// atCharacter reports whether no character of s reaches across the offset.
func atCharacter(s string, offset int) bool { return offset == len(s) || utf8.RuneStart(s[offset]) }

// Wildcard returns the text that the only wildcard of a glob matches in a path. A glob with several wildcards has no
// such text.
func Wildcard(glob, path string) (string, bool) {
	i := strings.IndexAny(glob, "*?")
	if i < 0 || !OneWildcard(glob) {
		return "", false
	}
	wild := 1
	if strings.HasPrefix(glob[i:], "**") {
		wild = 2
	}
	before, after := glob[:i], glob[i+wild:]
	if wild == 2 && after != "" {
		// A ** in the middle may stand for no folder: a/**/b matches a/b.
		if after, before := after[1:], before; path == before+after {
			return "", false
		}
	}
	if len(path) < len(before)+len(after) || !strings.HasPrefix(path, before) || !strings.HasSuffix(path, after) {
		return "", false
	}
	return path[i : len(path)-len(after)], true
}

// OneWildcard reports whether a glob has one wildcard.
func OneWildcard(glob string) bool {
	return strings.Count(strings.ReplaceAll(glob, "**", "*"), "*")+strings.Count(glob, "?") == 1
}
