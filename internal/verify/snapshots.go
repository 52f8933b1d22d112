package verify

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/reach"
	"e3/refstore"
)

// A run's record requires the nodes of its snapshots, though not their datasets, and a collection keeps these nodes.
// Only an imported run may lack nodes from the beginning, since its zip may lack them. Missing nodes that only events
// name give a note.

// snapshot checks the nodes that a run's record or events name.
func (t *tracer) snapshot(r reach.Root) error {
	parts, err := t.below(r.Ref, 0)
	if err != nil || len(parts) == 0 {
		return err
	}
	rec, run, err := t.v.ownRun(t.ctx, r.Owner.Name, r.Owner.ID)
	if err != nil {
		return err
	}
	h := r.Hash.String()
	if run != nil && (run.InputSnapshot == h || run.OutputSnapshot == h) {
		return t.lost(r.Ref, need{kind: needsSnapshot, workspace: r.Owner.Name, name: r.Owner.Role, execution: r.Owner.ID})
	}
	if _, imported := rec.Field(runview.FieldProvenance); !imported {
		t.v.note("the events of run %s of workspace %s name %s of which nodes are broken or gone: that run cannot be compared with others",
			r.Owner.ID, r.Owner.Name, r.Owner.Role)
	}
	return nil
}

// ownRun reads the record of a run that was made here; nil if there is none or it is unreadable.
func (v *verifier) ownRun(ctx context.Context, ws, id string) (refstore.Record, *record.Run, error) {
	rec, err := v.Records.Get(ctx, runview.Key(ws, id), runview.FieldProvenance, runview.FieldEvents)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) { // a fault of its own
		return rec, nil, nil
	}
	if err != nil {
		return rec, nil, err
	}
	if _, imported := rec.Field(runview.FieldProvenance); imported {
		return rec, nil, nil
	}
	run, err := record.DecodeRun(rec.Value)
	if err != nil {
		return rec, nil, nil // a fault of its own
	}
	return rec, run, nil
}

// dropSnapshot removes a snapshot from the record of a run.
func (v *verifier) dropSnapshot(ctx context.Context, n need) error {
	rec, run, err := v.ownRun(ctx, n.workspace, n.execution)
	if err != nil || run == nil {
		return err
	}
	top := n.top.String()
	if run.InputSnapshot == top {
		run.InputSnapshot = ""
	}
	if run.OutputSnapshot == top {
		run.OutputSnapshot = ""
	}
	rec.Value = run.Encode()
	if _, err := v.Records.Put(ctx, rec); err != nil && !errors.Is(err, refstore.ErrConflict) { // a run just replaced it
		return fmt.Errorf("record of run %s: %w", n.execution, err)
	}
	return nil
}
