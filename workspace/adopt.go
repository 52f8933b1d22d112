package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/record"
	"e3/refstore"
)

// Adopt makes a workspace with a state that comes from elsewhere, or gives that state to one that is empty. It follows no
// file. What the state names must be stored and durable. To adopt the state that the workspace has is fine; ErrExists if
// it has another one.
func (w *Workspaces) Adopt(ctx context.Context, name string, state *record.WorkspaceState) error {
	lock, err := w.lock(ctx, name, record.Deployment)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := w.Create(ctx, name); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	s, err := w.State(ctx, name)
	if err != nil {
		return err
	}
	if s.Deployed {
		if s.WorkspaceState == *state {
			return nil
		}
		return fmt.Errorf("workspace %s: %w", name, ErrExists)
	}
	// What this machine remembers of an earlier workspace of that name says nothing about this one.
	for _, key := range []refstore.Key{linkKey(name), proofKey(name), durationsKey(name)} {
		if err := forget(ctx, w.Local, key); err != nil {
			return err
		}
	}
	_, err = w.update(ctx, name, true, func(now *State) error {
		if now.Deployed {
			return fmt.Errorf("workspace %s: %w", name, ErrExists)
		}
		now.WorkspaceState, now.Deployed = *state, true
		return nil
	})
	return err
}
