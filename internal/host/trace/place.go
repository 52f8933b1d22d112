package trace

import (
	"path"
	"strings"
)

// places sorts the paths that commands open.
type places struct {
	look   *Look
	inputs map[string]bool // of Look.Inputs
	others map[string]bool // of Look.Others
	own    map[string]bool // of Look.Outputs
	seen   map[string]bool // paths of findings, and of what is none; "r " and an input that was read
}

// mostSeen bounds the memory of paths that are no findings.
const mostSeen = 1 << 16

func newPlaces(look *Look) *places {
	p := &places{look: look, inputs: map[string]bool{}, others: map[string]bool{}, own: map[string]bool{}, seen: map[string]bool{}}
	for _, in := range look.Inputs {
		p.inputs[path.Clean(in)] = true
	}
	for _, out := range look.Outputs {
		p.own[path.Clean(out)] = true
	}
	for _, other := range look.Others {
		p.others[path.Clean(other)] = true
	}
	return p
}

// within returns the path of an absolute, clean name relative to a folder; false if it is not below.
func within(name, folder string) (string, bool) {
	rel, ok := strings.CutPrefix(name, folder)
	if !ok || len(rel) < 2 || rel[0] != '/' {
		return "", false
	}
	return rel[1:], true
}

// relevant reports whether an absolute path may be a finding, before it is cleaned.
func (p *places) relevant(name string) bool {
	if strings.HasPrefix(name, p.look.Work) || strings.Contains(name, "/../") {
		return true
	}
	for _, folder := range p.look.Project {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	return false
}

// find says what a path, absolute and clean, is. exists looks at a path as the command sees it, kind at one of the
// project.
func (p *places) find(name string, exists func(string) bool, kind func(string) Kind) []Finding {
	rel, inWork := within(name, p.look.Work)
	if !inWork {
		inProject := false
		for _, folder := range p.look.Project {
			if rel, inProject = within(name, folder); inProject {
				break
			}
		}
		if !inProject {
			return nil
		}
	}
	if p.seen[name] || Private(rel) {
		return nil
	}
	if inWork && exists(name) { // an input, or made by the command
		return p.reads(rel)
	}
	p.remember(name)
	if below(p.own, rel) {
		return nil
	}
	if p.others[rel] {
		return []Finding{{Missing, rel}}
	}
	if k := kind(rel); k != 0 {
		return []Finding{{k, rel}}
	}
	// Of what is not there at all, a folder may be known.
	for at := path.Dir(rel); at != "."; at = path.Dir(at) {
		if p.others[at] && !p.seen[p.look.Work+"/"+at] {
			p.remember(p.look.Work + "/" + at)
			return []Finding{{Missing, at}}
		}
	}
	return nil
}

// below reports whether a path is one of some, or lies in one.
func below(some map[string]bool, rel string) bool {
	for at := rel; at != "."; at = path.Dir(at) {
		if some[at] {
			return true
		}
	}
	return false
}

// reads are the entries of Look.Inputs that a path is or lies in, each for the first time only.
func (p *places) reads(rel string) (found []Finding) {
	for at := rel; ; at = path.Dir(at) {
		if p.inputs[at] && !p.seen["r "+at] {
			p.seen["r "+at] = true
			found = append(found, Finding{Read, at})
		}
		if at == "." {
			return found
		}
	}
}

func (p *places) remember(name string) {
	if len(p.seen) < mostSeen {
		p.seen[name] = true
	}
}
