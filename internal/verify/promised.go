package verify

import (
	"context"
	"errors"

	"e3/internal/format/record"
	"e3/refstore"
)

// The record of a workspace's latest run names an execution for each settled task. Pruning spares these, so a missing
// one was removed by hand, or by a repair, and nothing confirms the run's record. Imported runs may name executions
// that were never imported.

// promise is the place where a recorded execution is named.
type promise struct{ workspace, run, task string }

// expect collects the executions that the latest runs name. It runs before the executions are read, so that new
// executions cannot count as missing.
func (v *verifier) expect(ctx context.Context) error {
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "WORKSPACE"}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue // a fault of its own
		}
		if err != nil {
			return err
		}
		s, err := record.DecodeWorkspaceState(rec.Value)
		if err != nil || s == nil || s.CurrentRunID == "" {
			continue // a fault of its own, or no executions
		}
		_, run, err := v.ownRun(ctx, rec.Key.Sort, s.CurrentRunID)
		if err != nil {
			return err
		}
		if run == nil {
			continue
		}
		for t := range run.Tasks.All() {
			if v.promised == nil {
				v.promised = map[string]promise{}
			}
			v.promised[t.ExecutionID] = promise{rec.Key.Sort, run.RunID, t.Task}
		}
	}
	return nil
}

// met notes that an execution is on record.
func (v *verifier) met(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.promised, id)
}

// unmet reports the expected executions that were not met, of runs that are still the latest.
func (v *verifier) unmet(ctx context.Context) error {
	latest := map[string]string{} // by workspace
	for id, p := range v.promised {
		current, known := latest[p.workspace]
		if !known {
			if s, err := v.Workspaces.State(ctx, p.workspace); err == nil {
				current = s.CurrentRunID
			} else if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			latest[p.workspace] = current
		}
		if current == p.run {
			v.note("run %s of workspace %s names execution %s of task %s, which is not on record", p.run, p.workspace, id, p.task)
		}
	}
	return nil
}
