package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
)

// A run's record lies under the workspace that it was made in. A run that was imported has its provenance beside it: it
// is history, which nothing here adds to, closes or cleans up. Removing the workspace removes it.

// fieldProvenance is the side field of an imported run.
const fieldProvenance = "provenance.beast2"

func runKey(ws, id string) refstore.Key { return refstore.Key{Partition: "DATAFLOW/" + ws, Sort: id} }

// imported tells whether a run's record, which was read with its provenance, is of an imported run.
func imported(rec refstore.Record) bool {
	_, ok := rec.Field(fieldProvenance)
	return ok
}

// storedRun is a run as it is on record.
type storedRun struct {
	*record.Run
	provenance *record.Provenance // nil where it was made here
}

func decodeRun(rec refstore.Record) (*storedRun, error) {
	r := &storedRun{}
	var err error
	if len(rec.Value) == 0 {
		return nil, fmt.Errorf("run %s: its record is %w", rec.Key.Sort, refstore.ErrDamaged)
	}
	if r.Run, err = record.DecodeRun(rec.Value); err != nil {
		return nil, fmt.Errorf("run %s: %w", rec.Key.Sort, err)
	}
	if data, ok := rec.Field(fieldProvenance); ok {
		if r.provenance, err = record.DecodeProvenance(data); err != nil {
			return nil, fmt.Errorf("run %s: %w", rec.Key.Sort, err)
		}
	}
	return r, nil
}

// Run reads a run record. "" is the run that a workspace shows: the greatest id among its own runs, which may be still
// running. A workspace without one shows an imported run: the one that its state names, else the greatest.
func (w *Workspaces) Run(ctx context.Context, ws, id string) (*record.Run, error) {
	r, err := w.run(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	return r.Run, nil
}

func (w *Workspaces) run(ctx context.Context, ws, id string) (*storedRun, error) {
	rec, err := w.runRecord(ctx, ws, id)
	if err != nil {
		return nil, err
	}
	return decodeRun(rec)
}

// runRecord reads the record of a run with its provenance; "" is the one that the workspace shows.
func (w *Workspaces) runRecord(ctx context.Context, ws, id string) (refstore.Record, error) {
	if id == "" {
		return w.shownRun(ctx, ws)
	}
	rec, err := unread(w.Records.Get(ctx, runKey(ws, id), fieldProvenance))
	if err != nil {
		return rec, fmt.Errorf("run %s: %w", id, err)
	}
	return rec, nil
}

// unread passes on a record that is damaged as one that cannot be read: its events may tell of the run.
func unread(rec refstore.Record, err error) (refstore.Record, error) {
	if errors.Is(err, refstore.ErrDamaged) {
		rec.Value, err = nil, nil
	}
	return rec, err
}

func (w *Workspaces) shownRun(ctx context.Context, ws string) (refstore.Record, error) {
	var found []refstore.Record // imported, greatest first
	q := refstore.Query{Partition: "DATAFLOW/" + ws, Descending: true, Fields: []string{fieldProvenance}}
	for rec, err := range w.Records.List(ctx, q) {
		if rec, err = unread(rec, err); err != nil {
			return rec, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if !imported(rec) {
			return rec, nil
		}
		found = append(found, rec)
	}
	if len(found) == 0 {
		return refstore.Record{}, fmt.Errorf("workspace %s has not been run: %w", ws, ErrNoRun)
	}
	shown := found[0]
	if len(found) > 1 {
		s, err := w.State(ctx, ws)
		if err != nil && !errors.Is(err, ErrNotFound) {
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

// runIDs returns the ids of all runs of a workspace that have a record, or events, in order; recorded are those with a record.
func (w *Workspaces) runIDs(ctx context.Context, ws string) (ids []string, recorded map[string]bool, err error) {
	recorded = map[string]bool{}
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return nil, nil, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		recorded[rec.Key.Sort] = true
		ids = append(ids, rec.Key.Sort)
	}
	for key, err := range w.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
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

// runID finds a run by its id or a prefix of it; "" stays "".
func (w *Workspaces) runID(ctx context.Context, ws, prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	known, _, err := w.runIDs(ctx, ws)
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
		return "", fmt.Errorf("run %s: %w", prefix, executions.ErrAmbiguous)
	case len(known) == 0:
		return "", fmt.Errorf("workspace %s has not been run: %w", ws, ErrNoRun)
	}
	return "", &UnknownError{What: "run", Name: prefix, Known: known}
}

// RunsInUse returns the runs whose executions a workspace holds on to: its own, of which it keeps no more than the current
// one and the one at work, and an imported one that its state names. Other imported runs are history.
func (w *Workspaces) RunsInUse(ctx context.Context, ws string) ([]*record.Run, error) {
	s, err := w.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	var runs []*record.Run
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, Fields: []string{fieldProvenance}}) {
		if err != nil {
			return nil, fmt.Errorf("runs of workspace %s: %w", ws, err)
		}
		if imported(rec) && rec.Key.Sort != s.CurrentRunID {
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

// RemoveRuns removes the runs that were imported under the name of a workspace that is not here, and returns how many. Where
// there are none it returns ErrNotFound; ErrExists if there is such a workspace.
func (w *Workspaces) RemoveRuns(ctx context.Context, ws string) (int, error) {
	ctx, lock, err := w.lock(ctx, ws, record.Removal, nil)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	_, missing := w.State(ctx, ws)
	switch {
	case missing == nil:
		return 0, fmt.Errorf("workspace %s: %w", ws, ErrExists)
	case !errors.Is(missing, ErrNotFound):
		return 0, missing
	}
	n, err := w.forgetRuns(ctx, ws)
	if err == nil && n == 0 {
		err = missing
	}
	return n, lock.explain(ctx, err)
}

// oldRun is the record of a run that had ended when the workspace was taken.
type oldRun struct {
	id      string
	version refstore.Version // Absent where it was not read
	goes    bool             // it was read, and is none that was imported
}

// deleteRuns removes old run records of the workspace's own but those named: history lives in events and
// executions (seed 003, "Run Cleanup"). It returns the others. What came on record since the list was made is not this
// holder's to delete: a holder that was taken for dead has put it there late, or one that has taken over has.
func (w *Workspaces) deleteRuns(ctx context.Context, ws string, old []oldRun, keep ...string) ([]oldRun, error) {
	var kept []oldRun
	for _, o := range old {
		if slices.Contains(keep, o.id) {
			kept = append(kept, o)
			continue
		}
		err := w.deleteRun(ctx, ws, &o)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return nil, fmt.Errorf("clean up run records: %w", err)
		}
	}
	return kept, nil
}

func (w *Workspaces) deleteRun(ctx context.Context, ws string, o *oldRun) error {
	for {
		if !o.goes {
			rec, err := w.Records.Get(ctx, runKey(ws, o.id), fieldProvenance)
			if errors.Is(err, refstore.ErrDamaged) {
				return nil // verify tells of it
			}
			if err != nil || imported(rec) {
				return err
			}
			o.version, o.goes = rec.Version, true
		}
		err := w.Records.Delete(ctx, runKey(ws, o.id), o.version)
		if !errors.Is(err, refstore.ErrConflict) {
			return err
		}
		if err := w.confirm(ctx, ws); err != nil {
			return err
		}
		o.goes = false
	}
}

// deleteAllRuns removes the imported ones as well.
func (w *Workspaces) deleteAllRuns(ctx context.Context, ws string) error {
	_, err := w.forgetRuns(ctx, ws)
	return err
}

// forgetRuns removes all run records and returns how many there were.
func (w *Workspaces) forgetRuns(ctx context.Context, ws string) (n int, err error) {
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err == nil {
			err = refstore.Forget(ctx, w.Records, w.Locks, rec.Key)
		}
		if err != nil {
			return n, fmt.Errorf("clean up run records: %w", err)
		}
		n++
	}
	return n, nil
}
