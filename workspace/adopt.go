package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
)

// Adopt makes a workspace with a state that comes from elsewhere, or gives that state to one that is empty. It follows no
// file. What the state names must be stored and durable. To adopt the state that the workspace has is fine; ErrExists if
// it has another one.
func (w *Deployer) Adopt(ctx context.Context, name string, state *record.WorkspaceState) error {
	ctx, lock, err := w.states.lock(ctx, name, record.Deployment, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.explain(ctx, w.adopt(ctx, lock, state))
}

func (w *Deployer) adopt(ctx context.Context, lock *hold, state *record.WorkspaceState) error {
	name := lock.ws
	s, err := lock.read(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
		// It is made with its state in one write, so that a failure leaves no empty workspace.
		s, lock.known = &State{}, &State{}
	case err != nil:
		return err
	case s.Deployed && s.WorkspaceState == *state:
		return nil
	case s.Deployed:
		return fmt.Errorf("workspace %s: %w", name, ErrExists)
	}
	// A link or a proof of an earlier workspace of that name says nothing about this one.
	if err := w.states.forgetDerived(ctx, name); err != nil {
		return err
	}
	from, err := w.states.links.origin(ctx, name, s, "", true)
	if err != nil {
		return err
	}
	// The link goes first, as it does when a package file is deployed: what fails on it leaves no workspace, and a link without
	// a workspace says nothing.
	if !w.states.links.shared {
		if err := w.endAdopted(ctx, name, state); err != nil {
			return err
		}
	}
	same := false
	_, err = w.states.update(ctx, lock, name, true, func(now *State) error {
		if now.Deployed { // by another process, or by this one if the answer got lost
			same = now.WorkspaceState == *state
			return fmt.Errorf("workspace %s: %w", name, ErrExists)
		}
		now.WorkspaceState, now.Deployed = *state, true
		w.states.links.deployedFrom(now, from, nil, nil)
		return nil
	})
	if same {
		return nil
	}
	return err
}

// endAdopted notes that a workspace that comes from elsewhere follows no file here.
func (w *Deployer) endAdopted(ctx context.Context, name string, state *record.WorkspaceState) error {
	pkg, err := w.states.Packages.Load(ctx, state.PackageHash)
	if errors.Is(err, record.ErrType) {
		return nil // the reference's, of which nothing is set
	}
	if err != nil {
		return err
	}
	t, err := w.states.readTree(ctx, state.RootHash, inputsPart)
	if err != nil {
		return err
	}
	set := map[string]bool{}
	for i := range t.inputs {
		e := &t.inputs[i]
		set[e.Name] = e.Leaf != defaultOf(pkg, e.Name)
	}
	return w.endLink(ctx, name, pkg, set)
}
