package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/internal/events"
	"e3/internal/record"
	"e3/refstore"
)

// Unassign takes outputs off a workspace whose content is lost: tasks maps names to the hashes that are lost. What has
// changed since stays. It returns the names that hold nothing now.
func (w *Workspaces) Unassign(ctx context.Context, ws string, tasks map[string]string) ([]string, error) {
	var gone []string
	_, err := w.edit(ctx, nil, ws, true, tasksPart, func(_ *State, t *tree) error {
		gone = gone[:0]
		for i := range t.tasks {
			e := &t.tasks[i]
			if hash, lost := tasks[e.Name]; lost && e.Kind != record.LeafUnassigned && e.Hash == hash {
				e.Leaf = record.Leaf{Kind: record.LeafUnassigned}
				gone = append(gone, e.Name)
			}
		}
		return nil
	})
	return gone, err
}

// Reset makes a workspace empty whose state cannot be read, so that a package can be deployed in it. It returns false
// if the state can be read.
func (w *Workspaces) Reset(ctx context.Context, ws string) (bool, error) {
	ctx, lock, err := w.lock(ctx, ws, record.Deployment, nil)
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	rec, err := w.Records.Get(ctx, stateKey(ws))
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("workspace %s: %w", ws, err)
	}
	if _, err := record.DecodeWorkspaceState(rec.Value); err == nil {
		return false, nil
	}
	rec.Value = nil
	if err = w.confirm(ctx, ws); err == nil {
		_, err = w.Records.PutSync(ctx, rec)
	}
	return err == nil, lock.explain(ctx, err)
}

// CutEvents cuts the events of a run where they cannot be read any more. Nobody may be at work in the workspace.
func (w *Workspaces) CutEvents(ctx context.Context, ws, run string) error {
	ctx, lock, err := w.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	log, err := events.Resume(ctx, w.Records, ws, run, w.Now, nil)
	if err == nil {
		err = log.Close()
	}
	return lock.explain(ctx, err)
}

// LinkedInputs returns, for the inputs of a workspace that follow its package file, or a file beside it, that package file. An
// input that was set is not among them.
func (w *Workspaces) LinkedInputs(ctx context.Context, ws string) (map[string]string, error) {
	s, err := w.State(ctx, ws)
	if err != nil || !s.Deployed {
		return nil, err
	}
	link, err := w.link(ctx, ws, s)
	if err != nil || link == nil {
		return nil, err
	}
	t, err := w.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return nil, err
	}
	linked := make(map[string]string, len(t.inputs))
	for i := range t.inputs {
		if name := t.inputs[i].Name; !slices.Contains(s.marks(link), name) {
			linked[name] = link.File
		}
	}
	return linked, nil
}
