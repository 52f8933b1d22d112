package graph

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/record"
)

// tolerate notes the tasks whose outputs task i needs, if it can do without other outputs.
func (g *Graph) tolerate(i int32) {
	wires := g.Package.Tasks[i].Wiring
	if !slices.ContainsFunc(wires, func(w record.Wire) bool { return w.Tolerates() }) {
		return
	}
	strict := map[int32]bool{}
	for j := range wires {
		w := &wires[j]
		if w.Kind == record.WireOutput {
			strict[g.index[w.Name]] = true
		}
		if w.Tolerates() {
			continue
		}
		for k := range w.Items {
			if it := &w.Items[k]; it.Input == "" {
				strict[g.index[it.Task]] = true
			}
		}
	}
	if g.strict == nil {
		g.strict = map[int32]map[int32]bool{}
	}
	g.strict[i] = strict
}

// Tolerates reports whether a task can run although task d, which it reads, has failed: it reads d only in fan-ins
// that need only some of their members.
func (g *Graph) Tolerates(reader, d int32) bool {
	strict, some := g.strict[reader]
	return some && g.IsTask(d) && !strict[d]
}

// AnyTolerant reports whether any task tolerates failures.
func (g *Graph) AnyTolerant() bool { return len(g.strict) > 0 }

// Tolerant reports whether a task tolerates the failure of any task that it reads.
func (g *Graph) Tolerant(reader int32) bool { return g.strict[reader] != nil }

// Needs says how many members of each tolerant fan-in a task needs: "190 of 200", "" for a task without any.
func (g *Graph) Needs(reader int32) string {
	if !g.Tolerant(reader) {
		return ""
	}
	var list []string
	for _, w := range g.Package.Tasks[reader].Wiring {
		if w.Tolerates() {
			list = append(list, fmt.Sprintf("%d of %d", w.Gather.Need.Of(len(w.Items)), len(w.Items)))
		}
	}
	return strings.Join(list, " and ")
}

// A Lack describes a fan-in that lacks members.
type Lack struct {
	Input     int // of the task's wires
	Members   int
	Missing   []int32 // the members that are left out, each once
	Needed    int
	Succeeded int
}

// Enough reports whether the task can run.
func (l *Lack) Enough() bool { return l.Succeeded >= l.Needed }

// Lacks returns what the tolerant fan-ins of a task lack, given which tasks have failed or were skipped.
func (g *Graph) Lacks(reader int32, gone func(int32) bool) (list []Lack) {
	if !g.Tolerant(reader) {
		return nil
	}
	wires := g.Package.Tasks[reader].Wiring
	for j := range wires {
		w := &wires[j]
		if !w.Tolerates() {
			continue
		}
		l := Lack{Input: j, Members: len(w.Items), Needed: w.Gather.Need.Of(len(w.Items))}
		for k := range w.Items {
			if d := g.index[w.Items[k].Task]; gone(d) {
				l.Missing = append(l.Missing, d)
			} else {
				l.Succeeded++
			}
		}
		if len(l.Missing) > 0 {
			list = append(list, l)
		}
	}
	return list
}

// LabelOf is the label in the name of a task, "" if it has none.
func LabelOf(task string) string {
	_, label, _ := strings.Cut(task, "[")
	return strings.TrimSuffix(label, "]")
}
