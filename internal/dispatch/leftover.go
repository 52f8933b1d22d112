package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/executions"
	"e3/internal/queue"
)

// A run whose process has died leaves jobs, for which nobody waits any more. The next run of that workspace cancels those that have not begun. What
// runs is the answer to whoever wants the same made: he holds the claim of the key, so it was somebody's who holds it no more.

var errLeft = errors.New("the run that asked for it is dead")

// left returns the jobs of other runs that make what j is to make. The queue is listed once for each run.
func (r *run) left(ctx context.Context, j *queue.Job) ([]queue.Job, error) {
	if j.Force {
		return nil, nil // that of another is no answer
	}
	r.listing.Lock()
	defer r.listing.Unlock()
	if r.others == nil {
		others, err := r.d.others(ctx, j)
		if err != nil {
			return nil, fmt.Errorf("look for jobs that dead runs have left: %w", err)
		}
		r.others = others
	}
	key := made(j)
	jobs := r.others[key]
	delete(r.others, key)
	return jobs, nil
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
			now, err := d.callOff(ctx, j.Queue, j.ID, errLeft)
			if errors.Is(err, queue.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if now.Status.Terminal() {
				continue
			}
			j = now // it was faster, and is told to end
		}
		key := made(&j)
		others[key] = append(others[key], queue.Job{Queue: j.Queue, ID: j.ID, Run: j.Run})
	}
	return others, nil
}

// inherit waits for the end of a job that another run has left, and returns false if it is no answer.
func (d *Dispatcher) inherit(ctx context.Context, key executions.Key, req *executions.Request, left *queue.Job) (executions.Result, bool, error) {
	r, err := d.run(left.Queue, left.Run)
	if err != nil {
		return executions.Result{}, false, err
	}
	w := r.expect(left.ID, key, req)
	defer r.forget(left.ID)
	job, err := d.q.Job(ctx, left.Queue, left.ID)
	if errors.Is(err, queue.ErrNotFound) {
		return executions.Result{}, false, nil
	}
	if err == nil {
		job, err = d.await(ctx, w, job)
	}
	if err != nil || job.Outcome.State == queue.Cancelled && ctx.Err() == nil || job.Outcome.Reason == queue.ReasonLost {
		return executions.Result{}, false, err
	}
	res, err := d.result(ctx, w, &job)
	return res, true, err
}
