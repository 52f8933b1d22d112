package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// Repairer repairs damaged workspaces, for e3 verify.
type Repairer struct {
	states   *States
	deployer *Deployer
}

// Restore replaces a workspace's state that is unreadable or was removed by hand: by the state after its last run if
// that is known, else by an empty state. remedy says what it did, and what is lost.
func (w *Repairer) Restore(ctx context.Context, ws string) (remedy string, err error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Deployment, nil)
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	rec, err := w.states.readState(ctx, ws)
	if err == nil {
		_, err = record.DecodeWorkspaceState(rec.Value)
	} else if !errors.Is(err, refstore.ErrDamaged) && !errors.Is(err, refstore.ErrNotFound) {
		return "", fmt.Errorf("workspace %s: %w", ws, err)
	}
	if err == nil {
		return "another process has mended it", nil
	}
	if errors.Is(err, refstore.ErrNotFound) {
		rec = refstore.Record{Key: stateKey(ws)}
	}
	again, remedy, err := w.restored(ctx, ws, rec)
	if err == nil {
		err = w.states.confirm(ctx, ws)
	}
	if err == nil {
		_, err = w.states.Records.PutSync(ctx, again)
	}
	return remedy, lock.explain(ctx, err)
}

// restored returns the record that replaces a damaged state, and describes its origin.
func (w *Repairer) restored(ctx context.Context, ws string, rec refstore.Record) (refstore.Record, string, error) {
	again := refstore.Record{Key: rec.Key, Version: rec.Version}
	if w.states.links.shared && rec.Version != refstore.Absent { // a damaged field would stay
		again.Fields = []refstore.Field{{Name: FieldDeployment}}
	}
	if whole, err := w.states.Records.Get(ctx, rec.Key); err == nil && whole.Version == rec.Version && len(whole.Value) > 0 {
		if _, err := record.DecodeWorkspaceState(whole.Value); err == nil {
			again.Value = whole.Value
			return again, "the workspace is as it was, but which package file it follows is lost: deploy it again", nil
		}
	}
	s, err := w.lastKnown(ctx, ws)
	if err != nil || s == nil {
		return again, "the workspace is empty now: deploy its package again", err
	}
	again.Value = s.Encode()
	return again, fmt.Sprintf("the workspace is as run %s left it; later values and deployments are lost", s.CurrentRunID), nil
}

// lastKnown returns the latest known state that a run left, nil if there is none.
func (w *Repairer) lastKnown(ctx context.Context, ws string) (*record.WorkspaceState, error) {
	ids, _, err := w.states.Runs.IDs(ctx, ws)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		s, err := w.finalState(ctx, ws, id)
		if err != nil || s != nil {
			return s, err
		}
	}
	return nil, nil
}

// finalState returns the state that a run left; nil if it is unknown or incomplete.
func (w *Repairer) finalState(ctx context.Context, ws, id string) (*record.WorkspaceState, error) {
	r, err := w.states.Runs.Head(ctx, ws, id)
	if err != nil && ctx.Err() == nil { // no readable record of the run
		return nil, nil
	}
	if err != nil || r.Provenance != nil || r.OutputSnapshot == "" {
		return nil, err
	}
	name, version, ok := cutLast(r.PackageRef, "@")
	if !ok {
		return nil, nil
	}
	f, _, err := w.states.Runs.Fold(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	hash := f.PackageHash()
	if hash == "" {
		p, err := w.states.Packages.Find(ctx, name, version)
		if err != nil {
			return nil, ctx.Err()
		}
		hash = p.Hash
	}
	if whole, err := w.canRead(ctx, hash, r.OutputSnapshot); err != nil || !whole {
		return nil, err
	}
	return &record.WorkspaceState{
		PackageName: name, PackageVersion: version, PackageHash: hash, DeployedAt: r.StartedAt,
		RootHash: r.OutputSnapshot, RootUpdatedAt: r.CompletedAt, CurrentRunID: id,
	}, nil
}

// canRead tells whether a package and a tree can be read.
func (w *Repairer) canRead(ctx context.Context, pkg, root string) (bool, error) {
	_, err := w.states.Packages.Load(ctx, pkg)
	if errors.Is(err, record.ErrType) {
		_, err = w.states.Packages.LoadEast(ctx, pkg)
	}
	if err == nil {
		_, err = w.states.readTree(ctx, root, bothParts)
	}
	if err != nil && ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// RebuildRun rebuilds the unreadable record of a run from its events. It returns false if they are incomplete: an event
// is missing, the run has not ended, or it was imported.
func (w *Repairer) RebuildRun(ctx context.Context, ws, id string) (bool, error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	rec, err := w.states.Records.Get(ctx, runview.Key(ws, id), runview.FieldProvenance)
	if err == nil {
		if _, err := record.DecodeRun(rec.Value); err == nil {
			return true, nil // another process has mended it
		}
	} else if !errors.Is(err, refstore.ErrDamaged) {
		return false, lock.explain(ctx, err)
	}
	if runview.Imported(rec) {
		return false, nil
	}
	run, err := w.states.Runs.FromEvents(ctx, ws, id)
	if err != nil || run == nil {
		return false, lock.explain(ctx, err)
	}
	if err = w.states.confirm(ctx, ws); err == nil {
		_, err = w.states.Records.PutSync(ctx, refstore.Record{Key: rec.Key, Value: run.Encode(), Version: rec.Version})
	}
	return err == nil, lock.explain(ctx, err)
}
