package report

import (
	"slices"
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
// which can be folded. Wires to tasks and inputs that the package does not have are left out.
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
	pending := pendingFamilies(pkg, o.Keep == nil)
	for _, f := range pending {
		add(diagram.Node{Label: f.Name}, tasks)
	}
	seen := map[diagram.Edge]bool{}
	edge := func(places map[string]int, name string, to int) {
		from, ok := places[name]
		if e := (diagram.Edge{From: from, To: to}); ok && !seen[e] {
			seen[e] = true
			g.Edges = append(g.Edges, e)
		}
	}
	makers := listMakers(pkg)
	for i := range pkg.Tasks {
		to, ok := tasks[pkg.Tasks[i].Name]
		if !ok {
			continue
		}
		join := func(places map[string]int, name string) { edge(places, name, to) }
		for _, maker := range makers[matrixOf(pkg.Tasks[i].Name)] {
			join(tasks, maker)
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
	for _, f := range pending {
		to := tasks[f.Name]
		for _, k := range f.Lists {
			if l := &pkg.Lists[k]; l.Task != "" {
				edge(tasks, l.Task, to)
			}
		}
		for _, read := range f.Reads {
			edge(tasks, read, to)
		}
	}
	return g
}

// pendingFamilies are the families whose items are not known; none unless drawn.
func pendingFamilies(pkg *record.Package, drawn bool) []*record.PackageFamily {
	var list []*record.PackageFamily
	for i := range pkg.Families {
		if f := &pkg.Families[i]; f.Pending && drawn {
			list = append(list, f)
		}
	}
	return list
}

// listMakers are the tasks that make the items of a family, by its name. If each item of another matrix makes a list,
// these items are not named: an item of the family follows from one of them.
func listMakers(pkg *record.Package) map[string][]string {
	makers := map[string][]string{}
	for i := range pkg.Families {
		f := &pkg.Families[i]
		if f.Pending {
			continue
		}
		sole := map[string]string{} // by matrix: the only item that makes lists; "": several do
		for _, k := range f.Lists {
			task := pkg.Lists[k].Task
			matrix := matrixOf(task)
			if known, ok := sole[matrix]; ok && known != task {
				task = ""
			}
			sole[matrix] = task
		}
		for _, k := range f.Lists {
			task := pkg.Lists[k].Task
			matrix := matrixOf(task)
			if task != "" && (matrix == "" || sole[matrix] != "") && !slices.Contains(makers[f.Name], task) {
				makers[f.Name] = append(makers[f.Name], task)
			}
		}
	}
	return makers
}

// matrixOf is the name of the matrix that a task is an item of, "" if it is none.
func matrixOf(task string) string {
	name, _, ok := strings.Cut(task, "[")
	if !ok || !strings.HasSuffix(task, "]") {
		return ""
	}
	return name
}
