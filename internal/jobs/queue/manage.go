package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/refstore"
)

// ReasonCancelled is the reason of a job that was cancelled while it was not running.
const ReasonCancelled = "cancelled"

// Cancel ends a job: at once if it is not running. Otherwise it notifies the worker, and returns the running job. If
// the worker is known to be gone, another worker on this machine takes the job over and ends its command
// (Options.TakeOver); if none can, Outcome.Left says that the command may run on. Cancelling a job again changes
// nothing. Errors are ErrNotFound, and *TransitionError if it has ended otherwise.
func (q *Queue) Cancel(ctx context.Context, queue, id, by, why string) (Job, error) {
	rec := cancelRecord{By: Truncate(by), Why: Truncate(why), At: TimeOf(q.now())}
	fail := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("cancel job %.100s/%.200s: %w", queue, id, err)
	}
	var told *refstore.Version // the job's version when its worker was notified
	asked := false             // whether a worker here can take the job over
	for {
		s, err := q.find(ctx, queue, id)
		if err == nil && told == nil && s.Status == Running && s.LockedBy != "" {
			// If this fails, the worker is notified, and a process that finds the worker gone ends the job.
			if now, err := q.index.expire(ctx, s); err == nil {
				s = now
			}
		}
		switch {
		case err != nil:
			return fail(err)
		case s.Status == Cancelled:
			return s.Job, q.dropCancel(ctx, queue, id)
		case s.Status.Terminal():
			return Job{}, errors.Join(&TransitionError{Op: "cancel", Job: s.Job}, q.dropCancel(ctx, queue, id))
		case s.Status == Running && told != nil && *told == s.version && s.LockedBy != "":
			return s.Job, nil
		case s.Orphaned() && told != nil && !asked && q.o.TakeOver != nil:
			asked = true
			q.o.TakeOver(ctx, &s.Job)
			continue
		case s.Status == Running && (s.LockedBy != "" || told == nil):
			_, err := q.store.Put(ctx, refstore.Record{Key: cancelKey(queue, id), Value: encode(rec)})
			if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
				return fail(err)
			}
			q.held.tell(s.Ref(), rec)
			// The worker may have given the job back before it could see the request.
			told = &s.version
			continue
		}
		ended, err := q.index.cancelNow(ctx, s, rec)
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		return ended, nil
	}
}

// Withdraw ends a job that no worker has begun, like Cancel, and leaves any other job unchanged. It returns the job's
// state: cancelled, unless another process changed it first. The error is ErrNotFound.
func (q *Queue) Withdraw(ctx context.Context, queue, id, by, why string) (Job, error) {
	rec := cancelRecord{By: Truncate(by), Why: Truncate(why), At: TimeOf(q.now())}
	for {
		s, err := q.find(ctx, queue, id)
		j := s.Job
		if err == nil && s.Status == Queued {
			j, err = q.index.cancelNow(ctx, s, rec)
		}
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err != nil {
			return Job{}, fmt.Errorf("withdraw job %.100s/%.200s: %w", queue, id, err)
		}
		return j, nil
	}
}

// ReasonLeft is the reason of a job that is withdrawn because no run waits for it.
const ReasonLeft = "the run that asked for it is dead"

// WithdrawLeft withdraws the jobs of dead runs of a workspace in any queue: of one run, or of all for "". It first
// lists them, and then calls dead, if not nil, to confirm that the runs are dead; it returns an error of dead
// unchanged. It leaves retried and unreadable jobs. It returns how many it has ended. If it fails it may have ended
// some; repeat it.
func (q *Queue) WithdrawLeft(ctx context.Context, workspace, run, by string, dead func(context.Context) error) (n int, err error) {
	queues, err := q.names(ctx)
	if err != nil {
		return 0, err
	}
	prefix := ""
	if run != "" {
		prefix = run + "."
	}
	var withdrawable []Job
	for _, queue := range queues {
		for s, err := range q.jobs(ctx, queue, prefix) {
			switch {
			case errors.Is(err, ErrMalformed):
			case err != nil:
				return 0, fmt.Errorf("look for jobs that dead runs of workspace %s have left: %w", workspace, err)
			case s.Workspace == workspace && s.Status == Queued && s.Retried == 0:
				withdrawable = append(withdrawable, Job{Queue: s.Queue, ID: s.ID})
			}
		}
	}
	if len(withdrawable) > 0 && dead != nil {
		if err := dead(ctx); err != nil {
			return 0, err
		}
	}
	for i := range withdrawable {
		j, err := q.Withdraw(ctx, withdrawable[i].Queue, withdrawable[i].ID, by, ReasonLeft)
		switch {
		case isNotFound(err), errors.Is(err, ErrMalformed): // it has ended, or its record is malformed
		case err != nil:
			return n, err
		case j.Status == Cancelled:
			n++
		}
	}
	return n, nil
}

// Retry queues a failed or timed-out job again, unless it is suspended or answered (Options.Answered), with its
// original number of attempts. Errors are ErrNotFound and *TransitionError.
func (q *Queue) Retry(ctx context.Context, queue, id string) (Job, error) {
	fail := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("retry job %.100s/%.200s: %w", queue, id, err)
	}
	s, err := q.find(ctx, queue, id)
	if err != nil {
		return fail(err)
	}
	if !s.isDead() {
		return Job{}, &TransitionError{Op: "retry", Job: s.Job}
	}
	if answered, err := q.answered(ctx, &s.Job); err != nil || answered {
		return Job{}, cmp.Or(err, error(&TransitionError{Op: "retry", Job: s.Job, Answered: true}))
	}
	if err := q.move(ctx, s); err != nil { // unless it was moved
		return fail(err)
	}
	before, err := q.loadFinished(ctx, queue, id)
	if err != nil {
		return fail(err)
	}
	// The new job is made beside the finished one; Retried tells which is later.
	j := before.Job
	if failed := j.Outcome.ExecutionID; failed != "" && !slices.ContainsFunc(j.Lost, func(l LostAttempt) bool { return l.Execution == failed }) {
		j.earlier(j.given(j.LastError, j.Finished))
	}
	j.requeue()
	j.Outcome, j.Attempts, j.Finished, j.Claimed, j.Created = nil, 0, 0, 0, TimeOf(q.now())
	j.Retried++
	next, err := q.swap(ctx, refstore.Absent, &j)
	if errors.Is(err, refstore.ErrConflict) {
		there, err := q.load(ctx, queue, id)
		if err != nil {
			return fail(err)
		}
		return Job{}, &TransitionError{Op: "retry", Job: there.Job}
	}
	if err != nil {
		return fail(err)
	}
	err = q.forget(ctx, before)
	if err == nil { // last: a process that finds the entry missing completes the retry
		_, err = q.index.put(ctx, next)
	}
	if err != nil {
		return fail(err)
	}
	return next.Job, nil
}

// Reprioritise changes the priority of a job that is not running. Errors are ErrNotFound and *TransitionError.
func (q *Queue) Reprioritise(ctx context.Context, queue, id string, priority int64) (Job, error) {
	fail := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("change the priority of job %.100s/%.200s: %w", queue, id, err)
	}
	if priority < -maxPriority || priority > maxPriority {
		return fail(fmt.Errorf("%w: %d is not between %d and %d", refstore.ErrInvalid, priority, -maxPriority, maxPriority))
	}
	for {
		s, err := q.find(ctx, queue, id)
		if err != nil {
			return fail(err)
		}
		if _, ok := s.indexKey(); !ok {
			return Job{}, &TransitionError{Op: "change the priority of", Job: s.Job}
		}
		if s.Priority == priority {
			_, err := q.index.mend(ctx, s)
			return s.Job, err
		}
		j := s.Job
		j.Priority = priority
		next, err := q.swap(ctx, s.version, &j)
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err == nil {
			_, err = q.index.put(ctx, next)
		}
		if err == nil {
			err = q.index.remove(ctx, s)
		}
		if err != nil {
			return fail(err)
		}
		return next.Job, nil
	}
}
