package manifest

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// usual are patterns that every input of several files leaves out unless it takes them back: what systems, editors and
// Python leave beside files, and what no task should depend on.
var usual = []string{
	".DS_Store", "Thumbs.db", // of macOS and Windows
	"*~", "#*#", ".#*", ".*.swp", ".*.swo", // of Emacs, Vim and other editors
	".nfs*",                               // a removed file that a process has open
	"__pycache__/", ".ipynb_checkpoints/", // of Python and Jupyter
}

// Except knows which files an input leaves out. Its patterns are those of .gitignore: one without a slash fits a name
// at any depth, one with a slash a path from the package file, one with a slash at its end folders alone. The last
// pattern that fits decides, and ! takes back; what is in a folder that is left out is left out.
type Except struct {
	folder string          // of the input, relative to the package file; "" for the package file's own
	rules  []rule          // the last one first
	paths  bool            // a rule concerns paths
	exact  map[string]bool // paths that are left out whatever the rules say
}

// A rule is a pattern of an Except.
type rule struct {
	back   bool // it takes back
	folder bool // it fits folders alone
	usual  bool
	parts  []string // of a path; nil for a name
	// of a name: what stands before and after its only *; else the name, or a pattern with more wildcards
	before, after, name string
	wild                bool
}

// NewExcept returns the matcher of an input's patterns, in which paths are relative to folder. The patterns have been
// checked.
func NewExcept(patterns []string, folder string) *Except {
	e := &Except{folder: folder, exact: map[string]bool{}}
	if folder == "." {
		e.folder = ""
	}
	tail := true
	for _, p := range slices.Backward(patterns) {
		r := newRule(p)
		if tail = tail && r.isExact(); tail {
			e.exact[strings.Join(r.parts, "/")] = true
			continue
		}
		e.rules = append(e.rules, r)
	}
	for _, p := range slices.Backward(usual) {
		r := newRule(p)
		r.usual = true
		e.rules = append(e.rules, r)
	}
	e.paths = slices.ContainsFunc(e.rules, func(r rule) bool { return r.parts != nil })
	return e
}

func newRule(p string) (r rule) {
	p, r.back = strings.CutPrefix(p, "!")
	p, r.folder = strings.CutSuffix(p, "/")
	switch {
	case strings.Contains(p, "/"):
		r.parts = strings.Split(strings.TrimPrefix(p, "/"), "/")
	case strings.Count(p, "*") == 1 && !strings.Contains(p, "?"):
		r.before, r.after, r.wild = strings.Cut(p, "*")
	default:
		r.name = p
		r.wild = strings.ContainsAny(p, "*?")
	}
	return r
}

// isExact reports whether the rule leaves out one path.
func (r *rule) isExact() bool {
	return r.parts != nil && !r.back && !r.folder &&
		!slices.ContainsFunc(r.parts, func(p string) bool { return strings.ContainsAny(p, "*?") })
}

// Leaves reports whether a file or folder is left out. rel is its path in the folder of the input, and the folders on
// the way are not left out. usual says that a pattern decides which the input does not name itself.
func (e *Except) Leaves(rel string, folder bool) (out, usual bool) {
	name := rel[strings.LastIndexByte(rel, '/')+1:]
	var parts []string
	if e.paths || len(e.exact) > 0 {
		if e.folder != "" {
			rel = e.folder + "/" + rel
		}
		if e.exact[rel] {
			return true, false
		}
	}
	if e.paths {
		parts = strings.Split(rel, "/")
	}
	for i := range e.rules {
		if r := &e.rules[i]; (folder || !r.folder) && r.fits(name, parts) {
			return !r.back, r.usual
		}
	}
	return false, false
}

func (r *rule) fits(name string, parts []string) bool {
	switch {
	case r.parts != nil:
		return matchParts(r.parts, parts)
	case !r.wild:
		return r.name == name
	case r.name != "":
		return matchPart(r.name, name)
	}
	return len(name) >= len(r.before)+len(r.after) && strings.HasPrefix(name, r.before) && strings.HasSuffix(name, r.after)
}

// matchParts matches a path, in which ** stands for any number of folders; at the end it stands for all that is below.
func matchParts(pattern, parts []string) bool {
	at := globClose(pattern, nil, 0)
	for _, name := range parts {
		var next []int
		for _, i := range at {
			switch {
			case i == len(pattern):
			case pattern[i] == "**":
				next = globClose(pattern, next, i)
				if i == len(pattern)-1 {
					next = globClose(pattern, next, i+1)
				}
			case matchPart(pattern[i], name):
				next = globClose(pattern, next, i+1)
			}
		}
		at = next
	}
	return len(at) > 0 && at[len(at)-1] == len(pattern)
}

// LeavesIn reports whether a file of the folder, or a folder on its way, is left out.
func (e *Except) LeavesIn(rel string) bool {
	for i := range len(rel) {
		if rel[i] == '/' {
			if out, _ := e.Leaves(rel[:i], true); out {
				return true
			}
		}
	}
	out, _ := e.Leaves(rel, false)
	return out
}

// Folder is the folder whose files an input of several files takes; "." for that of the package file.
func (in *Input) Folder() string {
	if in.Kind == GlobInput {
		return GlobPrefix(in.Path)
	}
	return in.Path
}

// Except returns the matcher of an input of several files: of paths in Folder for a directory, from the package file
// for a pattern.
func (in *Input) Except() *Except {
	if in.Kind == GlobInput {
		return NewExcept(in.LeftOut, "")
	}
	return NewExcept(in.LeftOut, in.Path)
}

// except reads the patterns of an input.
func (d *decoder) except(where string, n *node) (patterns []string) {
	if n.kind != stringNode && n.kind != listNode {
		d.wrongType(where, n, `a list of patterns, such as ["*.tmp", cache/]`)
		return nil
	}
	for _, p := range n.each() {
		if p.kind != stringNode {
			d.wrongType(where, p, "a pattern such as *.tmp")
		} else if fault, hint := exceptFault(p.text); fault != "" {
			d.report.add(p.pos, hint, "%s %q: %s", where, truncate(p.text), fault)
		} else {
			patterns = append(patterns, d.intern(p.text))
		}
	}
	return patterns
}

// each are the elements of a list; of a node that is no list, the node itself.
func (n *node) each() (list []*node) {
	if n.kind != listNode {
		return []*node{n}
	}
	for i := range n.list {
		list = append(list, &n.list[i])
	}
	return list
}

// exceptFault says what is wrong with a pattern.
func exceptFault(p string) (fault, hint string) {
	p = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(p, "!"), "/"), "/")
	switch {
	case p == "":
		return "the pattern is empty", ""
	case strings.ContainsAny(p, "[]"):
		return "brackets mean nothing in a pattern", "write a pattern for each, or ? for any character"
	case strings.Contains(p, `\`):
		return "the pattern holds a backslash", "separate folders with /"
	case !fs.ValidPath(p) || p == ".":
		return "the pattern is not a clean path", "paths are relative to the package file"
	}
	for part := range strings.SplitSeq(p, "/") {
		if part != "**" && strings.Contains(part, "**") {
			return "** must stand alone between slashes", ""
		}
	}
	return "", ""
}

// checkExcept refuses patterns that can leave nothing out, or everything.
func (d *decoder) checkExcept(where string, n *node, in *Input) {
	if in.Kind != DirInput && in.Kind != GlobInput {
		d.report.add(n.pos, "", "%s: only dir, glob and files leave something out", where)
		return
	}
	folder := in.Folder()
	for _, p := range n.each() {
		r := newRule(p.text)
		if r.parts == nil {
			continue
		}
		whole := strings.Join(r.parts, "/")
		prefix := whole
		if strings.ContainsAny(whole, "*?") {
			prefix = GlobPrefix(whole)
		}
		switch {
		case !contains(folder, prefix) && (prefix == whole || !contains(prefix, folder)):
			hint := "paths are relative to the package file: write " + path.Join(folder, whole)
			d.report.add(p.pos, hint, "%s %q: nothing in %s has this path", where, truncate(p.text), folder)
		case matchParts(r.parts, strings.Split(folder, "/")):
			d.report.add(p.pos, "", "%s %q: it leaves out all of %s", where, truncate(p.text), folder)
		}
	}
}
