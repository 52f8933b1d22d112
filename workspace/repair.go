package workspace

import (
	"context"
	"slices"

	"e3/internal/events"
	"e3/internal/format/record"
)

// Unassign takes outputs off a workspace whose content is lost: tasks maps names to the hashes that are lost. What has
// changed since stays. It returns the names that hold nothing now.
func (w *Deployer) Unassign(ctx context.Context, ws string, tasks map[string]string) ([]string, error) {
	var gone []string
	_, err := w.states.edit(ctx, nil, ws, true, tasksPart, func(_ *State, t *tree) error {
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

// MendEvents puts the events of a run right that were damaged, and returns how many are lost. The workspace must be idle.
func (w *Repairer) MendEvents(ctx context.Context, ws, run string) (lost int, err error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	lost, err = events.Mend(ctx, w.states.Records, ws, run)
	return lost, lock.explain(ctx, err)
}

// UnsealEvents makes the events of a run of this repository writable. The workspace must be idle.
func (w *Repairer) UnsealEvents(ctx context.Context, ws, run string) error {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.explain(ctx, events.Unseal(ctx, w.states.Records, ws, run))
}

// LinkedInputs returns, for the inputs of a workspace that follow its package file, or a file beside it, that package file. An
// input that was set is not among them.
func (w *Deployer) LinkedInputs(ctx context.Context, ws string) (map[string]string, error) {
	s, err := w.states.State(ctx, ws)
	if err != nil || !s.Deployed {
		return nil, err
	}
	link, err := w.states.links.link(ctx, ws, s)
	if err != nil || link == nil {
		return nil, err
	}
	t, err := w.states.readTree(ctx, s.RootHash, inputsPart)
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
