// Package graph resolves the wires of a package's tasks: the dependencies between tasks, and an order for them. It runs
// nothing.
package graph

import (
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// A Graph is the tasks of a package with their wires resolved to indices. It does not change after New. A growing
// graph (NewGrowing) has gates and pending tasks as further nodes.
type Graph struct {
	Package *record.Package // its tasks are the nodes, by index
	Origin  *record.Package // the package that New was given: Package, unless the graph grows
	Hashes  []digest.Hash   // of the task objects, by index

	kinds      []kind             // of the nodes; nil: all are tasks
	gates      map[string]int32   // source of the list → index
	families   map[int32][]string // gate → the families of tasks that its list decides
	index      map[string]int32   // task name → index
	inputs     map[string]int32   // input name → index
	deps       [][]int32          // the tasks that a task reads, each once
	dependents [][]int32
	strict     map[int32]map[int32]bool // tolerant task → the tasks whose failure it does not tolerate
	topo       []int32                  // each after the tasks that it reads
}

// A CycleError says that tasks wait for each other.
type CycleError struct{ Tasks []string }

func (e *CycleError) Error() string {
	return "tasks wait for each other: " + strings.Join(e.Tasks, " → ")
}

// New checks the package's wiring and builds its graph.
func New(pkg *record.Package) (*Graph, error) {
	g := &Graph{Package: pkg, Origin: pkg}
	if err := g.resolve(&Growing{}); err != nil {
		return nil, err
	}
	return g, nil
}

// resolve fills in the fields that follow from the package and from growing.
func (g *Graph) resolve(growing *Growing) error {
	pkg, n := g.Package, len(g.Package.Tasks)
	g.Hashes = make([]digest.Hash, n)
	g.index, g.inputs = make(map[string]int32, n), make(map[string]int32, len(pkg.Inputs))
	g.deps, g.dependents = make([][]int32, n), make([][]int32, n)
	for i := range pkg.Inputs {
		name := pkg.Inputs[i].Name
		if _, dup := g.inputs[name]; dup {
			return fmt.Errorf("package %s: two inputs are named %q", pkg.Name, name)
		}
		g.inputs[name] = int32(i)
	}
	for i := range pkg.Tasks {
		if err := g.named(int32(i)); err != nil {
			return err
		}
	}
	l := linker{g: g, readers: make([]int32, n), last: make([]int32, n)}
	for i := range pkg.Tasks {
		if err := l.link(int32(i)); err != nil {
			return err
		}
	}
	for i := range growing.Pending {
		p := &growing.Pending[i]
		for _, name := range p.After {
			if err := l.read(g.index[p.Name], name); err != nil {
				return err
			}
		}
	}
	for i := range growing.Gates {
		if err := l.hold(&growing.Gates[i]); err != nil {
			return err
		}
	}
	for i, c := range l.readers {
		if c > 0 {
			g.dependents[i] = make([]int32, 0, c)
		}
	}
	for i, deps := range g.deps {
		for _, d := range deps {
			g.dependents[d] = append(g.dependents[d], int32(i))
		}
	}
	g.topo = g.order()
	if cycle := g.cycle(); cycle != nil {
		return &CycleError{Tasks: cycle}
	}
	return nil
}

// named enters a node under its name. Gates and nodes that are gone have no name.
func (g *Graph) named(i int32) error {
	t := &g.Package.Tasks[i]
	if g.IsGate(i) || g.IsGone(i) {
		return nil
	}
	if _, dup := g.index[t.Name]; dup {
		return twice(g.Package, t.Name)
	}
	g.index[t.Name] = i
	if g.IsPending(i) {
		return nil
	}
	h, err := digest.Parse(t.Task)
	if err != nil {
		return fmt.Errorf("package %s: task %s: %w", g.Package.Name, t.Name, err)
	}
	g.Hashes[i] = h
	return nil
}

func twice(pkg *record.Package, name string) error {
	return fmt.Errorf("package %s: two tasks are named %q", pkg.Name, name)
}

// A linker resolves wires. last[d] is one more than the last task that was found to read d: it avoids searching a
// fan-in of many thousand wires for repeats.
type linker struct {
	g             *Graph
	readers, last []int32
}

func (l *linker) link(i int32) error {
	g, t := l.g, &l.g.Package.Tasks[i]
	g.tolerate(i)
	for j := range t.Wiring {
		switch w := &t.Wiring[j]; w.Kind {
		case record.WireInput:
			if _, ok := g.inputs[w.Name]; !ok {
				return fmt.Errorf("package %s: task %s reads input %q, which does not exist", g.Package.Name, t.Name, w.Name)
			}
		case record.WireOutput:
			if err := l.read(i, w.Name); err != nil {
				return err
			}
		case record.WireFanIn:
			for _, it := range w.Items {
				if it.Input != "" {
					if _, ok := g.inputs[it.Input]; !ok {
						return fmt.Errorf("package %s: task %s reads input %q, which does not exist", g.Package.Name, t.Name, it.Input)
					}
					continue
				}
				if err := l.read(i, it.Task); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *linker) read(i int32, producer string) error {
	d, ok := l.g.index[producer]
	if !ok {
		return fmt.Errorf("package %s: task %s reads task %q, which does not exist", l.g.Package.Name, l.g.Name(i), producer)
	}
	if l.last[d] != i+1 {
		l.last[d] = i + 1
		l.readers[d]++
		l.g.deps[i] = append(l.g.deps[i], d)
	}
	return nil
}

// Len returns the number of nodes.
func (g *Graph) Len() int { return len(g.Hashes) }

// Name returns a task's name.
func (g *Graph) Name(i int32) string { return g.Package.Tasks[i].Name }

// Find returns the index of a task.
func (g *Graph) Find(name string) (int32, bool) {
	i, ok := g.index[name]
	return i, ok
}

// Dependencies returns the tasks that i reads.
func (g *Graph) Dependencies(i int32) []int32 { return g.deps[i] }

// Dependents returns the tasks that read i.
func (g *Graph) Dependents(i int32) []int32 { return g.dependents[i] }

// MarkDownstream marks the tasks that depend on those in from, directly or not. It does not go beyond tasks that are
// already marked.
func (g *Graph) MarkDownstream(from []int32, marked []bool) {
	stack := slices.Clone(from)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, d := range g.dependents[i] {
			if !marked[d] {
				marked[d] = true
				stack = append(stack, d)
			}
		}
	}
}

// Order returns the tasks in topological order, each after the tasks that it reads. The list must not be changed.
func (g *Graph) Order() []int32 { return g.topo }

// Levels groups the tasks such that each reads only tasks of earlier groups.
func (g *Graph) Levels() [][]int32 {
	depth := make([]int, g.Len())
	var levels [][]int32
	for _, i := range g.topo {
		for _, d := range g.deps[i] {
			depth[i] = max(depth[i], depth[d]+1)
		}
		if depth[i] == len(levels) {
			levels = append(levels, nil)
		}
		levels[depth[i]] = append(levels[depth[i]], i)
	}
	return levels
}

// order returns the tasks in topological order, without tasks on or below a cycle.
func (g *Graph) order() []int32 {
	waiting := make([]int32, g.Len())
	order := make([]int32, 0, g.Len())
	for i, deps := range g.deps {
		if waiting[i] = int32(len(deps)); len(deps) == 0 {
			order = append(order, int32(i))
		}
	}
	for next := 0; next < len(order); next++ {
		for _, d := range g.dependents[order[next]] {
			if waiting[d]--; waiting[d] == 0 {
				order = append(order, d)
			}
		}
	}
	return order
}

// cycle returns the names along one cycle, first and last the same, or nil.
func (g *Graph) cycle() []string {
	if len(g.topo) == g.Len() {
		return nil
	}
	done := make([]bool, g.Len())
	for _, i := range g.topo {
		done[i] = true
	}
	at := int32(0)
	for done[at] {
		at++
	}
	// Every remaining task waits for another remaining one, so the walk must reach a task twice.
	seen := make(map[int32]int)
	var path []string
	for {
		if from, ok := seen[at]; ok {
			return append(path[from:], g.Name(at))
		}
		seen[at] = len(path)
		path = append(path, g.Name(at))
		for _, d := range g.deps[at] {
			if !done[d] {
				at = d
				break
			}
		}
	}
}

// Select returns the tasks that a filter names, and the same tasks with everything upstream of them. Patterns have
// the wildcards * and ?.
func (g *Graph) Select(pattern string) (named, selected []bool) {
	named, selected = make([]bool, g.Len()), make([]bool, g.Len())
	var stack []int32
	for i := range named {
		if named[i] = g.matches(pattern, int32(i)); named[i] {
			stack = append(stack, int32(i))
		}
	}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !selected[i] {
			selected[i] = true
			stack = append(stack, g.deps[i]...)
		}
	}
	return named, selected
}
