package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// regrow makes and deploys the package of a workspace again if the inputs' lists of items differ from the lists that
// its tasks were made of. It reports whether it did. The caller holds the lock; link is nil unless the workspace
// follows a file of this machine.
func (w *Deployer) regrow(ctx context.Context, lock *hold, s *State, pkg *record.Package, link *record.Link, durable bool) (bool, error) {
	if pkg.Definition == "" {
		return false, nil
	}
	t, err := w.states.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return false, err
	}
	follows := func(string) bool { return false }
	if link != nil {
		marks := s.marks(link)
		follows = func(name string) bool { return !slices.Contains(marks, name) }
	}
	x, hash, err := w.regrown(ctx, pkg, t.inputs, follows)
	if err != nil && link != nil {
		err = locateIn(link.File, err)
	}
	if x == nil || err != nil {
		return false, err
	}
	from := origin{}
	if link != nil {
		from.file = link.File
	}
	if s.deployment != nil { // the origin does not change
		from = origin{s.deployment.ID, s.deployment.File}
	}
	if _, err := w.install(ctx, lock, x.pkg, hash, from, durable); err != nil {
		return false, err
	}
	if link != nil {
		link.Package = hash
		err = w.states.links.saveLink(ctx, lock.ws, link, durable, nil)
	}
	return true, err
}

// regrown makes a package again from the lists of the present inputs, and stores it. It returns nil if the lists are
// the package's own. Lists that tasks make stay as they are. Inputs that follow files get their present datasets as
// defaults, as if the package had been built from its file.
func (w *Deployer) regrown(ctx context.Context, pkg *record.Package, inputs record.Node, follows func(input string) bool) (*expansion, string, error) {
	if pkg.Definition == "" || !outgrown(pkg, inputs) {
		return nil, "", nil
	}
	now := *pkg
	now.Inputs = slices.Clone(pkg.Inputs)
	for i := range now.Inputs {
		in := &now.Inputs[i]
		if leaf, ok := inputs.Get(in.Name); ok && in.Source.IsFile() && follows(in.Name) {
			in.Default = leaf
		}
	}
	x, err := w.expand(ctx, &now, func(input, _ string) (record.Leaf, bool) {
		leaf, ok := inputs.Get(input)
		return leaf, ok && input != ""
	})
	if err != nil {
		return nil, "", err
	}
	if err := x.err(); err != nil {
		return nil, "", err
	}
	h, err := objectstore.PutBytes(ctx, w.states.Objects, x.pkg.Encode())
	if err != nil {
		return nil, "", fmt.Errorf("store package: %w", err)
	}
	return x, h.String(), nil
}

// outgrown reports whether an input may have another list of items than the package was made of.
func outgrown(pkg *record.Package, inputs record.Node) bool {
	for i := range pkg.Lists {
		l := &pkg.Lists[i]
		if leaf, ok := inputs.Get(l.Input); l.Input != "" && ok && leaf.Hash != l.From {
			return true
		}
	}
	return false
}

// knownLists are the lists of a package that was built before, as far as it can be read.
func (w *Deployer) knownLists(ctx context.Context, link *record.Link) ([]record.PackageList, error) {
	if link == nil || link.Package == "" {
		return nil, nil
	}
	pkg, err := w.states.Packages.Load(ctx, link.Package)
	switch {
	case err == nil:
		return pkg.Lists, nil
	case isLost(err) || errors.Is(err, record.ErrType) || errors.Is(err, refstore.ErrDamaged):
		return nil, nil
	}
	return nil, err
}

// regrow is Deployer.regrow for a run. It returns the nodes of the run's tree.
func (r *run) regrow(ctx context.Context, link *record.Link, info *RunInfo) (inputs, tasks string, err error) {
	if info.Package == nil {
		if info.Package, err = r.w.states.Packages.Load(ctx, r.state.PackageHash); err != nil {
			info.Package = nil // whatever needs its tasks reports the error
			return r.inputs, r.tasks, context.Cause(ctx)
		}
	}
	grown, err := r.w.deployer.regrow(ctx, r.lock, r.state, info.Package, link, r.durable)
	if err != nil || !grown {
		return r.inputs, r.tasks, err
	}
	info.Package = nil
	run := r.state.CurrentRunID
	if err := r.hold(ctx); err != nil {
		return "", "", err
	}
	r.state.CurrentRunID = run
	r.inputs, r.tasks, err = r.w.states.readRoot(ctx, r.state.RootHash)
	return r.inputs, r.tasks, err
}

// regrow is Deployer.regrow for a preview. It stores nothing.
func (p *preview) regrow(ctx context.Context, dry *Deployer) error {
	x, hash, err := dry.regrown(ctx, p.pkg, p.inputs, func(name string) bool { return p.file != "" && !p.set[name] })
	if x != nil {
		p.pkg, p.pkgHash = x.pkg, hash
	}
	if err != nil && p.file != "" {
		err = locateIn(p.file, err)
	}
	return err
}
