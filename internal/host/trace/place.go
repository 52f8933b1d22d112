package trace

import (
	"path"
	"strings"
)

// places sorts the paths that commands open.
type places struct {
	look   *Look
	inputs map[string]bool // paths of Look.Inputs
	others map[string]bool // paths of Look.Others
	own    map[string]bool // paths of Look.Outputs
	seen   map[string]bool // the opened paths; "r " and an input that was read; "s " and a path that was looked for
}

// mostSeen bounds the memory of paths.
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

// within returns the path of an absolute, clean name relative to a folder; false if the name is not below the folder.
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

// find classifies an opened path, which is absolute and clean. exists looks at a path as the command sees it, kind
// looks at a path of the project.
func (p *places) find(name string, exists func(string) bool, kind func(string) Kind) []Finding {
	rel, inWork := p.place(name)
	if rel == "" || p.seen[name] {
		return nil
	}
	p.remember(name)
	if inWork && exists(name) { // the path is an input, or made by the command
		return p.reads(rel)
	}
	if below(p.own, rel) {
		return nil
	}
	if p.others[rel] {
		return []Finding{{Missing, rel}}
	}
	if k := kind(rel); k != 0 {
		return []Finding{{k, rel}}
	}
	// If the path does not exist at all, one of its folders may be known.
	for at := path.Dir(rel); at != "."; at = path.Dir(at) {
		if p.others[at] && !p.seen[p.look.Work+"/"+at] {
			p.remember(p.look.Work + "/" + at)
			return []Finding{{Missing, at}}
		}
	}
	return nil
}

// sought classifies a path whose existence was tested.
func (p *places) sought(name string, exists func(string) bool, kind func(string) Kind) []Finding {
	rel, _ := p.place(name)
	key := "s " + name
	if rel == "" || p.seen[name] || p.seen[key] {
		return nil
	}
	p.remember(key)
	if exists(name) || below(p.own, rel) || !p.others[rel] && kind(rel) == 0 {
		return nil
	}
	return []Finding{{Sought, rel}}
}

// place is the path of an absolute, clean name relative to the working directory or the project; "" if it lies in neither, or
// belongs to a tool or to a credential.
func (p *places) place(name string) (rel string, inWork bool) {
	if rel, inWork = within(name, p.look.Work); !inWork {
		for _, folder := range p.look.Project {
			var inProject bool
			if rel, inProject = within(name, folder); inProject {
				break
			}
		}
	}
	if Private(rel) {
		return "", false
	}
	return rel, inWork
}

// below reports whether a path is in a list, or below a path in the list.
func below(some map[string]bool, rel string) bool {
	for at := rel; at != "."; at = path.Dir(at) {
		if some[at] {
			return true
		}
	}
	return false
}

// reads returns the entries of Look.Inputs that hold a path, each entry only the first time.
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
