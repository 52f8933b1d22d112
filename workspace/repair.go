package workspace

import (
	"context"
	"errors"
	"slices"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// Unassign removes outputs whose content is lost from a workspace; tasks maps names to the lost hashes. Outputs that
// have changed since stay. It returns the names that are now unassigned.
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

// UnsealEvents makes the events of a run of this repository writable. The workspace must be idle.
func (w *Repairer) UnsealEvents(ctx context.Context, ws, run string) error {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.explain(ctx, events.Unseal(ctx, w.states.Records, ws, run))
}

// LinkedInputs maps the inputs of a workspace that come from its package file, or a file beside it, to that package
// file. Set inputs are left out.
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

// MendEvents repairs the log of a run: it removes damaged lines and everything after the end (events.Mend), and tells
// again what the run's record knows. The other events up to number last, with which the next run says that this one
// ended, are marked as lost. It returns the number of lost events. The workspace must be idle.
func (w *Runner) MendEvents(ctx context.Context, ws, run string, last int64, x *executions.Curator) (lost int, err error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	var bounds events.Bounds
	rec, unread := w.states.Records.Get(ctx, runview.Key(ws, run), FieldEvents)
	if unread == nil {
		bounds = runview.BoundsOf(rec)
	}
	if lost, err = events.Mend(ctx, w.states.Records, ws, run, bounds.First); err != nil {
		return 0, lock.explain(ctx, err)
	}
	if unread == nil {
		if errors.As(bounds.Check(ctx, w.states.Records, ws, run), new(*events.BoundsError)) {
			// The end is not this run's.
			if err := events.DropEnd(ctx, w.states.Records, ws, run); err != nil {
				return 0, lock.explain(ctx, err)
			}
		}
	}
	s, err := lock.read(ctx)
	if err == nil {
		_, err = w.closeRun(ctx, lock, run, s.CurrentRunID, x)
	}
	if err == nil && last > 0 {
		var more int
		more, err = events.Fill(ctx, w.states.Records, ws, run, last)
		lost += more
	}
	return lost, lock.explain(ctx, err)
}
