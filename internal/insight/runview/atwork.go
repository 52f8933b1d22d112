package runview

import (
	"context"
	"errors"

	"e3/internal/events"
)

// AtWork counts the commands of a live run that are at work, as far as its events tell. It reads on where it has ended before. The
// zero value has read nothing. It is not safe for concurrent use.
type AtWork struct {
	open map[string]bool // tasks
	from int64
}

// Read counts them, given the report of the run, always of the same run.
func (x *AtWork) Read(ctx context.Context, v *Runs, r *Report) (int, error) {
	if x.open == nil {
		x.open = map[string]bool{}
	}
	for e, err := range events.ReadTypes(ctx, v.Records, r.WorkspaceName, r.RunID, &x.from,
		events.TaskClaimed, events.TaskStarted, events.TaskReleased, events.TaskCompleted, events.TaskFailed, events.TaskDeferred, events.TaskRetryScheduled) {
		switch {
		case errors.As(err, new(*events.DamagedError)):
			return len(x.open), nil // as far as events tell
		case err != nil:
			return 0, err
		case e.Type == events.TaskClaimed || e.Type == events.TaskStarted:
			x.open[e.Task] = true
		default:
			delete(x.open, e.Task)
		}
	}
	return len(x.open), nil
}
