package graph

import (
	"fmt"
	"slices"

	"e3/internal/events"
	"e3/internal/format/record"
)

// Growing describes the parts of a package's graph that depend on lists of items which its tasks make, and so are
// known only when these tasks have ended. The zero value says that everything is known.
type Growing struct {
	Gates   []Gate
	Pending []Pending
}

// A Gate holds tasks back until the tasks that make a list of items have ended. Without the gate, an item of the last
// run could run although the new list lacks the item.
type Gate struct {
	Source   string   // names the list; no other gate has it
	Name     string   // one of Families, for people
	Families []string // the families of tasks that the list decides
	After    []string // the tasks, or pending ones, that make the list
	Behind   []string // the sources of the gates that decide which tasks are in After
	Holds    []string // the tasks, and pending ones, that the list decides
}

// Pending is a task, or a whole family of tasks, that the package lacks because a list is not known yet.
type Pending struct {
	Name  string
	After []string // the pending tasks that it reads; gates say what else it waits for
}

// kind is what a node of a graph stands for. A graph that does not grow has only tasks.
type kind uint8

const (
	task    kind = iota
	gate         // of a list
	pending      // becomes a task, or gives way to several, when the graph grows
	gone         // was a task, gate or pending task before the graph grew
)

// NewGrowing is New for a package with lists that are not known yet or may change in a run. Its gates and pending
// tasks are nodes of the graph, after all tasks.
func NewGrowing(pkg *record.Package, growing *Growing) (*Graph, error) {
	return grow(nil, pkg, growing)
}

// Grow returns the graph of another package of the same definition, with more known lists. Every node that stays
// keeps its index, and new nodes follow. A pending task keeps its index when it becomes a task. A node that is gone
// has no dependencies.
func (g *Graph) Grow(pkg *record.Package, growing *Growing) (*Graph, error) {
	return grow(g, pkg, growing)
}

// grow orders the nodes, and links them.
func grow(before *Graph, pkg *record.Package, growing *Growing) (*Graph, error) {
	o := ordering{before: before, g: &Graph{Origin: pkg, gates: map[string]int32{}, families: map[int32][]string{}}}
	most := len(pkg.Tasks) + len(growing.Pending) + len(growing.Gates)
	if before != nil {
		most += before.Len()
	}
	o.view, o.g.kinds = make([]record.PackageTask, 0, most), make([]kind, 0, most)
	if before != nil {
		o.view = append(o.view, before.Package.Tasks...)
		o.g.kinds = o.g.kinds[:before.Len()]
		for i := range o.g.kinds {
			o.g.kinds[i], o.view[i].Wiring = gone, nil
		}
	}
	for i := range pkg.Tasks {
		if err := o.name(pkg.Tasks[i], task); err != nil {
			return nil, err
		}
	}
	for i := range growing.Pending {
		if err := o.name(record.PackageTask{Name: growing.Pending[i].Name}, pending); err != nil {
			return nil, err
		}
	}
	for i := range growing.Gates {
		gt := &growing.Gates[i]
		at, ok := int32(0), false
		if before != nil {
			at, ok = before.gates[gt.Source]
		}
		at = o.put(at, ok, record.PackageTask{Name: gt.Name}, gate)
		o.g.gates[gt.Source], o.g.families[at] = at, gt.Families
	}
	view := *pkg
	view.Tasks = o.view
	o.g.Package = &view
	if err := o.g.resolve(growing); err != nil {
		return nil, err
	}
	return o.g, nil
}

// ordering gives each node its index.
type ordering struct {
	before *Graph
	g      *Graph
	view   []record.PackageTask
}

// name places a node that has a name. If two new nodes have the same name, resolve returns the error.
func (o *ordering) name(t record.PackageTask, k kind) error {
	at, ok := int32(0), false
	if o.before != nil {
		at, ok = o.before.index[t.Name]
	}
	if ok && o.g.kinds[at] != gone {
		return twice(o.g.Origin, t.Name)
	}
	o.put(at, ok, t, k)
	return nil
}

// put places a node at the index that it had, or at the end.
func (o *ordering) put(at int32, had bool, t record.PackageTask, k kind) int32 {
	if !had {
		at = int32(len(o.view))
		o.view, o.g.kinds = append(o.view, t), append(o.g.kinds, k)
		return at
	}
	o.view[at], o.g.kinds[at] = t, k
	return at
}

// hold makes a gate wait for the tasks that make its list, and the nodes that it holds wait for the gate.
func (l *linker) hold(gt *Gate) error {
	at := l.g.gates[gt.Source]
	for _, name := range gt.After {
		if err := l.read(at, name); err != nil {
			return err
		}
	}
	for _, source := range gt.Behind {
		d, ok := l.g.gates[source]
		if !ok {
			return fmt.Errorf("package %s: the list of %s depends on that of %s, which does not exist", l.g.Package.Name, gt.Source, source)
		}
		l.readers[d]++
		l.g.deps[at] = append(l.g.deps[at], d)
	}
	for _, name := range gt.Holds {
		i, ok := l.g.index[name]
		if !ok {
			return fmt.Errorf("package %s: the list of %s decides task %q, which does not exist", l.g.Package.Name, gt.Source, name)
		}
		l.readers[at]++
		l.g.deps[i] = append(l.g.deps[i], at)
	}
	return nil
}

// IsTask tells whether a node is a task of the package.
func (g *Graph) IsTask(i int32) bool { return g.kinds == nil || g.kinds[i] == task }

// IsGate tells whether a node is a gate.
func (g *Graph) IsGate(i int32) bool { return g.kinds != nil && g.kinds[i] == gate }

// IsPending tells whether a node is a pending task, or a pending family of tasks.
func (g *Graph) IsPending(i int32) bool { return g.kinds != nil && g.kinds[i] == pending }

// IsGone tells whether a node was part of the graph before it grew, and is not any more.
func (g *Graph) IsGone(i int32) bool { return g.kinds != nil && g.kinds[i] == gone }

// Gates returns the gates by the sources of their lists. The map must not be changed.
func (g *Graph) Gates() map[string]int32 { return g.gates }

// Decides returns the families of tasks that the list of a gate decides. The list must not be changed.
func (g *Graph) Decides(gate int32) []string { return g.families[gate] }

// GateOf returns the source of the list of a gate.
func (g *Graph) GateOf(i int32) string {
	for source, at := range g.gates {
		if at == i {
			return source
		}
	}
	return ""
}

// matches tells whether a filter names a node. It names a pending task, or a gate, if it could name an item that is
// not known yet.
func (g *Graph) matches(pattern string, i int32) bool {
	switch {
	case g.IsTask(i):
		return events.Match(pattern, g.Name(i))
	case g.IsGate(i):
		return slices.ContainsFunc(g.families[i], func(name string) bool { return mayMatch(pattern, name+"[") })
	case g.IsPending(i):
		return events.Match(pattern, g.Name(i)) || mayMatch(pattern, g.Name(i)+"[")
	}
	return false
}

// mayMatch tells whether a pattern matches any text that begins with prefix.
func mayMatch(pattern, prefix string) bool {
	for k := range len(pattern) + 1 {
		if events.Match(pattern[:k], prefix) {
			return true
		}
	}
	return false
}
