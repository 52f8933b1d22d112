package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/packages"
	"e3/objectstore"
)

// heal makes the lost parts of a workspace's tree and package again: from the package file that it follows, else from
// the package. Lost set values are a *LostValuesError. The caller holds the lock. It returns the package file.
func (w *Runner) heal(ctx context.Context, lock *hold, cause error, durable bool) (file string, err error) {
	ws := lock.ws
	s, err := lock.read(ctx)
	if err != nil {
		return "", err
	}
	if !s.Deployed {
		return "", fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	link, err := w.states.links.link(ctx, ws, s)
	if err != nil {
		return "", err
	}
	if err := w.states.discardParts(ctx, ws, s); err != nil {
		return "", err
	}
	if link != nil && !folderGone(link.File) {
		_, err := w.deployer.deployFile(ctx, lock, link.File, durable, nil)
		return link.File, err
	}
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if isLost(err) {
		return "", fmt.Errorf("workspace %s: %w; register package %s@%s again: e3 package build <repo> <e3.yaml>", ws, cause, s.PackageName, s.PackageVersion)
	}
	if err != nil {
		return "", fmt.Errorf("workspace %s: %w", ws, w.states.notRunnable(ctx, s, err))
	}
	_, err = w.states.update(ctx, lock, ws, durable, func(s *State) error {
		t, err := w.states.rebuilt(ctx, ws, s, pkg)
		if err != nil {
			return err
		}
		root, err := w.states.writeTree(ctx, t, bothParts)
		if err == nil && durable {
			err = w.states.Records.Sync(ctx)
		}
		if err == nil && root != s.RootHash {
			s.RootHash, s.RootUpdatedAt = root, w.states.Now()
		}
		return err
	})
	return "", err
}

// Heal does the first step of a start on its own: it repairs a workspace that has lost a part of its tree or package.
// It returns the package file that was deployed for that, "" if the workspace follows none here.
func (w *Runner) Heal(ctx context.Context, ws string) (file string, err error) {
	ctx, lock, err := w.states.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	file, err = w.heal(ctx, lock, objectstore.ErrNotFound, true)
	return file, lock.explain(ctx, err)
}

// discardParts removes damaged objects of a state's tree and package, so that they can be stored again.
func (w *States) discardParts(ctx context.Context, ws string, s *State) error {
	inputs, tasks, err := w.readRoot(ctx, s.RootHash)
	if err != nil && !isLost(err) {
		return err
	}
	if isLost(err) {
		inputs, tasks, _ = w.guessRoot(ctx, ws, s)
	}
	for _, part := range []string{s.RootHash, inputs, tasks, s.PackageHash} {
		h, err := objectstore.ParseHash(part)
		if err != nil {
			continue // the state has none
		}
		if _, err := objectstore.Discard(ctx, w.Objects, h); err != nil {
			return err
		}
	}
	return nil
}

// treeAnew rebuilds the tree of a state that has lost a part, to change one of its parts. If set values are lost,
// only a change of the inputs may rebuild the tree: the lost inputs then hold nothing, and each is reported until it
// is set.
func (w *States) treeAnew(ctx context.Context, ws string, s *State, want parts, cause error) (*tree, error) {
	pkg, err := w.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return nil, cause
	}
	t, err := w.rebuilt(ctx, ws, s, pkg)
	var values *LostValuesError
	if errors.As(err, &values) && want == inputsPart {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return t, w.discardParts(ctx, ws, s)
}

// checkNode reads a node that only later readers of the workspace need. If a read is a request, it does nothing.
func (w *Runner) checkNode(ctx context.Context, node string) error {
	h, err := objectstore.ParseHash(node)
	if err != nil || w.proofs.presumes() {
		return nil
	}
	if err := objectstore.Check(ctx, w.states.Objects, h); err != nil {
		return packages.Part("workspace node", err)
	}
	return nil
}
