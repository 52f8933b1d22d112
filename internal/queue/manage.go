package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"e3/refstore"
)

// ReasonCancelled is the reason of a job that was cancelled while nobody ran it.
const ReasonCancelled = "cancelled"

// Cancel ends a job: at once if nobody runs it, or who does is known to be gone; otherwise its worker is told, and it is returned as it runs. Cancelling a
// job again changes nothing.
// ErrNotFound, *TransitionError if it has ended otherwise.
func (q *Queue) Cancel(ctx context.Context, queue, id, by, why string) (Job, error) {
	rec := cancelRecord{By: clip(by), Why: clip(why), At: nanos(q.now())}
	fail := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("cancel job %.100s/%.200s: %w", queue, id, err)
	}
	var told *refstore.Version // of the job when its worker was told
	for {
		s, err := q.find(ctx, queue, id)
		if err == nil && told == nil && s.Status == Running && s.LockedBy != "" {
			// Where this fails its worker is told, and whoever finds that it is gone ends the job.
			if now, err := q.expire(ctx, s); err == nil {
				s = now
			}
		}
		switch {
		case err != nil:
			return fail(err)
		case s.Status == Cancelled:
			return s.Job, q.dropCancel(ctx, queue, id)
		case s.Status.Terminal():
			return Job{}, errors.Join(&TransitionError{"cancel", s.Job}, q.dropCancel(ctx, queue, id))
		case s.Status == Running && s.LockedBy != "":
			if told != nil && *told == s.version {
				return s.Job, nil
			}
			_, err := q.store.Put(ctx, refstore.Record{Key: cancelKey(queue, id), Value: encode(rec)})
			if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
				return fail(err)
			}
			q.tell(s.Ref(), rec)
			// Its worker may have given it back before it could see that.
			told = &s.version
			continue
		}
		ended, err := q.cancelNow(ctx, s, rec)
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		return ended, nil
	}
}

// Withdraw ends a job that nobody has begun, as Cancel does, and leaves any other as it is. It returns the job as it then stands: cancelled, unless
// somebody was faster. ErrNotFound.
func (q *Queue) Withdraw(ctx context.Context, queue, id, by, why string) (Job, error) {
	rec := cancelRecord{By: clip(by), Why: clip(why), At: nanos(q.now())}
	for {
		s, err := q.find(ctx, queue, id)
		j := s.Job
		if err == nil && s.Status == Queued {
			j, err = q.cancelNow(ctx, s, rec)
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

// ReasonLeft is why a job is withdrawn for which nobody waits.
const ReasonLeft = "the run that asked for it is dead"

// WithdrawLeft withdraws, as Withdraw does, the jobs that dead runs of a workspace have left in any queue: of one run, or with "" of all. It lists them
// first, and then asks dead, which may be nil, whether the runs of what there was are dead; an error of dead is returned as it is. What a person has asked
// for again is left, and so is what cannot be read. It returns how many it has ended. Where it fails some may have been: it is to be done again.
func (q *Queue) WithdrawLeft(ctx context.Context, workspace, run, by string, dead func(context.Context) error) (n int, err error) {
	queues, err := q.Queues(ctx)
	if err != nil {
		return 0, err
	}
	prefix := ""
	if run != "" {
		prefix = run + "."
	}
	var left []Job
	for _, queue := range queues {
		for s, err := range q.jobs(ctx, queue, prefix) {
			switch {
			case errors.Is(err, ErrMalformed):
			case err != nil:
				return 0, fmt.Errorf("look for jobs that dead runs of workspace %s have left: %w", workspace, err)
			case s.Workspace == workspace && s.Status == Queued && s.Retried == 0:
				left = append(left, Job{Queue: s.Queue, ID: s.ID})
			}
		}
	}
	if len(left) > 0 && dead != nil {
		if err := dead(ctx); err != nil {
			return 0, err
		}
	}
	for i := range left {
		j, err := q.Withdraw(ctx, left[i].Queue, left[i].ID, by, ReasonLeft)
		switch {
		case isNotFound(err), errors.Is(err, ErrMalformed): // it has ended, or somebody has spoilt it
		case err != nil:
			return n, err
		case j.Status == Cancelled:
			n++
		}
	}
	return n, nil
}

// cancelNow ends a job that nobody runs.
func (q *Queue) cancelNow(ctx context.Context, s stored, rec cancelRecord) (Job, error) {
	message := "cancelled"
	if rec.By != "" {
		message += " by " + rec.By
	}
	if rec.Why != "" {
		message += ": " + rec.Why
	}
	j := s.Job
	j.end(Outcome{State: Cancelled, ExecutionID: s.Execution, Reason: ReasonCancelled, Message: message}, q.now())
	ended, err := q.swap(ctx, s.version, &j)
	if err != nil {
		return Job{}, err
	}
	return ended.Job, errors.Join(q.unindex(ctx, s), q.move(ctx, ended), q.dropCancel(ctx, s.Queue, s.ID))
}

// tell tells a lease of this process that its job is to end.
func (q *Queue) tell(ref string, rec cancelRecord) {
	q.mu.Lock()
	l := q.leases[ref]
	q.mu.Unlock()
	if l != nil {
		l.request(rec)
	}
}

func (q *Queue) dropCancel(ctx context.Context, queue, id string) error {
	key := cancelKey(queue, id)
	r, err := q.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return q.drop(ctx, key, r.Version)
}

// cancels tells leases of this process that their jobs are to end, ends what was given back meanwhile, and forgets what has ended.
func (q *Queue) cancels(ctx context.Context, queue string) error {
	var errs []error
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(queue, "cancel")}) {
		if err != nil {
			return err
		}
		if err := q.follow(ctx, queue, r); err != nil && !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ownCancels is cancels, for the jobs that this process has.
func (q *Queue) ownCancels(ctx context.Context) error {
	q.mu.Lock()
	held := slices.Collect(maps.Values(q.leases))
	q.mu.Unlock()
	var errs []error
	for _, l := range held {
		select {
		case <-l.cancelled:
			continue // it knows
		default:
		}
		j := l.Job()
		r, err := q.store.Get(ctx, cancelKey(j.Queue, j.ID))
		if err == nil {
			err = q.follow(ctx, j.Queue, r)
		}
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (q *Queue) follow(ctx context.Context, queue string, r refstore.Record) error {
	var rec cancelRecord
	if err := decode(r.Value, &rec); err != nil {
		return fmt.Errorf("record %q is not what this version of e3 writes: %w", r.Key, err)
	}
	id := r.Key.Sort
	if q.holds(queue + "/" + id) {
		q.tell(queue+"/"+id, rec)
		return nil
	}
	s, err := q.load(ctx, queue, id)
	switch {
	case isNotFound(err):
		return q.drop(ctx, r.Key, r.Version)
	case err != nil:
		return err
	case s.Status.Terminal():
		return errors.Join(q.move(ctx, s), q.drop(ctx, r.Key, r.Version))
	case s.Status == Running && s.LockedBy != "":
		return nil
	}
	_, err = q.cancelNow(ctx, s, rec)
	return err
}

func (q *Queue) holds(ref string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leases[ref] != nil
}

// Retry queues a job again that has failed or timed out, and is not suspended, with as many attempts as at first. ErrNotFound, *TransitionError.
func (q *Queue) Retry(ctx context.Context, queue, id string) (Job, error) {
	fail := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("retry job %.100s/%.200s: %w", queue, id, err)
	}
	s, err := q.find(ctx, queue, id)
	if err != nil {
		return fail(err)
	}
	if !s.isDead() {
		return Job{}, &TransitionError{"retry", s.Job}
	}
	if err := q.move(ctx, s); err != nil { // unless it was
		return fail(err)
	}
	before, err := q.loadFinished(ctx, queue, id)
	if err != nil {
		return fail(err)
	}
	// It is made anew beside the finished one: whoever finds both knows by Retried which is the later.
	j := before.Job
	j.requeue()
	j.Outcome, j.Attempts, j.Finished, j.Claimed, j.Created = nil, 0, time.Time{}, time.Time{}, q.now()
	j.Retried++
	next, err := q.swap(ctx, refstore.Absent, &j)
	if errors.Is(err, refstore.ErrConflict) {
		there, err := q.load(ctx, queue, id)
		if err != nil {
			return fail(err)
		}
		return Job{}, &TransitionError{"retry", there.Job}
	}
	if err != nil {
		return fail(err)
	}
	err = q.forget(ctx, before)
	if err == nil { // last, so that whoever finds it missing does the rest
		_, err = q.index(ctx, next)
	}
	if err != nil {
		return fail(err)
	}
	return next.Job, nil
}

// forget removes a finished job.
func (q *Queue) forget(ctx context.Context, s stored) error {
	if err := q.drop(ctx, finishedKey(s.Queue, s.ID), s.version); err != nil {
		return err
	}
	return q.undead(ctx, s.Queue, s.ID)
}

// undead removes a job from among the dead, if it is not finished, or has not failed.
func (q *Queue) undead(ctx context.Context, queue, id string) error {
	key := deadKey(queue, id)
	r, err := q.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := q.loadFinished(ctx, queue, id)
	if isNotFound(err) || err == nil && !s.isDead() {
		return q.drop(ctx, key, r.Version)
	}
	return err
}

// Reprioritise changes the priority of a job that nobody runs. ErrNotFound, *TransitionError.
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
			return Job{}, &TransitionError{"change the priority of", s.Job}
		}
		if s.Priority == priority {
			_, err := q.mend(ctx, s)
			return s.Job, err
		}
		j := s.Job
		j.Priority = priority
		next, err := q.swap(ctx, s.version, &j)
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err == nil {
			_, err = q.index(ctx, next)
		}
		if err == nil {
			err = q.unindex(ctx, s)
		}
		if err != nil {
			return fail(err)
		}
		return next.Job, nil
	}
}

// Clean removes jobs that have finished before a time, from all queues, and returns how many.
func (q *Queue) Clean(ctx context.Context, before time.Time) (int, error) {
	queues, err := q.Queues(ctx)
	n := 0
	for _, queue := range queues {
		if err == nil {
			var some int
			some, err = q.clean(ctx, queue, before)
			n += some
		}
	}
	if err != nil {
		return n, fmt.Errorf("remove finished jobs: %w", err)
	}
	return n, nil
}

func (q *Queue) clean(ctx context.Context, queue string, before time.Time) (n int, err error) {
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(queue, "finished")}) {
		if err != nil {
			return n, err
		}
		var run turnRecord
		if decode(r.Value, &run) != nil || validRun(r.Key.Sort) != nil || !moment(run.At).Before(before) {
			continue // what finished before a time was enqueued before it
		}
		left, gone, err := q.cleanRun(ctx, queue, r.Key.Sort, before)
		n += gone
		if err == nil && !left {
			err = q.drop(ctx, r.Key, r.Version)
		}
		if err != nil {
			return n, err
		}
	}
	// What a crash has left among the dead.
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(queue, "dead"), KeysOnly: true}) {
		if err == nil && validID(r.Key.Sort) == nil {
			err = q.undead(ctx, queue, r.Key.Sort)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			return n, err
		}
	}
	return n, nil
}

// cleanRun removes what a run's finished jobs are that are old enough, and tells whether the run has others.
func (q *Queue) cleanRun(ctx context.Context, queue, run string, before time.Time) (left bool, n int, err error) {
	for range q.jobs(ctx, queue, run+".") {
		left = true // or its jobs cannot be read
		break
	}
	for s, err := range q.finished(ctx, queue, run) {
		switch {
		case errors.Is(err, ErrMalformed):
			left = true // whoever understands it removes it
		case err != nil:
			return true, n, err
		case !s.Finished.Before(before):
			left = true
		default:
			if err := q.forget(ctx, s); err != nil {
				return true, n, err
			}
			n++
		}
	}
	return left, n, nil
}
