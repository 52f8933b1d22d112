package runview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
	"e3/refstore"
)

// FieldProvenance is the side field of an imported run.
const FieldProvenance = "provenance.beast2"

// FieldEvents is the field of a run's record that has the bounds of its events.
const FieldEvents = refstore.SumField

// BoundsOf returns the bounds of a run's events from the run's record, which must have been read with FieldEvents.
func BoundsOf(rec refstore.Record) events.Bounds {
	text, _ := rec.Field(FieldEvents)
	return events.ParseBounds(text)
}

// Key is the key of a run's record.
func Key(ws, id string) refstore.Key { return refstore.Key{Partition: "DATAFLOW/" + ws, Sort: id} }

// Imported reports whether a record belongs to an imported run. The record must have been read with its provenance.
func Imported(rec refstore.Record) bool {
	_, ok := rec.Field(FieldProvenance)
	return ok
}

// Recorded is the record of a run with its provenance.
type Recorded struct {
	*record.Run
	Provenance *record.Provenance // nil if it was made here
}

func decodeRun(rec refstore.Record) (*Recorded, error) {
	r := &Recorded{}
	var err error
	if len(rec.Value) == 0 {
		return nil, fmt.Errorf("run %s: its record is %w", rec.Key.Sort, refstore.ErrDamaged)
	}
	if r.Run, err = record.DecodeRun(rec.Value); err != nil {
		return nil, fmt.Errorf("run %s: %w", rec.Key.Sort, err)
	}
	if data, ok := rec.Field(FieldProvenance); ok {
		if r.Provenance, err = record.DecodeProvenance(data); err != nil {
			return nil, fmt.Errorf("run %s: %w", rec.Key.Sort, err)
		}
	}
	return r, nil
}

// Run reads a run record. "" is the run that a workspace shows: the greatest id among its own runs, which may be still
// running. A workspace without own runs shows an imported run: the run that its state names, else the one with the
// greatest id.
func (v *Runs) Run(ctx context.Context, ws, id string) (*record.Run, error) {
	r, err := v.Read(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	return r.Run, nil
}

// Read is like Run and also returns the provenance of the run.
func (v *Runs) Read(ctx context.Context, ws, id string) (*Recorded, error) {
	rec, err := v.Stored(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	return decodeRun(rec)
}

// Stored reads the record of a run with its provenance; "" is the run that the workspace shows.
func (v *Runs) Stored(ctx context.Context, ws, id string) (refstore.Record, error) {
	if id == "" {
		return v.shownRun(ctx, ws)
	}
	rec, err := unread(v.Records.Get(ctx, Key(ws, id), FieldProvenance, FieldEvents))
	if err != nil {
		return rec, fmt.Errorf("run %s: %w", id, err)
	}
	return rec, nil
}

// unread treats a damaged record like an unreadable one, since the events may still describe the run.
func unread(rec refstore.Record, err error) (refstore.Record, error) {
	if errors.Is(err, refstore.ErrDamaged) {
		rec.Value, err = nil, nil
	}
	return rec, err
}

func (v *Runs) shownRun(ctx context.Context, ws string) (refstore.Record, error) {
	var found []refstore.Record // imported, greatest first
	q := refstore.Query{Partition: "DATAFLOW/" + ws, Descending: true, Fields: []string{FieldProvenance, FieldEvents}}
	for rec, err := range v.Records.List(ctx, q) {
		if rec, err = unread(rec, err); err != nil {
			return rec, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if !Imported(rec) {
			return rec, nil
		}
		found = append(found, rec)
	}
	if len(found) == 0 {
		return refstore.Record{}, fmt.Errorf("workspace %s has not been run: %w", ws, ErrNoRun)
	}
	shown := found[0]
	if len(found) > 1 {
		s, err := v.Workspaces.State(ctx, ws)
		if err != nil && !errors.Is(err, human.ErrNotFound) {
			return shown, err
		}
		for _, rec := range found {
			if s != nil && rec.Key.Sort == s.CurrentRunID {
				shown = rec
			}
		}
	}
	return shown, nil
}

// IDs returns the ids of all runs of a workspace that have a record, or events, in order; recorded are the ids with a
// record.
func (v *Runs) IDs(ctx context.Context, ws string) (ids []string, recorded map[string]bool, err error) {
	recorded = map[string]bool{}
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return nil, nil, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		recorded[rec.Key.Sort] = true
		ids = append(ids, rec.Key.Sort)
	}
	for key, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
		if err != nil {
			return nil, nil, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if _, err := executions.ParseID(key.Sort); err == nil && !recorded[key.Sort] {
			ids = append(ids, key.Sort)
		}
	}
	slices.Sort(ids)
	return ids, recorded, nil
}

// Another reports whether a workspace has a run, with a record or events, besides the one with this id.
func (v *Runs) Another(ctx context.Context, ws, id string) (bool, error) {
	for key, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
		if err != nil {
			return false, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if _, err := executions.ParseID(key.Sort); err == nil && key.Sort != id {
			return true, nil
		}
	}
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return false, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if rec.Key.Sort != id {
			return true, nil
		}
	}
	return false, nil
}

// runID finds a run by its id or a prefix of it; "" stays "".
func (v *Runs) runID(ctx context.Context, ws, prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	known, _, err := v.IDs(ctx, ws)
	if err != nil {
		return "", err
	}
	slices.Reverse(known)
	var fit []string
	for _, id := range known {
		if id == prefix {
			return id, nil
		}
		if strings.HasPrefix(id, strings.ToLower(prefix)) {
			fit = append(fit, id)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return "", &executions.AmbiguousError{What: "run", Prefix: prefix, Fits: fit}
	case len(known) == 0:
		return "", fmt.Errorf("workspace %s has not been run: %w", ws, ErrNoRun)
	}
	return "", &human.UnknownError{What: "run", Name: prefix, Known: known}
}

// InUse returns the runs whose executions a workspace protects: its own runs (only the current, the proven and the active run
// are kept), and the imported run that its state names. Further imported runs are history.
func (v *Runs) InUse(ctx context.Context, ws string) ([]*record.Run, error) {
	s, err := v.Workspaces.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	var runs []*record.Run
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, Fields: []string{FieldProvenance}}) {
		if err != nil {
			return nil, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if Imported(rec) && rec.Key.Sort != s.CurrentRunID {
			continue
		}
		run, err := record.DecodeRun(rec.Value)
		if err != nil {
			return nil, fmt.Errorf("run %s of workspace %s: %w", rec.Key.Sort, ws, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// FromEvents rebuilds the record of an ended run from its events; nil if they are incomplete.
func (v *Runs) FromEvents(ctx context.Context, ws, id string) (*record.Run, error) {
	r, found, err := v.headFromEvents(ctx, ws, id)
	if err != nil || !found || r.Provenance != nil {
		return nil, err
	}
	f, damage, err := v.Fold(ctx, ws, id)
	if err != nil || damage != nil || f.started == nil || f.end == nil {
		return nil, err
	}
	unnamed, err := v.Expand(ctx, ws, id, f)
	if err != nil || unnamed > 0 {
		return nil, err
	}
	g, err := v.graphOf(ctx, f.PackageHash())
	if err != nil {
		return nil, err
	}
	f.sort(g)
	run := r.Run
	if _, err := objectstore.ParseHash(run.InputSnapshot); err != nil {
		return nil, nil
	}
	run.Tasks = f.Executions()
	return run, nil
}
