package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// importedKept is how many imported runs of a workspace stay regardless of age: the latest ones.
const importedKept = 20

// RetireImported removes the records of runs that were imported before a time, except for the latest 20 of each
// workspace and the run that its state names; names without a workspace are included. CleanEvents then removes their
// events, and objects that only they held become garbage. It returns the runs, also with an error.
func (w *Cleaner) RetireImported(ctx context.Context, before time.Time, dryRun bool) ([]events.RunRef, error) {
	var retired []events.RunRef
	var names []string
	for rec, err := range w.states.Records.List(ctx, refstore.Query{Partition: "RUNS", KeysOnly: true}) {
		if err != nil {
			return nil, fmt.Errorf("imported runs: %w", err)
		}
		names = append(names, rec.Key.Sort)
	}
	for _, ws := range names {
		old, err := w.oldImported(ctx, ws, before)
		for _, id := range old {
			if err == nil && !dryRun {
				err = refstore.Forget(ctx, w.states.Records, w.states.Locks, runview.Key(ws, id))
			}
			if err == nil {
				retired = append(retired, events.RunRef{Workspace: ws, Run: id})
			}
		}
		if err != nil {
			return retired, fmt.Errorf("imported runs of workspace %s: %w", ws, err)
		}
	}
	return retired, nil
}

// oldImported lists the imported runs of a workspace that may be removed. The age of a run counts from its last import.
// Unreadable records are left to verify.
func (w *Cleaner) oldImported(ctx context.Context, ws string, before time.Time) ([]string, error) {
	var old []string
	n := 0
	q := refstore.Query{Partition: "DATAFLOW/" + ws, Descending: true, Fields: []string{runview.FieldProvenance}}
	for rec, err := range w.states.Records.List(ctx, q) {
		if err != nil {
			return nil, err
		}
		data, is := rec.Field(runview.FieldProvenance)
		if !is {
			continue
		}
		if n++; n <= importedKept {
			continue
		}
		p, err := record.DecodeProvenance(data)
		if err == nil && len(p.Steps) > 0 && p.Steps[len(p.Steps)-1].ImportedAt.Before(before) {
			old = append(old, rec.Key.Sort)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	s, err := w.states.State(ctx, ws)
	if errors.Is(err, ErrNotFound) {
		return old, nil
	}
	if err != nil {
		return nil, err
	}
	kept := old[:0]
	for _, id := range old {
		if id != s.CurrentRunID {
			kept = append(kept, id)
		}
	}
	return kept, nil
}
