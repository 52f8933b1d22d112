package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/packages"
	"e3/refstore"
)

// A branch is a workspace that was made from another workspace for an experiment ("e3 start --as"). It has that
// workspace's package and inputs as they were, with some values of its own, and follows no file. Both share objects
// and executions.

// A TakenError says that a workspace is no branch that may be made anew.
type TakenError struct{ Workspace, Why string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("workspace %s %s, so it is not made anew from another one: give another name", e.Workspace, e.Why)
}

// Branch makes the workspace ws from the workspace from as the next start of from would see it, with other values for
// some inputs, which stay. If ws exists, follows no file and has an unregistered package of the same name, it is made
// anew; any other existing ws is a *TakenError. Branch neither locks nor changes from. The warnings are about values
// that no task reads.
func (w *Deployer) Branch(ctx context.Context, from, ws string, set []Override) (told events.Settings, warnings []manifest.Warning, err error) {
	if from == ws {
		return nil, nil, &TakenError{ws, "is that workspace itself"}
	}
	err = w.states.steady(ctx, from, func(s *State) (err error) {
		var pkg *record.Package
		if told, pkg, err = w.branch(ctx, from, s, ws, set); err == nil {
			warnings = unread(pkg, told)
		}
		return err
	})
	return told, warnings, err
}

func (w *Deployer) branch(ctx context.Context, from string, s *State, ws string, set []Override) (events.Settings, *record.Package, error) {
	pkg, hash, err := w.present(ctx, from, s)
	if err != nil {
		return nil, nil, err
	}
	old, err := w.states.holdings(ctx, from, s, pkg)
	if err != nil {
		return nil, nil, err
	}
	t := &tree{tasks: unassigned(pkg)}
	kept := map[string]bool{}
	if t.inputs, err = w.keptInputs(ctx, pkg, old, kept); err != nil {
		return nil, nil, err
	}
	for i := range t.inputs {
		if _, err := w.states.refresh(ctx, t.inputs[i].Leaf, record.Leaf{}); err != nil {
			return nil, nil, err
		}
	}
	var told events.Settings
	if t.inputs, told, err = w.datasets.overridden(ctx, from, pkg, t.inputs, set); err != nil {
		return nil, nil, err
	}
	for name := range told {
		kept[name] = true
	}
	for name := range old.set {
		if _, decided := kept[name]; !decided && pkg.Declares(name) {
			kept[name] = true
		}
	}
	if err := w.states.Create(ctx, ws); err != nil && !errors.Is(err, ErrExists) {
		return nil, nil, err
	}
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Unlock()
	return told, pkg, lock.explain(ctx, w.installBranch(ctx, lock, pkg, hash, t, kept))
}

// present returns the package that the next start of a workspace would run, with all of its objects stored.
func (w *Deployer) present(ctx context.Context, ws string, s *State) (*record.Package, string, error) {
	if !s.Deployed {
		return nil, "", fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	link, err := w.states.links.link(ctx, ws, s)
	if err != nil {
		return nil, "", err
	}
	if other, err := w.states.links.unfollowed(ctx, ws, s, link); err != nil || other != nil {
		return nil, "", either(other, err)
	}
	if _, err := w.states.roomsOf(ctx, ws, link); err != nil {
		return nil, "", err
	}
	if link != nil && !folderGone(link.File) {
		built, err := w.Build(ctx, link.File, link)
		if err != nil {
			return nil, "", err
		}
		if _, err := graph.New(built.Package); err != nil {
			return nil, "", err
		}
		return built.Package, built.Hash, nil
	}
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if err == nil {
		err = w.states.refreshPackage(ctx, s.PackageHash, pkg)
	}
	if err != nil {
		return nil, "", fmt.Errorf("workspace %s: %w", ws, w.states.notRunnable(ctx, s, err))
	}
	return pkg, s.PackageHash, nil
}

// installBranch gives the workspace the tree and the package, if the workspace is free or a branch.
func (w *Deployer) installBranch(ctx context.Context, lock *hold, pkg *record.Package, hash string, t *tree, kept map[string]bool) error {
	ws := lock.ws
	from, err := w.states.links.origin(ctx, ws, nil, "", true)
	if err != nil {
		return err
	}
	s, err := lock.read(ctx)
	if err == nil {
		err = isBranch(ctx, w.states, ws, s, pkg)
	}
	if err != nil {
		return err
	}
	// As for an adopted workspace, the link goes first: a link without a file has no effect.
	if w.states.links.shared {
		err = w.states.links.forgetLink(ctx, ws)
	} else {
		marks := slices.DeleteFunc(slices.Sorted(maps.Keys(kept)), func(name string) bool { return !kept[name] })
		err = w.states.links.saveLink(ctx, ws, &record.Link{}, true, func([]string) []string { return marks })
	}
	if err != nil {
		return err
	}
	_, err = w.states.update(ctx, lock, ws, true, func(s *State) error {
		root, err := w.states.writeTree(ctx, t, bothParts)
		if err == nil {
			err = w.states.Records.Sync(ctx)
		}
		if err != nil {
			return err
		}
		now := w.states.Now()
		s.PackageName, s.PackageVersion, s.PackageHash = pkg.Name, pkg.Version, hash
		s.DeployedAt, s.RootHash, s.RootUpdatedAt, s.Deployed = now, root, now, true
		w.states.links.deployedFrom(s, from, pkg, nil)
		return nil
	})
	return err
}

// isBranch returns nil if a workspace is empty, or may be a branch with such a package.
func isBranch(ctx context.Context, states *States, ws string, s *State, pkg *record.Package) error {
	if !s.Deployed {
		return nil
	}
	link, err := states.links.link(ctx, ws, s)
	switch {
	case err != nil && !errors.Is(err, errBadLink):
		return err
	case err != nil, s.deployment != nil && s.deployment.File != "":
		return &TakenError{ws, "follows a package file"}
	case link != nil:
		return &TakenError{ws, "follows " + link.File}
	case s.PackageName != pkg.Name:
		return &TakenError{ws, "holds the package " + s.PackageName + "@" + s.PackageVersion}
	}
	rec, err := states.Records.Get(ctx, packages.Key(s.PackageName, s.PackageVersion))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err == nil && strings.TrimSuffix(string(rec.Value), "\n") == s.PackageHash {
		err = &TakenError{ws, "holds the registered package " + s.PackageName + "@" + s.PackageVersion}
	}
	return err
}

// Main returns the workspace of which all others in names are branches; "": none. A command that names no workspace
// means this one.
func (w *Deployer) Main(ctx context.Context, names []string) (string, error) {
	main, pkg := "", ""
	others := map[string]*State{}
	for _, ws := range names {
		s, err := w.states.State(ctx, ws)
		if err != nil {
			return "", err
		}
		link, err := w.states.links.link(ctx, ws, s)
		if err = ignoreBadLink(err); err != nil {
			return "", err
		}
		switch follows := link != nil || s.deployment != nil && s.deployment.File != ""; {
		case !s.Deployed, follows && main != "":
			return "", nil
		case follows:
			main, pkg = ws, s.PackageName
		default:
			others[ws] = s
		}
	}
	for ws, s := range others {
		err := isBranch(ctx, w.states, ws, s, &record.Package{Name: pkg})
		if errors.As(err, new(*TakenError)) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
	return main, nil
}

// keptInputs are the inputs of a package in a workspace: set values stay if the input's name and kind remain, all
// other inputs get the defaults. kept gets for each input with a set value whether the value was kept.
func (w *Deployer) keptInputs(ctx context.Context, pkg *record.Package, old *holdings, kept map[string]bool) (record.Node, error) {
	inputs := make(record.Node, 0, len(pkg.Inputs))
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		leaf := in.Default
		have, ok := old.inputs.Get(in.Name)
		switch {
		case !ok:
		case in.Source.OfMachine():
			leaf = have // until the next start reads it again
		case in.Source == record.FromParams: // below
			if old.set[in.Name] {
				kept[in.Name] = true
			}
		case old.set[in.Name]:
			if kept[in.Name] = have.Kind == leaf.Kind; kept[in.Name] {
				leaf = have
			}
		}
		inputs = append(inputs, record.NodeEntry{Name: in.Name, Leaf: leaf})
	}
	inputs.Sort()
	return w.keepParams(ctx, inputs, pkg, old)
}
