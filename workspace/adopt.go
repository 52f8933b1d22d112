package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
)

// Adopt gives a state from elsewhere to a new or empty workspace, which then follows no file. The objects that the
// state names must be stored and durable. Adopting the present state again succeeds; a workspace with another state is
// ErrExists.
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
		// One write makes the workspace together with its state, so that a failure leaves no empty workspace.
		s, lock.known = &State{}, &State{}
	case err != nil:
		return err
	case s.Deployed && s.WorkspaceState == *state:
		return nil
	case s.Deployed:
		return fmt.Errorf("workspace %s: %w", name, ErrExists)
	}
	// Drop the link and the proof of an earlier workspace of that name.
	if err := w.states.forgetDerived(ctx, name); err != nil {
		return err
	}
	from, err := w.states.links.origin(ctx, name, s, "", true)
	if err != nil {
		return err
	}
	// As in a deployment of a package file, the link is removed first: if that fails, there is no workspace yet, and a
	// link without a workspace has no effect.
	if !w.states.links.shared {
		if err := w.endAdopted(ctx, name, state); err != nil {
			return err
		}
	}
	same := false
	_, err = w.states.update(ctx, lock, name, true, func(now *State) error {
		if now.Deployed { // by another process, or by this one if its response was lost
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

// endAdopted records that an adopted workspace follows no file on this machine.
func (w *Deployer) endAdopted(ctx context.Context, name string, state *record.WorkspaceState) error {
	pkg, err := w.states.Packages.Load(ctx, state.PackageHash)
	if errors.Is(err, record.ErrType) {
		return nil // a package of the reference, which has no set inputs
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
