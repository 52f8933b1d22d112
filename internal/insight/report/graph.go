package report

import (
	"strings"

	"e3/internal/format/record"
	"e3/internal/insight/diagram"
)

// GraphOptions select the parts of a package that are drawn, and how.
type GraphOptions struct {
	Inputs bool                                             // draw inputs too, not only tasks
	Keep   func(task string) bool                           // nil: all tasks
	Look   func(n *diagram.Node, name string, isInput bool) // fills in the state of a node; nil: none
}

// Graph is the graph of a package: its tasks in declared order, and what they read. Items of a matrix are a group,
// which can be folded. Wires to something that the package does not have are left out.
func Graph(pkg *record.Package, o GraphOptions) *diagram.Graph {
	g := &diagram.Graph{Title: pkg.Name + "@" + pkg.Version}
	inputs, tasks := map[string]int{}, map[string]int{}
	add := func(n diagram.Node, places map[string]int) {
		if _, twice := places[n.Label]; twice {
			return
		}
		places[n.Label] = len(g.Nodes)
		if o.Look != nil {
			o.Look(&n, n.Label, n.Kind == diagram.Input)
		}
		g.Nodes = append(g.Nodes, n)
	}
	keep := func(t *record.PackageTask) bool { return o.Keep == nil || o.Keep(t.Name) }
	if o.Inputs {
		read := map[string]bool{}
		for i := range pkg.Tasks {
			for _, w := range pkg.Tasks[i].Wiring {
				if !keep(&pkg.Tasks[i]) {
					continue
				}
				if w.Kind == record.WireInput {
					read[w.Name] = true
				}
				for _, it := range w.Items {
					if it.Input != "" {
						read[it.Input] = true
					}
				}
			}
		}
		for i := range pkg.Inputs {
			if name := pkg.Inputs[i].Name; read[name] || o.Keep == nil {
				add(diagram.Node{Label: name, Kind: diagram.Input}, inputs)
			}
		}
	}
	for i := range pkg.Tasks {
		if t := &pkg.Tasks[i]; keep(t) {
			add(diagram.Node{Label: t.Name, Group: matrixOf(t.Name)}, tasks)
		}
	}
	seen := map[diagram.Edge]bool{}
	for i := range pkg.Tasks {
		to, ok := tasks[pkg.Tasks[i].Name]
		if !ok {
			continue
		}
		join := func(places map[string]int, name string) {
			from, ok := places[name]
			if e := (diagram.Edge{From: from, To: to}); ok && !seen[e] {
				seen[e] = true
				g.Edges = append(g.Edges, e)
			}
		}
		for _, w := range pkg.Tasks[i].Wiring {
			switch w.Kind {
			case record.WireInput:
				join(inputs, w.Name)
			case record.WireOutput:
				join(tasks, w.Name)
			case record.WireFanIn:
				for _, it := range w.Items {
					if it.Input != "" {
						join(inputs, it.Input)
						continue
					}
					join(tasks, it.Task)
				}
			}
		}
	}
	return g
}

// matrixOf is the name of the matrix that a task is an item of, "" if it is none.
func matrixOf(task string) string {
	name, _, ok := strings.Cut(task, "[")
	if !ok || !strings.HasSuffix(task, "]") {
		return ""
	}
	return name
}
