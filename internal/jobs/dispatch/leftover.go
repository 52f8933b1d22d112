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

// A run whose process has died leaves jobs that no request waits for. The next run of that workspace cancels those that
// have not begun. A running job answers a request for the same execution: the request holds the claim of the key, so
// no live request waits for that job. For the same reason, no request waits for a queued job. So a queued job is
// cancelled in favour of the request's own job, which has the right policy and, with a Submitter, a worker of its
// own.

var (
	errLeft  = errors.New(queue.ReasonLeft)
	errTaken = errors.New("another run makes the same")
)

// adoption is how long another run's lost job waits for a worker that continues it.
const adoption = time.Minute

// leftJobs returns the jobs of other runs with the same product as j. The queue is listed once for each run. since is
// when an answer was last looked up; fresh tells whether the jobs were unfinished then.
func (r *run) leftJobs(ctx context.Context, j *queue.Job, since time.Time) (jobs []queue.Job, fresh bool, err error) {
	if j.Force {
		return nil, false, nil // another run's execution would be no answer
	}
	r.listing.Lock()
	defer r.listing.Unlock()
	if r.byProduct == nil {
		now := r.d.o.Now()
		byProduct, err := r.d.otherJobs(ctx, j)
		if err != nil {
			return nil, false, fmt.Errorf("look for jobs that dead runs have left: %w", err)
		}
		r.byProduct, r.listed = byProduct, now
	}
	key := product(j)
	jobs = r.byProduct[key]
	delete(r.byProduct, key)
	return jobs, !r.listed.Before(since), nil
}

// product identifies the execution that a job makes.
func product(j *queue.Job) string { return j.TaskHash + " " + strings.Join(j.Inputs, " ") }

// otherJobs lists the jobs of other runs by product, after cancelling those that no run waits for.
func (d *Dispatcher) otherJobs(ctx context.Context, own *queue.Job) (map[string][]queue.Job, error) {
	byProduct := map[string][]queue.Job{}
	for j, err := range d.q.Jobs(ctx, own.Queue) {
		if errors.Is(err, queue.ErrMalformed) {
			continue // workers on the queue report it
		}
		if err != nil {
			return nil, err
		}
		if j.Run == own.Run || j.Force || j.Status.Terminal() {
			continue
		}
		// Holding this workspace's lock proves that all its other runs are dead. No run waits for a retried job either.
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
		key := product(&j)
		byProduct[key] = append(byProduct[key], queue.Job{Queue: j.Queue, ID: j.ID, Run: j.Run})
	}
	return byProduct, nil
}

// withdraw cancels a job of a dead run unless a worker holds it, and returns its state.
func (d *Dispatcher) withdraw(ctx context.Context, j *queue.Job) (queue.Job, error) {
	now, err := d.q.Withdraw(ctx, j.Queue, j.ID, d.o.By, errLeft.Error())
	if err == nil && now.Status == queue.Cancelled && d.submit != nil {
		d.submit.cancel(j.ID)
	}
	return now, err
}

// gone tells whether a job does not exist or cannot be read.
func gone(err error) bool {
	return errors.Is(err, queue.ErrNotFound) || errors.Is(err, queue.ErrMalformed)
}

// inherit waits for another run's leftover job while a worker holds it. It returns false if the job is no answer: it
// has not begun, its worker is gone (then it is cancelled), or its execution was made an error. A success is an answer,
// and so is a command's failure. fresh tells whether the job was unfinished when no answer was recorded; an earlier end
// was already considered.
func (d *Dispatcher) inherit(ctx context.Context, key executions.Key, req *executions.Request, leftover *queue.Job, fresh bool) (executions.Result, bool, error) {
	r, err := d.run(leftover.Queue, leftover.Run)
	if err != nil {
		return executions.Result{}, false, err
	}
	w := r.expect(leftover.ID, key, req)
	defer r.forget(leftover.ID)
	r.inbox.Expect(leftover.ID)
	job, err := d.q.Job(ctx, leftover.Queue, leftover.ID)
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
	w.reported = len(job.Lost) // the other run has reported these
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
