package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
)

// A run whose process has died leaves jobs, for which nobody waits any more. The next run of that workspace cancels those that have not begun. What
// runs is the answer to whoever wants the same made: he holds the claim of the key, so it was somebody's who holds it no more. For the same
// reason what he finds queued is waited for by nobody, and is cancelled in favour of his own job: that one is made with what he asks for, and
// where there is a Submitter he follows its worker.

var (
	errLeft  = errors.New(queue.ReasonLeft)
	errTaken = errors.New("another run makes the same")
)

// adoption is how long a job of another run whose worker was lost is left to whoever may go on with what that has begun.
const adoption = time.Minute

// left returns the jobs of other runs that make what j is to make. The queue is listed once for each run. since is when it was looked for an answer,
// fresh tells whether the jobs had not ended then.
func (r *run) left(ctx context.Context, j *queue.Job, since time.Time) (jobs []queue.Job, fresh bool, err error) {
	if j.Force {
		return nil, false, nil // that of another is no answer
	}
	r.listing.Lock()
	defer r.listing.Unlock()
	if r.others == nil {
		now := r.d.o.Now()
		others, err := r.d.others(ctx, j)
		if err != nil {
			return nil, false, fmt.Errorf("look for jobs that dead runs have left: %w", err)
		}
		r.others, r.listed = others, now
	}
	key := made(j)
	jobs = r.others[key]
	delete(r.others, key)
	return jobs, !r.listed.Before(since), nil
}

// made names what a job makes.
func made(j *queue.Job) string { return j.TaskHash + " " + strings.Join(j.Inputs, " ") }

// others lists the jobs of other runs, by what they make, once it has cancelled those that wait for nothing.
func (d *Dispatcher) others(ctx context.Context, own *queue.Job) (map[string][]queue.Job, error) {
	others := map[string][]queue.Job{}
	for j, err := range d.q.Jobs(ctx, own.Queue) {
		if errors.Is(err, queue.ErrMalformed) {
			continue // whoever works on the queue says so
		}
		if err != nil {
			return nil, err
		}
		if j.Run == own.Run || j.Force || j.Status.Terminal() {
			continue
		}
		// Whoever has this workspace's lock knows that all its other runs are dead. What a person has asked for is waited for by nobody.
		if j.Status == queue.Queued && j.Workspace == own.Workspace && j.Retried == 0 {
			now, err := d.withdraw(ctx, &j)
			if gone(err) || err == nil && now.Status == queue.Cancelled {
				continue
			}
			if err != nil {
				return nil, err
			}
			j = now // a worker was faster
		}
		key := made(&j)
		others[key] = append(others[key], queue.Job{Queue: j.Queue, ID: j.ID, Run: j.Run})
	}
	return others, nil
}

// withdraw cancels a job of a dead run unless a worker has it, and returns how it stands.
func (d *Dispatcher) withdraw(ctx context.Context, j *queue.Job) (queue.Job, error) {
	now, err := d.q.Withdraw(ctx, j.Queue, j.ID, d.o.By, errLeft.Error())
	if err == nil && now.Status == queue.Cancelled && d.submit != nil {
		d.submit.cancel(j.ID)
	}
	return now, err
}

// gone tells whether there is no such job, or none that can be read.
func gone(err error) bool {
	return errors.Is(err, queue.ErrNotFound) || errors.Is(err, queue.ErrMalformed)
}

// inherit waits for a job that another run has left, for as long as somebody is at work on it, and returns false if it is no answer: it has not begun, or its
// worker is gone (it is cancelled then), or an error was made of its execution. A success is an answer, and so is a command's failure. fresh
// tells whether it had not ended when there was no answer on record; otherwise its end is one that was looked at, and passed over.
func (d *Dispatcher) inherit(ctx context.Context, key executions.Key, req *executions.Request, left *queue.Job, fresh bool) (executions.Result, bool, error) {
	r, err := d.run(left.Queue, left.Run)
	if err != nil {
		return executions.Result{}, false, err
	}
	w := r.expect(left.ID, key, req)
	defer r.forget(left.ID)
	job, err := d.q.Job(ctx, left.Queue, left.ID)
	if err == nil && job.Status == queue.Queued {
		job, err = d.withdraw(ctx, &job)
	}
	if gone(err) || err == nil && job.Status.Terminal() && !fresh {
		return executions.Result{}, false, nil
	}
	if err != nil {
		return executions.Result{}, false, err
	}
	bound, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	w.lost = len(job.Lost) // of which the other run was told
	w.idle = time.AfterFunc(adoption, func() { giveUp(errTaken) })
	defer w.idle.Stop()
	job, err = d.await(bound, w, job)
	if ctx.Err() == nil && (gone(err) || errors.Is(err, errOverdue)) {
		return executions.Result{}, false, nil
	}
	if err != nil {
		return executions.Result{}, false, err
	}
	if job.Outcome.ExecutionID == "" && ctx.Err() == nil {
		return executions.Result{}, false, nil // nothing ran
	}
	res, err := d.result(ctx, w, &job)
	return res, err == nil && (res.State != record.Error || ctx.Err() != nil), err
}
