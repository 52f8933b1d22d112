package manifest

import (
	"slices"
	"strings"
)

// A claim is one path in a task's directory.
type claim struct {
	what    string // input "x" or output "x"
	path    string
	glob    string
	project bool
	pos     Pos
}

// collisions reports paths in the directory of a task that two of its inputs and outputs claim. The package
// documentation has the rule. Paths do not depend on the item of a matrix.
func (d *decoder) collisions(b *base, plans []plan) {
	claims := make([]claim, 0, len(plans)+len(b.spec.Outputs))
	globs := 0
	for i := range plans {
		p := &plans[i]
		if p.input.Path == "" || p.target == b { // a task that reads itself is reported as a cycle
			continue
		}
		if p.glob != "" {
			globs++
		}
		claims = append(claims, claim{`input "` + p.input.Name + `"`, p.input.Path, p.glob, p.project, p.pos})
	}
	for _, out := range b.spec.Outputs {
		claims = append(claims, claim{`output "` + out.Name + `"`, out.Path, "", false, b.spec.Pos})
	}
	where := "task " + b.spec.Base
	if globs > maxGlobs {
		d.report.add(b.spec.Pos, "join some, or use dir:", "%s: more than %d globs", where, maxGlobs)
		return
	}
	// Sorted by path component, the content of a directory follows it directly, so a stack of open directories
	// suffices. Globs come first among equals, because only they may be shared.
	slices.SortStableFunc(claims, func(a, b claim) int {
		if c := comparePaths(a.path, b.path); c != 0 {
			return c
		}
		return strings.Compare(b.glob, a.glob)
	})
	var open []claim
	for _, c := range claims {
		for len(open) > 0 && !contains(open[len(open)-1].path, c.path) {
			open = open[:len(open)-1]
		}
		for _, o := range open {
			pos := c.pos
			if o.pos.Line > pos.Line || o.pos.Line == pos.Line && o.pos.Column > pos.Column {
				pos = o.pos
			}
			switch {
			case o.glob == "" && o.path == c.path:
				d.report.add(pos, "give one of them another path", "%s: %s and %s are both at %s", where, o.what, c.what, truncate(c.path))
			case o.glob == "":
				d.report.add(pos, "give one of them another path", "%s: %s at %s lies inside %s at %s", where, c.what, truncate(c.path), o.what, truncate(o.path))
			case c.glob == "" && o.path == c.path:
				d.report.add(pos, "give one of them another path", "%s: %s at %s is also the folder of %s", where, c.what, truncate(c.path), o.what)
			case c.glob == "" && !c.project && MatchGlob(o.glob, c.path):
				d.report.add(pos, "give it another path, or narrow the pattern", "%s: %s at %s matches the pattern of %s", where, c.what, truncate(c.path), o.what)
			}
		}
		open = append(open, c)
	}
}

// contains reports whether the path inner is outer or lies below it.
func contains(outer, inner string) bool {
	return outer == "." || inner == outer || len(inner) > len(outer) && inner[len(outer)] == '/' && inner[:len(outer)] == outer
}

// comparePaths orders clean paths such that a directory comes directly before its content.
func comparePaths(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' || b[i] != '/' && a[i] < b[i] {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
