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

// Lease is a job that this process has claimed. It is safe for concurrent use. It ends with Finish, Again, Release or Revoke, or when the process's session is lost.
// Those that fail with anything but refstore.ErrLost or a *TransitionError can be tried again.
type Lease struct {
	q       *Queue
	adopted bool
	session string
	waiting time.Time // since when the job was there to be claimed

	calling sync.Mutex // one change of the job at a time
	mu      sync.Mutex
	is      stored
	ended   bool

	cancelled chan struct{}
	cancel    *cancelRecord // once cancelled is closed
}

// Job is the job as this process last knew it.
func (l *Lease) Job() Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.is.Job
}

// Adopted tells whether the job's execution was begun by a worker that was lost. Whoever has adopted a job settles that execution first,
// and then finishes the job, or asks for another attempt (Again).
func (l *Lease) Adopted() bool { return l.adopted }

// WaitingSince is since when the job was there to be claimed by whom this lease is: it had been enqueued, given back, or found lost, and its time had
// come. It is by the clock of who wrote that.
func (l *Lease) WaitingSince() time.Time { return l.waiting }

// CancelRequested is closed when somebody wants the job to end. It takes a [Keeper.Tend], or [Keeper.FollowCancels], that runs.
func (l *Lease) CancelRequested() <-chan struct{} { return l.cancelled }

// Cancellation says who wants the job to end, and why, once CancelRequested is closed.
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

// change writes what edit makes of the job. same tells whether what is there is that already: an answer got lost. last says that the lease ends with it.
func (l *Lease) change(ctx context.Context, op string, last bool, edit func(*Job), same func(*Job) bool) (stored, error) {
	l.calling.Lock()
	defer l.calling.Unlock()
	l.mu.Lock()
	was, ended := l.is, l.ended
	l.mu.Unlock()
	if ended {
		return stored{}, &TransitionError{op, was.Job}
	}
	for {
		j := was.Job
		edit(&j)
		if err := j.validate(); err != nil {
			return stored{}, fmt.Errorf("%s job %s: %w: %w", op, j.Ref(), refstore.ErrInvalid, err)
		}
		next, err := l.q.swap(ctx, was.version, &j)
		if err == nil {
			l.note(next, last)
			return next, nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return stored{}, fmt.Errorf("%s job %s: %w", op, j.Ref(), err)
		}
		// An earlier try may have arrived; or the job is another's.
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

// Started puts it on record that the job's command runs.
func (l *Lease) Started(ctx context.Context) error {
	now := l.q.now()
	_, err := l.change(ctx, "start", false,
		func(j *Job) { j.Started = now },
		func(j *Job) bool { return j.LockedBy == l.session && !j.Started.IsZero() })
	return err
}

// Finish ends the job: it has not happened unless Finish, or a later try, says so. refstore.ErrLost if the job is not this process's any more.
func (l *Lease) Finish(ctx context.Context, o Outcome) error {
	o.Reason, o.Message = clip(o.Reason), clip(o.Message)
	s, err := l.change(ctx, "finish", true,
		func(j *Job) { j.end(o, l.q.now()) },
		func(j *Job) bool { return j.Outcome != nil && *j.Outcome == o })
	if err != nil {
		return err
	}
	l.settle(ctx, s)
	return nil
}

// clearCancel removes the record by which the job was cancelled. One that came too late goes with the next Tend.
func (l *Lease) clearCancel(ctx context.Context, s stored) {
	select {
	case <-l.cancelled:
		_ = l.q.dropCancel(ctx, s.Queue, s.ID)
	default:
	}
}

// end makes a finished job of one.
func (j *Job) end(o Outcome, now time.Time) {
	j.Status, j.Outcome, j.LockedBy, j.Finished, j.AvailableAt = o.State, &o, "", now, time.Time{}
	if o.State != Succeeded {
		j.LastError = o.Message
	}
}

// ReasonLost is the reason of a job that has failed because its worker was lost too often.
const ReasonLost = "lost"

// maxBackoff bounds how long a job that was lost waits.
const maxBackoff = time.Hour

// Again gives an attempt up that was lost: the job is queued again, to be claimed when backoff, doubled for each attempt that it has lost, has passed; or
// has failed if its attempts are used up, with reason "lost". Its execution is settled before: nobody asks for it any more. It returns the job as it then is. refstore.ErrLost.
func (l *Lease) Again(ctx context.Context, message string, backoff time.Duration) (Job, error) {
	was := l.Job()
	message = clip(message)
	now := l.q.now()
	s, err := l.change(ctx, "requeue", true, func(j *Job) {
		lost := LostAttempt{Execution: j.Execution, Worker: j.Maker, Message: message, At: now}
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
			j.AvailableAt = now.Add(min(wait, maxBackoff))
		}
	}, func(j *Job) bool { return j.LockedBy == "" && len(j.Lost) == len(was.Lost)+1 })
	if err != nil {
		return Job{}, err
	}
	l.settle(ctx, s)
	return s.Job, nil
}

// requeue makes a queued job of one that runs.
func (j *Job) requeue() {
	j.Status, j.LockedBy, j.Execution, j.Started, j.AvailableAt = Queued, "", "", time.Time{}, time.Time{}
}

// Release gives back a job that was not begun. One that was adopted is an orphan again. refstore.ErrLost.
func (l *Lease) Release(ctx context.Context) error {
	return l.giveBack(ctx, "release", func(j *Job) {
		if l.adopted {
			j.LockedBy = ""
			return
		}
		j.requeue()
		j.Attempts--
	})
}

// Revoke gives an attempt up, as Again does, but counts it neither as lost nor against the job's attempts: it was stopped by somebody who knows
// what it ended of, and is going to say it. refstore.ErrLost.
func (l *Lease) Revoke(ctx context.Context) error {
	return l.giveBack(ctx, "revoke", func(j *Job) {
		j.requeue()
		j.MaxAttempts++
	})
}

func (l *Lease) giveBack(ctx context.Context, op string, edit func(*Job)) error {
	was := l.Job()
	after := was
	edit(&after)
	s, err := l.change(ctx, op, true, edit, func(j *Job) bool {
		return j.LockedBy == "" && j.Status == after.Status && len(j.Lost) == len(was.Lost)
	})
	if err != nil {
		return err
	}
	l.settle(ctx, s)
	return nil
}

// settle does what follows on a change of the job that ended the lease. What fails of it is made good by others. If somebody has asked for the job's end
// meanwhile, he ends it now that nobody runs it, or Tend does.
func (l *Lease) settle(ctx context.Context, s stored) {
	if s.Status.Terminal() {
		if s.unmoved {
			_ = l.q.move(ctx, s)
		}
		l.clearCancel(ctx, s)
		return
	}
	_, _ = l.q.index.put(ctx, s)
}
