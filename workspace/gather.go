package workspace

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"

	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// A deployment puts every task and every input of the package, and with shared objects each put is a request. The store
// already has nearly all of them, because a deployed package in this or another workspace names them. So a deployment
// first gathers its objects on this machine, then protects a root that names most of them, and sends the rest.

// A Gathering is an object store that keeps puts on this machine until Send, which stores them together, without the
// objects that held says are stored. Afterwards it works like the original store, but refreshes gathered and held
// objects without a request. objectstore.ErrUnsent says that an object must be put again.
type Gathering interface {
	Objects
	Send(ctx context.Context, held func(objectstore.Hash) bool) error
}

// A Gatherer is an object store in which a put costs a request.
type Gatherer interface {
	Objects
	// Gather begins a Gathering.
	Gather() Gathering
}

// gathering returns a deployer that gathers its objects; nil if puts cost no request.
func (w *Deployer) gathering() (*Deployer, Gathering) {
	far, ok := w.states.Objects.(Gatherer)
	if !ok || w.states.Sessions == nil {
		return nil, nil
	}
	g := far.Gather()
	return assemble(w.states.withObjects(g)).Deployer, g
}

// buildBeside is buildRead, but does not put objects that the states returned by roots name. roots protects those states
// until the built package is named.
func (w *Deployer) buildBeside(ctx context.Context, read *PackageFile, before *record.Link, roots func(*Built) ([]*State, error)) (*Built, error) {
	d, g := w.gathering()
	if d == nil {
		return w.buildRead(ctx, read, before)
	}
	built, err := d.buildRead(ctx, read, before)
	if err != nil {
		return nil, err
	}
	states, err := roots(built)
	if err == nil {
		err = w.send(ctx, g, built.Link.Inputs, states...)
	}
	if errors.Is(err, objectstore.ErrUnsent) {
		return w.buildRead(ctx, read, before)
	}
	return built, err
}

// send stores the gathered objects, including linked inputs, except for those that the roots name.
func (w *Deployer) send(ctx context.Context, g Gathering, linked []record.LinkInput, roots ...*State) error {
	n := &namedObjects{states: w.states, gathered: g, dirs: map[string][]objectstore.Hash{}}
	for _, s := range roots {
		if err := n.root(ctx, s); err != nil && !isLost(err) && !errors.Is(err, record.ErrType) {
			return err
		}
	}
	if err := n.trees(ctx, linked); err != nil {
		return err
	}
	return g.Send(ctx, n.names.Has)
}

// similar returns the workspaces that probably name most of a package, and protects them: a workspace with the same
// package, else the workspace ws and the one in which a package of that name was last deployed.
func (w *States) similar(ctx context.Context, ws string, built *Built) (roots []*State, release func(), err error) {
	var held []func()
	release = func() {
		for _, f := range held {
			f()
		}
	}
	type candidate struct {
		name  string
		state *State
	}
	var list []candidate // an unreadable workspace is no candidate
	for rec, err := range (refstore.Unreadable{Store: w.Records}).List(ctx, refstore.Query{Partition: stateKey("").Partition}) {
		if err != nil {
			return nil, release, err
		}
		s, err := decodeState(rec.Key.Sort, rec)
		if err == nil && s.Deployed && s.PackageName == built.Package.Name {
			list = append(list, candidate{rec.Key.Sort, s})
		}
	}
	rank := func(c candidate) int {
		switch {
		case c.state.PackageHash == built.Hash:
			return 0
		case c.name == ws:
			return 1
		}
		return 2
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.state.DeployedAt.Compare(a.state.DeployedAt))
	})
	most := 2
	for _, c := range list {
		if len(roots) == most || len(roots) > 0 && roots[0].PackageHash == built.Hash {
			break
		}
		free, err := w.protect(ctx, "node "+c.state.RootHash, "package "+c.state.PackageHash)
		if err != nil {
			return nil, release, err
		}
		held = append(held, free)
		// Its objects may have been collected before they were protected, unless the workspace still names them.
		now, err := w.readState(ctx, c.name)
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, release, err
		}
		if s, err := decodeState(c.name, now); err == nil && s.Deployed && s.RootHash == c.state.RootHash && s.PackageHash == c.state.PackageHash {
			roots = append(roots, s)
		}
	}
	return roots, release, nil
}

// namedObjects collects the names of objects that protected roots name.
type namedObjects struct {
	states   *States
	gathered Objects // holds the trees of the linked inputs

	names objectstore.HashSet
	dirs  map[string][]objectstore.Hash // directories that the roots have for an input
}

func (n *namedObjects) add(hash string) {
	if h, err := objectstore.ParseHash(hash); err == nil {
		n.names.Add(h)
	}
}

// root adds the objects that a workspace's state names. The content of an input that is not exported may be absent.
func (n *namedObjects) root(ctx context.Context, s *State) error {
	pkg, err := n.states.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return err
	}
	t, err := n.states.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return err
	}
	for _, hash := range []string{s.PackageHash, s.RootHash, t.inputsHash, t.tasksHash} {
		n.add(hash)
	}
	for i := range pkg.Tasks {
		n.add(pkg.Tasks[i].Task)
	}
	for _, hash := range pkg.Sources() {
		n.add(hash)
	}
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		if in.NoExport {
			continue
		}
		n.leaf(in.Name, in.Default)
		if leaf, ok := t.inputs.Get(in.Name); ok {
			n.leaf(in.Name, leaf)
		}
	}
	return nil
}

func (n *namedObjects) leaf(input string, leaf record.Leaf) {
	n.add(leaf.Hash)
	if leaf.Kind != record.LeafDir {
		return
	}
	if h, err := objectstore.ParseHash(leaf.Hash); err == nil && !slices.Contains(n.dirs[input], h) {
		n.dirs[input] = append(n.dirs[input], h)
	}
}

// A treePair is a directory that a root names, and the directory that replaces it.
type treePair struct{ was, is objectstore.Hash }

// trees adds the objects that directories of the linked inputs share with the roots' directories. It reads only
// directories that differ.
func (n *namedObjects) trees(ctx context.Context, linked []record.LinkInput) error {
	var pairs []treePair
	for i := range linked {
		is, err := objectstore.ParseHash(linked[i].Leaf.Hash)
		if err != nil || linked[i].Leaf.Kind != record.LeafDir {
			continue
		}
		if n.names.Has(is) {
			pairs = append(pairs, treePair{is, is})
			continue
		}
		for _, was := range n.dirs[linked[i].Name] {
			pairs = append(pairs, treePair{was, is})
		}
	}
	for depth := 0; len(pairs) > 0 && depth <= dirtree.MaxDepth; depth++ {
		below := make([][]treePair, len(pairs))
		err := parallel.AtMost(ctx, n.states.Lookups, len(pairs), func(ctx context.Context, i int) (err error) {
			below[i], err = n.pair(ctx, pairs[i])
			if is, _ := objectstore.IsLost(err); is {
				err = nil // objects that are not known to be named are sent
			}
			return err
		})
		if err != nil {
			return err
		}
		pairs = slices.Concat(below...)
	}
	return nil
}

// pair adds the objects that two directories share, and returns the pairs of subdirectories to compare next.
func (n *namedObjects) pair(ctx context.Context, p treePair) (below []treePair, err error) {
	if p.was == p.is {
		return nil, n.whole(ctx, p.is)
	}
	was, err := dirtree.Read(ctx, n.gathered, p.was)
	if err != nil {
		return nil, err
	}
	is, err := dirtree.Read(ctx, n.gathered, p.is)
	if err != nil {
		return nil, err
	}
	dirs := map[string]objectstore.Hash{}
	for i := range is {
		if is[i].Kind == dirtree.KindDir {
			dirs[is[i].Name] = is[i].Hash
		}
	}
	for i := range was {
		if was[i].Kind == dirtree.KindLink {
			continue
		}
		n.names.Add(was[i].Hash)
		if now, ok := dirs[was[i].Name]; ok && was[i].Kind == dirtree.KindDir {
			below = append(below, treePair{was[i].Hash, now})
		}
	}
	return below, nil
}

// whole adds everything in a directory that a root names.
func (n *namedObjects) whole(ctx context.Context, dir objectstore.Hash) error {
	var seen objectstore.HashSet
	return dirtree.Walk(ctx, n.gathered, dir, func(_ string, e dirtree.Entry) error {
		if e.Kind == dirtree.KindLink {
			return nil
		}
		n.names.Add(e.Hash)
		if e.Kind == dirtree.KindDir && !seen.Add(e.Hash) {
			return fs.SkipDir
		}
		return nil
	})
}
