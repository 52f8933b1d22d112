package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"e3/refstore"
)

// Lease is a job that this process has claimed. It is safe for concurrent use. It ends with Finish, Again, Release or
// Revoke, or when the process's session is lost. A failed call can be repeated unless its error is refstore.ErrLost or
// a *TransitionError.
type Lease struct {
	q       *Queue
	adopted bool
	session string
	waiting time.Time // when the job became claimable
	object  []byte
	// unlisted tells that the claim has removed the job's entry.
	unlisted bool

	calling sync.Mutex // one change of the job at a time
	mu      sync.Mutex
	is      stored
	ended   bool

	cancelled chan struct{}
	cancel    *cancelRecord // once cancelled is closed
}

// Job is the last known state of the job.
func (l *Lease) Job() Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.is.Job
}

// Object is the body of the job's task object; nil if it has to be read.
func (l *Lease) Object() []byte { return l.object }

// Adopted tells whether a lost worker began the job's execution. The holder first settles that execution, and then
// finishes the job or requests another attempt (Again).
func (l *Lease) Adopted() bool { return l.adopted }

// WaitingSince is when the job became claimable: it was enqueued, given back, or found lost, and was due. The time is
// by the clock of the process that wrote this change.
func (l *Lease) WaitingSince() time.Time { return l.waiting }

// CancelRequested is closed when the job was cancelled. It needs a running [Keeper.Tend] or [Keeper.FollowCancels].
func (l *Lease) CancelRequested() <-chan struct{} { return l.cancelled }

// Cancellation says by whom the job was cancelled, and why, once CancelRequested is closed.
func (l *Lease) Cancellation() (by, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		return "", ""
	}
	return l.cancel.By, l.cancel.Why
}

// request closes CancelRequested.
func (l *Lease) request(r cancelRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		l.cancel = &r
		close(l.cancelled)
	}
}

// change writes the edited job. same tells whether the record already has the change because a response was lost.
// last says that the lease ends with it.
func (l *Lease) change(ctx context.Context, op string, last bool, edit func(*Job), same func(*Job) bool) (stored, error) {
	l.calling.Lock()
	defer l.calling.Unlock()
	l.mu.Lock()
	was, ended := l.is, l.ended
	l.mu.Unlock()
	if ended {
		return stored{}, &TransitionError{Op: op, Job: was.Job}
	}
	for {
		j := was.Job
		edit(&j)
		if err := j.validate(); err != nil {
			return stored{}, fmt.Errorf("%s job %s: %w: %w", op, j.Ref(), refstore.ErrInvalid, err)
		}
		next, err := l.q.conclude(ctx, was.version, &j)
		if err == nil {
			l.note(next, last)
			return next, nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return stored{}, fmt.Errorf("%s job %s: %w", op, j.Ref(), err)
		}
		// An earlier try may have succeeded, or another process may hold the job.
		there, err := l.q.find(ctx, j.Queue, j.ID)
		switch {
		case err != nil && !isNotFound(err):
			return stored{}, fmt.Errorf("%s job %s: %w", op, j.Ref(), err)
		case err == nil && there.Token == was.Token && same(&there.Job):
			l.note(there, last)
			return there, nil
		case err == nil && there.Token == was.Token && there.LockedBy == l.session && there.version != was.version:
			was = there
			continue
		}
		l.note(was, true)
		return stored{}, fmt.Errorf("%s job %s: %w: it is not this worker's any more", op, j.Ref(), refstore.ErrLost)
	}
}

func (l *Lease) note(s stored, ended bool) {
	l.mu.Lock()
	l.is, l.ended = s, ended
	l.mu.Unlock()
	if ended {
		l.q.held.ended(s.Ref(), l)
	}
}

// Started records that the job's command runs, and since when.
func (l *Lease) Started(ctx context.Context, at time.Time) error {
	_, err := l.change(ctx, "start", false,
		func(j *Job) { j.Started = TimeOf(at) },
		func(j *Job) bool { return j.LockedBy == l.session && !j.Started.IsZero() })
	return err
}

// Finish ends the job. The result counts only once Finish, or a retry, succeeds. The error is refstore.ErrLost if this
// process no longer holds the job.
func (l *Lease) Finish(ctx context.Context, o Outcome) error {
	o.Reason, o.Message = Truncate(o.Reason), Truncate(o.Message)
	if o.EndedAt.IsZero() {
		o.EndedAt = l.q.now()
	}
	o.EndedAt = TimeOf(o.EndedAt).Time() // in the stored precision
	s, err := l.change(ctx, "finish", true,
		func(j *Job) { j.end(o, o.EndedAt) },
		func(j *Job) bool { return j.Outcome != nil && *j.Outcome == o })
	if err != nil {
		return err
	}
	l.settle(ctx, s)
	return nil
}

// clearCancel removes the request to cancel the job. The next Tend removes a later one.
func (l *Lease) clearCancel(ctx context.Context, s stored) {
	select {
	case <-l.cancelled:
		_ = l.q.dropCancel(ctx, s.Queue, s.ID)
	default:
	}
}

// end makes the job finished.
func (j *Job) end(o Outcome, now time.Time) {
	o.EndedAt = now // in the stored precision
	j.Status, j.Outcome, j.LockedBy, j.Finished, j.AvailableAt = o.State, &o, "", TimeOf(now), 0
	if o.State != Succeeded {
		j.LastError = o.Message
	}
}

// ReasonLost is the reason of a job that has failed because its worker was lost too often.
const ReasonLost = "lost"

// maxBackoff bounds the wait of a lost job.
const maxBackoff = time.Hour

// Again gives up a lost attempt. The job is queued again, with backoff doubled for each earlier lost attempt, or fails
// with reason "lost" if its attempts are used up. Its execution must be settled before, because it will have no other
// holder. Again returns the changed job, or refstore.ErrLost.
func (l *Lease) Again(ctx context.Context, message string, backoff time.Duration) (Job, error) {
	was := l.Job()
	message = Truncate(message)
	now := l.q.now()
	s, err := l.change(ctx, "requeue", true, func(j *Job) {
		lost := j.given(message, TimeOf(now))
		wait := backoff
		for range len(j.Lost) {
			wait = min(2*wait, maxBackoff)
		}
		j.Lost = append(slices.Clip(j.Lost), lost)
		j.LastError = message
		if j.Attempts >= j.MaxAttempts || len(j.Lost) >= maxLost {
			j.end(Outcome{State: Failed, ExecutionID: j.Execution, Reason: ReasonLost, Message: message}, now)
			return
		}
		j.requeue()
		if wait > 0 {
			j.AvailableAt = TimeOf(now.Add(min(wait, maxBackoff)))
		}
	}, func(j *Job) bool { return j.LockedBy == "" && len(j.Lost) == len(was.Lost)+1 })
	if err != nil {
		return Job{}, err
	}
	l.settle(ctx, s)
	return s.Job, nil
}

// requeue makes a running job queued.
func (j *Job) requeue() {
	j.Status, j.LockedBy, j.Execution, j.Made, j.Started, j.AvailableAt = Queued, "", "", 0, 0, 0
}

// Release gives back a job that was not begun; an adopted job becomes an orphan again. The error is refstore.ErrLost
// if this process no longer holds the job.
func (l *Lease) Release(ctx context.Context) error { return l.giveBack(ctx, "release", l.release) }

func (l *Lease) release(j *Job) {
	if l.adopted {
		j.LockedBy = ""
		return
	}
	j.requeue()
	j.Attempts--
	j.LastError = "" // it is not why the job is given back
}

// Decline is Release of a job that this worker's machine cannot execute. The job keeps the reason, for people who ask
// why it waits.
func (l *Lease) Decline(ctx context.Context, why string) error {
	return l.giveBack(ctx, "decline", func(j *Job) {
		l.release(j)
		j.LastError = Truncate(why)
	})
}

// Revoke gives an attempt up like Again, but does not count it, and the job has no backoff: the process that stopped
// the worker knows why, and may start another one. The error is refstore.ErrLost.
func (l *Lease) Revoke(ctx context.Context, message string) error {
	message = Truncate(message)
	now := l.q.now()
	return l.giveBack(ctx, "revoke", func(j *Job) {
		j.earlier(j.given(message, TimeOf(now)))
		j.LastError = message
		j.requeue()
		j.MaxAttempts++
	})
}

// earlier keeps an execution that another execution follows, unless there are too many.
func (j *Job) earlier(a LostAttempt) {
	if len(j.Lost) < maxLost {
		j.Lost = append(slices.Clip(j.Lost), a)
	}
}

func (l *Lease) giveBack(ctx context.Context, op string, edit func(*Job)) error {
	was := l.Job()
	after := was
	edit(&after)
	s, err := l.change(ctx, op, true, edit, func(j *Job) bool {
		return j.LockedBy == "" && j.Status == after.Status && len(j.Lost) == len(after.Lost)
	})
	if err != nil {
		return err
	}
	l.settle(ctx, s)
	return nil
}

// settle does the follow-up work of a change that ended the lease; other processes repair it if it fails. If the job
// was cancelled meanwhile, Cancel itself or Tend ends the job.
func (l *Lease) settle(ctx context.Context, s stored) {
	l.q.index.work.note(l.q.o.Now()) // the run may have a next step
	if s.Status.Terminal() {
		if s.unmoved && !l.q.batch.ended(s) {
			_ = l.q.move(ctx, s)
		}
		if l.q.tells() {
			l.q.batch.tell(refstore.Key{Partition: toldPartition(s.Queue, s.Run), Sort: l.session}, s.ID, l.q.index.crowd(s.Queue))
		}
		l.clearCancel(ctx, s)
		return
	}
	_, _ = l.q.index.put(ctx, s)
}
