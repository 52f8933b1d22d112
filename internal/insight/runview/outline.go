package runview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
)

// Find is Report without the tasks of the run. A reader that stays with a run goes on with Tasks, and with Complete for the
// tasks that it shows: Report looks up an execution for each task.
func (v *Runs) Find(ctx context.Context, ws, run string) (*Report, error) {
	_, missing := v.Workspaces.State(ctx, ws)
	if missing != nil && !errors.Is(missing, human.ErrNotFound) {
		return nil, missing
	}
	id, err := v.runID(ctx, ws, run)
	var unknown *human.UnknownError
	if missing != nil && err != nil && !errors.As(err, &unknown) && !errors.Is(err, executions.ErrAmbiguous) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	r, err := v.summary(ctx, ws, id)
	if missing != nil && (err != nil || r.Provenance == nil && id == "") {
		return nil, missing
	}
	return r, err
}

// Tasks sets the tasks of a report by Find, from the fold of the run's events up to the damage, if there is any. It
// may be called again when the fold has more events, unless the run has ended since: then call Find again.
func (v *Runs) Tasks(ctx context.Context, r *Report, f *Fold, damage error) (err error) {
	if r.Damage = damage; damage == nil {
		if r.Damage, err = v.lacks(ctx, r, f); err != nil {
			return err
		}
	}
	started, end := f.started, f.end
	if started == nil {
		started = r.bounds.First
	}
	if end == nil {
		end = r.bounds.Last
	}
	r.tell(started, end)
	if grown := f.Grown(); grown != "" {
		r.PackageHash = grown
	}
	if !r.unrecorded && r.State != record.RunRunning {
		r.named(f)
		r.Done, r.Total = r.Summary.Completed+r.Summary.Failed, r.Summary.Total
		return nil
	}
	if f.Bulk() {
		f = f.clone() // Expand counts what it names once
	}
	if r.Unnamed, err = v.Expand(ctx, r.WorkspaceName, r.RunID, f); err != nil {
		return err
	}
	if r.unrecorded {
		g, err := v.graphOf(ctx, f.PackageHash())
		if err != nil {
			return err
		}
		f.sort(g)
		r.Run.Tasks = f.Executions()
	}
	if f.end == nil || f.end.Data == nil || f.end.Data.Summary == nil {
		r.Summary = f.Summary()
	}
	r.Done, r.Total = r.Summary.Completed+r.Summary.Failed, r.Summary.Total
	if r.State == record.RunRunning {
		r.Done += r.Summary.Skipped
	}
	r.Tasks = make([]TaskReport, 0, len(f.tasks))
	for i := range f.tasks {
		if t := f.tasks[i]; t.State != "" && t.State != TaskReady {
			r.Tasks = append(r.Tasks, t.TaskReport)
		}
	}
	r.now(v.Now())
	return nil
}

// lacks says what is missing in the log of an ended run, by the run's record or by the next run; nil if nothing is
// known to be missing. A process that has just recorded the end of its run may be about to tell it.
func (v *Runs) lacks(ctx context.Context, r *Report, f *Fold) (damage, err error) {
	last := r.bounds.Last
	switch {
	case r.Cut:
		return fmt.Errorf("events of run %s: their end is lost", r.RunID), nil
	case last == nil || f.seq >= last.Seq:
		return nil, nil
	}
	if live, _, err := v.Workspaces.AtWork(ctx, r.WorkspaceName, r.Run); live || err != nil {
		return nil, err
	}
	return fmt.Errorf("events of run %s: %w", r.RunID, &events.BoundsError{Lacks: f.seq, Last: last.Seq}), nil
}

// clone returns a fold with the same events.
func (f *Fold) clone() *Fold {
	c := *f
	c.bulk, c.index, c.slab, c.workers = slices.Clone(f.bulk), maps.Clone(f.index), nil, nil
	tasks := make([]FoldedTask, len(f.tasks))
	c.tasks = make([]*FoldedTask, len(f.tasks))
	for i, t := range f.tasks {
		tasks[i] = *t
		c.tasks[i] = &tasks[i]
	}
	return &c
}

// Complete adds to some tasks of a run the facts that only their executions hold, as Report does for all.
func (v *Runs) Complete(ctx context.Context, r *Report, tasks []TaskReport) error {
	part := *r
	part.Tasks = tasks
	return v.complete(ctx, r.WorkspaceName, &part, r.PackageHash)
}

// Took reports whether the duration of a task's execution is known. A task that waits for its next attempt, or whose run died,
// has none.
func (t *TaskReport) Took() bool {
	return t.ExecutionID != "" && (t.Duration > 0 || t.Key != "") && t.State != TaskRetrying && t.State != TaskInterrupted && t.State != TaskClaimed
}

// Each yields the tasks of the report.
func (r *Report) Each() iter.Seq[*TaskReport] {
	return func(yield func(*TaskReport) bool) {
		for i := range r.Tasks {
			if !yield(&r.Tasks[i]) {
				return
			}
		}
	}
}

// Waiting is Fold.Waiting for a report with its tasks.
func (r *Report) Waiting() int64 {
	n := r.Total - r.Summary.Completed - r.Summary.Failed - r.Summary.Skipped
	for i := range r.Tasks {
		if s := r.Tasks[i].State; s == TaskRunning || s == TaskClaimed || s == TaskRetrying {
			n--
		}
	}
	return max(n, 0)
}

// RanFor is the duration of a run, up to now if it has not ended.
func (r *Report) RanFor(now time.Time) time.Duration {
	end := r.CompletedAt
	if r.State == record.RunRunning {
		end = now
	}
	return max(end.Sub(r.StartedAt), 0)
}
