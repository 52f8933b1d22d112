package runview

import (
	"context"
	"errors"
	"slices"

	"e3/internal/events"
)

// FailedTasks finds the tasks of a run that have failed, also those that may, as far as its events tell. It reads on
// where it has ended before, and of a large run it parses few events. The zero value has read nothing. It is not safe
// for concurrent use.
type FailedTasks struct {
	fold *Fold
	from int64
}

// Read returns the failed tasks, given the report of the run by [Runs.Find] or [Runs.Summary], always of the same run.
// Facts that events do not tell of a task, such as its peak memory, are missing.
func (x *FailedTasks) Read(ctx context.Context, v *Runs, r *Report) ([]TaskReport, error) {
	if x.fold == nil {
		x.fold = NewFold()
	}
	f := x.fold
	for e, err := range events.ReadTypes(ctx, v.Records, r.WorkspaceName, r.RunID, &x.from,
		events.TaskFailed, events.TaskRetryScheduled, events.TaskReopened, events.TaskLeftOut) {
		if errors.As(err, new(*events.DamagedError)) {
			break // as far as events tell
		}
		if err != nil {
			return nil, err
		}
		f.Add(e)
	}
	part := *r
	part.Tasks = nil
	for _, t := range f.tasks {
		part.Tasks = append(part.Tasks, t.TaskReport)
	}
	part.now(v.Now())
	return slices.DeleteFunc(part.Tasks, func(t TaskReport) bool { return !t.HasFailed() }), nil
}
