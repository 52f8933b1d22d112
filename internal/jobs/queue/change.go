package queue

import (
	"context"
	"errors"

	"e3/internal/parallel"
)

// changedAtOnce is the number of jobs that are changed at a time, since each takes a request to a remote store.
const changedAtOnce = 16

// Change applies a change to several jobs at a time, and reports the outcomes in their order. missed says which of them
// have reached a state without this change. After any other error, no further change is begun.
func Change(ctx context.Context, jobs []Job, change func(context.Context, *Job) (Job, error)) (done []Job, missed []error, fault error) {
	now, errs := make([]*Job, len(jobs)), make([]error, len(jobs))
	fault = parallel.AtMost(ctx, changedAtOnce, len(jobs), func(_ context.Context, k int) error {
		job, err := change(ctx, &jobs[k]) // changes under way are completed, whatever happens to the others
		switch {
		case err == nil:
			now[k] = &job
		case Unchangeable(err):
			errs[k] = err
		default:
			return err
		}
		return nil
	})
	for k := range jobs {
		if now[k] != nil {
			done = append(done, *now[k])
		}
		if errs[k] != nil {
			missed = append(missed, errs[k])
		}
	}
	return done, missed, fault
}

// Unchangeable reports whether an error means that a job has reached a state without the change.
func Unchangeable(err error) bool {
	var moved *TransitionError
	return errors.As(err, &moved) || errors.Is(err, ErrNotFound)
}
