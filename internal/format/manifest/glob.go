package manifest

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

// A glob pattern is a slash-separated path in which "*" stands for any text without a slash, "?" for one character, and
// "**", as a whole part, for any number of folders, including none; at the end it stands for all files below. All other
// characters are literal, including brackets, braces and backslashes. A name that begins with a dot is matched only by
// a part of the pattern that begins with a dot: no wildcard enters hidden folders. Nothing in a folder named .e3 is
// ever matched.

// CheckGlob returns the fault of a pattern that is clean and relative, nil if it has none.
func CheckGlob(pattern string) error {
	if !fs.ValidPath(pattern) {
		return errors.New("the pattern is not a clean relative path")
	}
	for part := range strings.SplitSeq(pattern, "/") {
		if part != "**" && strings.Contains(part, "**") {
			return errors.New("** must stand alone between slashes")
		}
	}
	if !strings.ContainsAny(pattern, "*?") {
		return errors.New("the pattern has no * or ?")
	}
	return nil
}

// GlobPrefix returns the longest leading path of a pattern without a wildcard; "." if the first part has one.
func GlobPrefix(pattern string) string {
	wild := strings.IndexAny(pattern, "*?")
	if wild < 0 {
		return pattern
	}
	if slash := strings.LastIndexByte(pattern[:wild], '/'); slash >= 0 {
		return pattern[:slash]
	}
	return "."
}

// MatchGlob reports whether the file at the clean relative path rel matches the pattern. Its time is at most
// proportional to the product of both lengths.
func MatchGlob(pattern, rel string) bool {
	folder, names := GlobIn(pattern), strings.Split(rel, "/")
	last := len(names) - 1
	for _, name := range names[:last] {
		folder = folder.Enter(name)
	}
	return folder.Match(names[last])
}

// Matching keeps the set of all possible positions in the pattern, in ascending order: the parts that may match the
// next part of the path. The position len(parts) means that the pattern is used up.

// globClose adds a position, and the positions reached from it if "**" stands for nothing. A final "**" must stand for
// something.
func globClose(parts []string, at []int, i int) []int {
	for {
		if len(at) == 0 || at[len(at)-1] < i {
			at = append(at, i)
		}
		if i >= len(parts)-1 || parts[i] != "**" {
			return at
		}
		i++
	}
}

// globStep is the set after one more part of the path.
func globStep(parts []string, at []int, name string) []int {
	var next []int
	hidden := strings.HasPrefix(name, ".")
	for _, i := range at {
		switch {
		case i == len(parts):
		case parts[i] == "**":
			if hidden {
				continue
			}
			next = globClose(parts, next, i)
			if i == len(parts)-1 {
				next = globClose(parts, next, i+1)
			}
		case hidden && !strings.HasPrefix(parts[i], "."):
		case matchPart(parts[i], name):
			next = globClose(parts, next, i+1)
		}
	}
	return next
}

// matchPart matches one part of a path with * and ?. On a mismatch only the latest * takes one more character. Earlier
// * need no retry: a longer match of an earlier * only leaves less of the name for the latest one.
func matchPart(pattern, name string) bool {
	star, retry := -1, 0
	p, n := 0, 0
	for n < len(name) {
		r, size := utf8.DecodeRuneInString(name[n:])
		if p < len(pattern) {
			if pattern[p] == '*' {
				star, retry = p, n
				p++
				continue
			}
			q, qsize := utf8.DecodeRuneInString(pattern[p:])
			if pattern[p] == '?' || q == r && pattern[p:p+qsize] == name[n:n+size] {
				p, n = p+qsize, n+size
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, size = utf8.DecodeRuneInString(name[retry:])
		retry += size
		p, n = star+1, retry
	}
	return strings.TrimLeft(pattern[p:], "*") == ""
}

// A GlobAt is a folder on the way of a pattern: it knows which parts of the pattern the names in the folder may match.
// With it, a walk enters no folder that cannot hold a file of the pattern.
type GlobAt struct {
	parts []string
	at    []int
}

// GlobIn returns the folder to which a pattern is relative.
func GlobIn(pattern string) GlobAt {
	parts := strings.Split(pattern, "/")
	return GlobAt{parts, globClose(parts, nil, 0)}
}

// Enter returns the folder with this name. It is [GlobAt.Closed] if no file below it can match.
func (g GlobAt) Enter(name string) GlobAt {
	if name == repositoryDir {
		return GlobAt{}
	}
	return GlobAt{g.parts, globStep(g.parts, g.at, name)}
}

// EnterLink is Enter for a link to a folder. A part that stands for one name enters the link. ** does not, since links
// may lead in circles or to the whole machine; passed says that ** would enter a folder of this name.
func (g GlobAt) EnterLink(name string) (to GlobAt, passed bool) {
	var named []int
	for _, i := range g.at {
		if i < len(g.parts) && g.parts[i] == "**" {
			passed = passed || !strings.HasPrefix(name, ".")
		} else {
			named = append(named, i)
		}
	}
	return GlobAt{g.parts, named}.Enter(name), passed
}

// Closed reports whether no file in this folder, or below, matches.
func (g GlobAt) Closed() bool { return len(g.at) == 0 || g.at[0] == len(g.parts) }

// Match reports whether the file of this name matches the pattern.
func (g GlobAt) Match(name string) bool {
	at := globStep(g.parts, g.at, name)
	return len(at) > 0 && at[len(at)-1] == len(g.parts)
}

// Hides reports whether the file of this name fails to match only because it is hidden. Parts that fit any name do not
// count.
func (g GlobAt) Hides(name string) bool {
	if !strings.HasPrefix(name, ".") || g.Match(name) {
		return false
	}
	last := len(g.parts) - 1
	return slices.Contains(g.at, last) && strings.Trim(g.parts[last], "*") != "" && matchPart(g.parts[last], name)
}
