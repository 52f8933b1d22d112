package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/jobs/queue"
	"e3/refstore"
)

// Submitter lets a cluster's scheduler start a worker for each job.
type Submitter interface {
	// Submit submits jobs of one queue asynchronously. A lost job that is submitted again gets a new worker.
	Submit(ctx context.Context, jobs []queue.Job) error
	// Gone has each job reported whose worker has ended or could not be started, whether or not the job is finished. It is
	// called once; report does not block.
	Gone(report func(Gone))
	// Finished says that a job is finished: the end of its worker need not be reported.
	Finished(id string)
	// Cancel ends the workers of jobs, by the jobs' ids. A job without a worker is skipped.
	Cancel(ctx context.Context, ids []string) error
}

// Gone says how the worker of a job has ended.
type Gone struct {
	ID      string // of the job
	Reason  string // an executions.Reason: timeout, oom, cancelled, or lost, which is also ""
	Message string
}

// submissions is a Dispatcher's background work with its Submitter.
type submissions struct {
	d    *Dispatcher
	more chan struct{} // holds a signal if there are more ids

	mu  sync.Mutex
	ids []string // of jobs whose workers are to end
}

func newSubmissions(d *Dispatcher) *submissions {
	s := &submissions{d: d, more: make(chan struct{}, 1)}
	d.beside.Go(s.cancelWorkers)
	d.o.Submitter.Gone(s.gone)
	return s
}

// cancel ends the worker of a job soon. No caller waits for that: the job is already cancelled, and its worker will
// notice.
func (s *submissions) cancel(id string) {
	s.mu.Lock()
	s.ids = append(s.ids, id)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *submissions) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids
	s.ids = nil
	return ids
}

// A run that ends cancels many jobs at once. They are gathered until no more have come for a while, but no longer than
// a limit.
const (
	gather     = 250 * time.Millisecond
	gatherMost = 2 * time.Second
)

// cancelWorkers cancels workers until the dispatcher ends, including workers that were requested by then.
func (s *submissions) cancelWorkers() {
	for open := true; open; {
		select {
		case <-s.more:
			s.gather()
		case <-s.d.ctx.Done():
			open = false
		}
		ids := s.take()
		if len(ids) == 0 {
			continue
		}
		if err := s.d.o.Submitter.Cancel(s.d.ctx, ids); err != nil {
			s.d.fault(fmt.Errorf("cancel %d jobs: %w", len(ids), err))
		}
	}
}

func (s *submissions) gather() {
	most := time.After(gatherMost)
	for {
		select {
		case <-s.more:
		case <-time.After(gather):
			return
		case <-most:
			return
		case <-s.d.ctx.Done():
			return
		}
	}
}

// gone settles a job whose worker the cluster has ended, unless the dispatcher ends.
func (s *submissions) gone(g Gone) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.held.Err() == nil {
		s.d.beside.Go(func() { s.settle(g) })
	}
}

// settle ends a job whose worker is gone, or requeues it if the worker was lost. The worker's session may first have to
// expire.
func (s *submissions) settle(g Gone) {
	d, why := s.d, ""
	var lease *queue.Lease
	s.until(g.ID, func() (done bool, err error) {
		if lease == nil {
			job, err := d.q.Job(d.ctx, d.o.Queue, g.ID)
			if err != nil || job.Status.Terminal() {
				return err == nil, err
			}
			if job.Declined() { // and so the worker has ended
				why = queue.Truncate("its worker gave it back: " + job.LastError)
			}
			lease, err = d.q.Only(d.ctx, d.o.Queue, g.ID, queue.Want{Worker: d.o.By, Host: d.o.Host, NewExecution: executions.NewIDAfter})
			if lease == nil {
				return false, err
			}
		}
		err = s.conclude(lease, cmp.Or(executions.Reason(g.Reason), executions.ReasonLost), cmp.Or(why, queue.Truncate(g.Message), "the cluster has ended its worker"))
		if errors.Is(err, refstore.ErrLost) { // this process has lost the claim; perhaps no process has it
			lease = nil
		}
		return err == nil, err
	})
}

// until repeats do until it is done, the job has ended otherwise, or the dispatcher ends. After the loss of a session
// it waits for the next one.
func (s *submissions) until(id string, do func() (done bool, err error)) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		done, err := do()
		var moved *queue.TransitionError
		switch {
		case done, errors.As(err, &moved), errors.Is(err, queue.ErrNotFound):
			return
		case err != nil:
			s.d.fault(fmt.Errorf("settle job %s: %w", id, err))
		}
		if errors.Is(err, queue.ErrMalformed) {
			return // the waiting request notices
		}
		if !s.d.sleep(pause) {
			return
		}
	}
}

// conclude settles the execution that a claim names, begun or not, and ends the job accordingly.
func (s *submissions) conclude(lease *queue.Lease, reason executions.Reason, message string) error {
	d, job := s.d, lease.Job()
	req, err := Request(&job)
	if err != nil {
		return lease.Finish(d.ctx, queue.Outcome{State: queue.Failed, Reason: string(executions.ReasonStart), Message: queue.Truncate(err.Error())})
	}
	res, err := d.settler.Settle(d.ctx, executions.NewKey(req.Task, req.Inputs), req.Inputs, job.Execution, reason, message)
	if err != nil {
		return err
	}
	if res.Reason != executions.ReasonLost {
		return lease.Finish(d.ctx, Outcome(res))
	}
	if job, err = lease.Again(d.ctx, queue.Truncate(res.Message), time.Second); err != nil || job.Status.Terminal() {
		return err
	}
	if err := d.o.Submitter.Submit(d.ctx, []queue.Job{job}); err != nil {
		d.fault(fmt.Errorf("submit job %s again: %w", job.ID, err)) // the task waits until it is cancelled
	}
	return nil
}
