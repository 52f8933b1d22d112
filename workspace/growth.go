package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/objectstore"
)

// If tasks of a package make lists of items, the package is made anew whenever a list is made: from its definition
// and the lists that are known by then. A list is known from the last run that made it, until the present run makes
// it (doc/design.md, §8, "Growing graphs").

// A grower makes a package anew with lists that tasks have made.
type grower struct {
	deployer *Deployer
	inputs   record.Node // the datasets of the package's inputs
	pkg      *record.Package
	hash     string
	file     string                 // the package file, for messages; "" if it is not followed
	made     map[string]record.Leaf // outputs of the ended tasks that make lists
}

// grow makes the package anew, stores it, and reports whether it has changed. failed is as for [dataflow.Growth].
func (w *grower) grow(ctx context.Context, made []dataflow.MadeList) (changed bool, failed map[string]error, err error) {
	leaves := maps.Clone(w.made)
	if leaves == nil {
		leaves = map[string]record.Leaf{}
	}
	for _, m := range made {
		for _, o := range m.Outputs {
			leaves[o.Task] = o.Leaf
		}
	}
	if same, err := w.settled(ctx, leaves); same || err != nil {
		w.made = leaves
		return false, nil, err
	}
	known := w.pkg.Lists
	var bad manifest.Errors
	x, err := w.expand(ctx, known, leaves)
	if errors.As(err, &bad) { // the file's fault with these lists: go on without them
		known = slices.Clone(known)
		for i := range known {
			if _, is := leaves[known[i].Task]; is {
				known[i].From, known[i].List = "", ""
			}
		}
		x, err = w.expand(ctx, known, nil)
	}
	if err != nil {
		return false, nil, err
	}
	w.made = leaves
	failed = maps.Clone(x.faults)
	if bad != nil {
		for i := range x.pkg.Families {
			if f := &x.pkg.Families[i]; f.Pending && len(f.Reads) == 0 {
				failed[f.Name] = bad
			}
		}
	}
	placeFaults(w.file, x.pkg, failed)
	data := x.pkg.Encode()
	hash := objectstore.Sum(data).String()
	if hash == w.hash {
		return false, failed, nil
	}
	if _, err := objectstore.PutBytes(ctx, w.deployer.states.Objects, data); err != nil {
		return false, nil, fmt.Errorf("store package: %w", err)
	}
	w.pkg, w.hash = x.pkg, hash
	return true, failed, nil
}

// settled reports whether these datasets of tasks would make the same package again, as in most starts: nothing is
// pending, and each list is the list that the package was made of.
func (w *grower) settled(ctx context.Context, made map[string]record.Leaf) (bool, error) {
	if slices.ContainsFunc(w.pkg.Families, func(f record.PackageFamily) bool { return f.Pending }) {
		return false, nil
	}
	r := &listReader{w: w.deployer.states}
	for i := range w.pkg.Lists {
		l := &w.pkg.Lists[i]
		leaf, ok := made[l.Task]
		if l.Task == "" || !ok {
			continue
		}
		from, err := r.dataset(ctx, &manifest.ItemSource{Task: l.Task, Entry: l.Entry}, leaf)
		if err != nil || !l.Known() || from.Hash != l.From {
			return false, context.Cause(ctx)
		}
		if _, err := r.bytes(ctx, l.List); err != nil {
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}

// expand makes the package with the lists in made. A list that is not in made stays as it was.
func (w *grower) expand(ctx context.Context, known []record.PackageList, made map[string]record.Leaf) (*expansion, error) {
	before := *w.pkg
	before.Lists = known
	return w.deployer.expand(ctx, &before, func(input, task string) (record.Leaf, bool) {
		if input != "" {
			return w.inputs.Get(input)
		}
		leaf, ok := made[task]
		return leaf, ok
	})
}

// foresee makes the package with the lists of tasks that already have answers: a start would find these lists before
// it runs anything. It returns the graph of that package and, by family, why a list cannot be used.
func (w *grower) foresee(ctx context.Context, objects objectstore.Store, x dataflow.Lookup, lookups int) (*graph.Graph, map[string]error, error) {
	for {
		g, err := graph.Whole(w.pkg)
		if err != nil {
			return nil, nil, err
		}
		made, err := dataflow.Made(ctx, g, objects, x, w.inputs, lookups)
		if err != nil || len(made) == 0 {
			return g, nil, err
		}
		changed, failed, err := w.grow(ctx, made)
		if err != nil || !changed {
			return g, failed, err
		}
	}
}

// foresee makes the package of a preview with the lists of tasks that already have answers.
func (w *Planner) foresee(ctx context.Context, next *preview, objects Objects) error {
	if !graph.Grows(next.pkg) || len(next.faults) > 0 {
		return nil
	}
	g := &grower{deployer: w.deployerInto(objects), inputs: next.inputs, pkg: next.pkg, hash: next.pkgHash, file: next.file}
	grown, failed, err := g.foresee(ctx, objects, w.states.executions(), w.states.Lookups)
	next.pkg, next.pkgHash, next.graph, next.failed = g.pkg, g.hash, grown, failed
	return err
}

// runGrowth is the Growth of a run: it deploys the grown package in the workspace.
type runGrowth struct {
	grower
	r *run
}

// growth returns the Growth of a run, nil if its package does not grow.
func (r *run) growth(ctx context.Context, pkg *record.Package, inputs record.Node) *runGrowth {
	if !graph.Grows(pkg) {
		return nil
	}
	file := ""
	if link, err := r.w.states.links.remembered(ctx, r.ws); err == nil && link != nil { // else messages have no lines
		file = link.File
	}
	r.dropped = map[string]record.Leaf{}
	return &runGrowth{grower{deployer: r.w.deployer, inputs: inputs, pkg: pkg, hash: r.state.PackageHash, file: file}, r}
}

// Grow implements dataflow.Growth. It writes in the order of §5: objects, the workspace's state, the event.
func (w *runGrowth) Grow(ctx context.Context, g *graph.Graph, made []dataflow.MadeList) (*graph.Graph, map[string]error, error) {
	before := w.grower
	changed, failed, err := w.grow(ctx, made)
	if err != nil || !changed {
		return nil, failed, err
	}
	grown, err := g.Grow(w.pkg, graph.GrowingOf(w.pkg))
	if err == nil {
		err = w.r.deployGrown(w.r.lock.lasting, w.pkg, w.hash)
	}
	if err != nil {
		w.grower = before
		return nil, nil, err
	}
	for _, m := range made {
		items, changed, err := w.items(ctx, m.Source, before.pkg)
		if err != nil {
			return nil, nil, err
		}
		if changed {
			d := &events.Data{Source: m.Source, Items: items, PackageHash: w.hash}
			if len(failed) > 0 && items == 0 {
				d.Reason = dataflow.ReasonItems
			}
			w.r.emit(events.Event{Type: events.GraphGrown, Data: d})
		}
	}
	return grown, failed, nil
}

// items returns the number of items of the lists of a source, and whether any of these lists has changed.
func (w *grower) items(ctx context.Context, source string, before *record.Package) (items int, changed bool, err error) {
	was, now := map[string]string{}, w.pkg
	for i := range before.Lists {
		was[listKey(&before.Lists[i])] = before.Lists[i].List
	}
	for i := range now.Lists {
		if l := &now.Lists[i]; graph.ListSource(l) == source {
			changed = changed || was[listKey(l)] != l.List
			if !l.Known() {
				continue
			}
			list, err := (&listReader{w: w.deployer.states}).load(ctx, l.List)
			if err != nil {
				return 0, false, err
			}
			items += len(list.Items)
		}
	}
	return items, changed, nil
}

// deployGrown gives the workspace the package of the grown graph. Outputs stay if their task stays. While a list of a
// family is unknown, the family has no tasks; when a later growth brings the tasks back, their outputs come back too.
// The package file is not read again: the link, where this machine has one, names the new package. A run with values
// of its own does not change the workspace's package.
func (r *run) deployGrown(ctx context.Context, pkg *record.Package, hash string) error {
	release, err := r.w.states.protect(ctx, "package "+hash)
	if err != nil {
		return fmt.Errorf("package %s: %w", pkg.Name, err)
	}
	r.held = append(r.held, release)
	was := r.state.PackageHash
	if len(r.o.Set) > 0 {
		r.state.PackageHash, r.grown = hash, hash
		return nil
	}
	_, err = r.w.states.edit(ctx, r.lock, r.ws, r.durable, tasksPart, func(s *State, t *tree) error {
		tasks := make(record.Node, 0, len(pkg.Tasks))
		for i := range pkg.Tasks {
			leaf, ok := t.tasks.Get(pkg.Tasks[i].Name)
			if !ok {
				if leaf, ok = r.dropped[pkg.Tasks[i].Name]; !ok {
					leaf = record.Leaf{Kind: record.LeafUnassigned}
				}
			}
			tasks = append(tasks, record.NodeEntry{Name: pkg.Tasks[i].Name, Leaf: leaf})
		}
		tasks.Sort()
		for i := range t.tasks {
			if e := &t.tasks[i]; e.Leaf.Kind != record.LeafUnassigned {
				if _, ok := tasks.Get(e.Name); !ok {
					r.dropped[e.Name] = e.Leaf
				}
			}
		}
		t.tasks, s.PackageHash = tasks, hash
		return nil
	})
	if err != nil {
		return err
	}
	r.state.PackageHash, r.grown = hash, hash
	link, err := r.w.states.links.remembered(ctx, r.ws)
	if err != nil && !errors.Is(err, errBadLink) {
		return err
	}
	if link == nil || link.Package != was { // the next start reads the file again
		return nil
	}
	link.Package = hash
	return r.w.states.links.saveLink(ctx, r.ws, link, false, nil)
}
