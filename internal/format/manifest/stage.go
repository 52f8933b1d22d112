package manifest

import (
	"cmp"
	"slices"
	"strings"
)

// A claim is one path in a task's directory.
type claim struct {
	what    string // input "x" or output "x"
	path    string
	glob    string
	input   *Input // of glob
	project bool
	folder  bool // a directory of the project
	pos     Pos
	order   string // the path with what sorts before all else between its components; "" for "."
}

// collisions reports paths in the directory of a task that two of its inputs and outputs claim. The package
// documentation has the rule. t is an item of the task; with nil, paths that depend on the item are left out.
func (d *decoder) collisions(b *base, plans []plan, t *Task) {
	if len(plans)+len(b.spec.Outputs) < 2 {
		return
	}
	claims := make([]claim, 0, len(plans)+len(b.spec.Outputs))
	globs := 0
	for i := range plans {
		p := &plans[i]
		if p.input.Path == "" || p.target == b || p.byItem && t == nil { // a task that reads itself is reported as a cycle
			continue
		}
		at := p.input.Path
		if p.byItem {
			k := slices.IndexFunc(t.Inputs, func(in TaskInput) bool { return in.Name == p.input.Name })
			if k < 0 {
				continue
			}
			at = t.Inputs[k].Path
		}
		c := claim{what: `input "` + p.input.Name + `"`, path: at, glob: p.glob, project: p.project, pos: p.pos}
		if p.glob != "" {
			globs++
			if p.target == nil {
				c.input = &d.def.Inputs[p.input.Source.Index]
			}
		}
		claims = append(claims, c)
	}
	where := "task " + b.spec.Base
	if t != nil {
		where = "task " + t.Name
	}
	for i := range b.spec.Outputs {
		out := &b.spec.Outputs[i]
		if at := out.Path; !out.ByItem || t != nil {
			if out.ByItem {
				at = t.PathOf(out)
			}
			claims = append(claims, claim{what: `output "` + out.Name + `"`, path: at, pos: b.spec.Pos})
		}
	}
	if globs > maxGlobs {
		d.report.add(b.spec.Pos, "join some, or use dir:", "%s: more than %d globs", where, maxGlobs)
		return
	}
	nested(claims, func(o, c *claim) {
		pos := c.pos
		if pos.before(o.pos) {
			pos = o.pos
		}
		switch {
		case o.glob == "" && o.path == c.path:
			d.report.add(pos, "give one of them another path", "%s: %s and %s are both at %s", where, o.what, c.what, truncate(c.path))
		case o.glob == "":
			hint := "give one of them another path"
			if o.project && !c.project {
				hint += `, or read the folder's own files by a pattern: {glob: "` + o.path +
					`/*"}, with except: for what is made there`
			}
			d.report.add(pos, hint, "%s: %s at %s lies inside %s at %s",
				where, c.what, truncate(c.path), o.what, truncate(o.path))
		case c.glob == "" && o.path == c.path:
			d.report.add(pos, "give one of them another path", "%s: %s at %s is also the folder of %s", where, c.what, truncate(c.path), o.what)
		case c.glob == "" && !c.project && MatchGlob(o.glob, c.path) &&
			(o.input == nil || !o.input.Except().LeavesIn(c.path)):
			d.matched = append(d.matched, matched{c.path, faultAt(d.report.file, pos,
				"give it another path, narrow the pattern, or leave it out by except",
				"%s: %s at %s matches the pattern of %s", where, c.what, truncate(c.path), o.what)})
		}
	})
}

// matched is the fault of a task's output that a pattern which it reads would match. It is none if the input leaves the
// output out, since it lies in place.
type matched struct {
	path  string
	fault Error
}

// nested calls each with all pairs of claims of which the inner one is at the path of the outer one or below it.
//
// Sorted by path component, the content of a directory follows it directly, so a stack of open directories suffices.
// Globs come first among equals, because only they may be shared.
func nested(claims []claim, each func(outer, inner *claim)) {
	for i := range claims {
		if c := &claims[i]; c.path != "." {
			c.order = strings.ReplaceAll(c.path, "/", "\x00")
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(strings.Compare(a.order, b.order), strings.Compare(b.glob, a.glob))
	})
	var open []*claim
	for i := range claims {
		c := &claims[i]
		for len(open) > 0 && !contains(open[len(open)-1].path, c.path) {
			open = open[:len(open)-1]
		}
		for _, o := range open {
			each(o, c)
		}
		open = append(open, c)
	}
}

// contains reports whether the path inner is outer or lies below it.
func contains(outer, inner string) bool {
	return outer == "." || inner == outer || len(inner) > len(outer) && inner[len(outer)] == '/' && inner[:len(outer)] == outer
}
