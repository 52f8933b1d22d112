package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/human"
)

// Unmade is a family of tasks whose list of items is still to be made.
type Unmade struct {
	Name    string       `json:"name"`            // a family of items, or a task that reads such a family
	Pending bool         `json:"pending"`         // no list was made yet
	Tasks   int          `json:"last,omitempty"`  // tasks by the last list
	For     []string     `json:"for,omitempty"`   // the tasks that make the list
	Err     *human.Fault `json:"error,omitempty"` // why the list cannot be used
}

// String says for which tasks no items are known, or only the last ones.
func (u *Unmade) String() string {
	makers := human.Few(u.For)
	switch {
	case u.Err != nil:
		return fmt.Sprintf("%s cannot run: %v", u.Name, u.Err)
	case u.Pending && len(u.For) > 0:
		return fmt.Sprintf("%s is not known yet: its items follow from %s", u.Name, makers)
	case u.Pending:
		return u.Name + " is not known yet"
	}
	return fmt.Sprintf("%s follow from the items of %s: this is the number of last time", human.Count(u.Tasks, "task"), makers)
}

// grown gives a preview the package that a start would have before it runs anything: with the lists of tasks that
// already have answers. If these cannot be told, the package keeps its last items, and the preview gets the fault.
func (w *Planner) grown(ctx context.Context, next *preview) (*graph.Graph, error) {
	if next.objects != nil {
		if err := w.foresee(ctx, next, next.objects); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			next.faults = append(next.faults, err)
		}
	}
	if next.graph != nil {
		return next.graph, nil
	}
	return graph.Whole(next.pkg)
}

// unmade lists the families of a preview whose lists are still to be made, given how fresh the nodes of its graph
// are.
func unmade(next *preview, g *graph.Graph, fresh []dataflow.Freshness) (list []Unmade, last map[string]bool) {
	last = map[string]bool{}
	gates := make([]int32, 0, len(g.Gates()))
	for _, i := range g.Gates() {
		gates = append(gates, i)
	}
	slices.Sort(gates)
	for _, i := range gates {
		if fresh[i] == dataflow.Current {
			continue
		}
		u := Unmade{Name: g.Name(i)}
		for _, d := range g.Dependents(i) {
			if !g.IsTask(d) {
				continue
			}
			u.Tasks++
			if slices.Contains(g.Decides(i), graph.Base(g.Name(d))) {
				last[g.Name(d)] = true
			}
		}
		for _, d := range g.Dependencies(i) {
			if g.IsTask(d) && fresh[d] != dataflow.Current {
				u.For = append(u.For, g.Name(d))
			}
		}
		if u.Tasks > 0 && len(u.For) > 0 { // behind another closed gate, which has an entry of its own
			list = append(list, u)
		}
	}
	for i := range next.pkg.Families {
		if f := &next.pkg.Families[i]; f.Pending {
			list = append(list, Unmade{Name: f.Name, Pending: true, For: graph.Awaited(next.pkg, f.Name), Err: human.FaultOf(next.failed[f.Name])})
		}
	}
	return list, last
}

// Pending returns the family of tasks that a name means, as "fit" or "fit[a]", and the tasks that it waits for, if
// the package of a workspace has no tasks of that family yet.
func (w *Datasets) Pending(ctx context.Context, ws, name string) (family string, awaited []string, err error) {
	s, err := w.states.State(ctx, ws)
	if err != nil || !s.Deployed {
		return "", nil, err
	}
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return "", nil, err
	}
	family, _, _ = strings.Cut(name, "[")
	return family, graph.Awaited(pkg, family), nil
}
