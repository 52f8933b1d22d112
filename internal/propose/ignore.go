package propose

import (
	"io/fs"
	"path"
	"strings"
)

// Ignored returns a function that reports whether Git would ignore a path of a project, by the files .gitignore in its
// folders, or the path lies in a folder of programs. It does not read such files above the project, nor the user's own.
func Ignored(files fs.FS) func(rel string) bool {
	known := map[string][]rule{}
	rules := func(dir string) []rule {
		list, ok := known[dir]
		if !ok {
			text, _ := fs.ReadFile(files, path.Join(dir, ".gitignore"))
			list = parseRules(string(text))
			known[dir] = list
		}
		return list
	}
	var ignored func(rel string, dir bool) bool
	ignored = func(rel string, dir bool) bool {
		parent := path.Dir(rel)
		if parent != "." && ignored(parent, true) {
			return true
		}
		// The last rule of the deepest file that matches decides.
		for at := parent; ; at = path.Dir(at) {
			below := rel
			if at != "." {
				below = strings.TrimPrefix(rel, at+"/")
			}
			list := rules(at)
			for i := len(list) - 1; i >= 0; i-- {
				if r := &list[i]; (!r.folder || dir) && r.matches(below) {
					return !r.not
				}
			}
			if at == "." {
				return false
			}
		}
	}
	return func(rel string) bool {
		info, err := fs.Stat(files, rel)
		return ignored(rel, err == nil && info.IsDir()) || environmentAround(files, rel) != ""
	}
}

// A rule is a line of a .gitignore.
type rule struct {
	parts  []string // parts of the path; a single part matches a name in any folder
	not    bool     // the rule takes earlier rules back
	folder bool     // the rule is about folders alone
	here   bool     // the rule is about paths from the folder of the file
}

func parseRules(text string) []rule {
	var list []rule
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		var r rule
		line, r.not = strings.CutPrefix(line, "!")
		line = strings.TrimPrefix(line, `\`)
		line, r.folder = strings.CutSuffix(line, "/")
		r.here = strings.Contains(line, "/")
		r.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")
		list = append(list, r)
	}
	return list
}

func (r *rule) matches(rel string) bool {
	if !r.here {
		return matchName(r.parts[0], path.Base(rel))
	}
	return matchParts(r.parts, strings.Split(rel, "/"))
}

func matchParts(pattern, parts []string) bool {
	if len(pattern) == 0 {
		return len(parts) == 0
	}
	if pattern[0] == "**" {
		for i := range len(parts) + 1 {
			if matchParts(pattern[1:], parts[i:]) && (len(pattern) > 1 || i < len(parts)) {
				return true
			}
		}
		return len(pattern) == 1 && len(parts) > 0
	}
	return len(parts) > 0 && matchName(pattern[0], parts[0]) && matchParts(pattern[1:], parts[1:])
}

// matchName matches one part of a path. An invalid pattern matches nothing.
func matchName(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "[!", "[^"), name)
	return ok && err == nil
}
