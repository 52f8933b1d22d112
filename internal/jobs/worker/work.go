package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// errCancelled is the cause of a command's end if its job was cancelled.
var errCancelled = errors.New("the job was cancelled")

// work completes a held job: it makes the execution that the claim names, or continues the adopted command o, or
// settles the execution of a lost worker. It then records the outcome.
func (w *Worker) work(l *loop, h *holding, o *runner.Orphan) {
	ctx, cancel := context.WithCancelCause(l.jobs)
	defer cancel(nil)
	go func() {
		select {
		case <-h.lease.CancelRequested():
			cancel(errCancelled)
		case <-ctx.Done():
		}
	}()
	req, key, err := w.request(&h.job, h.lease.Object())
	if err != nil { // it can never be executed; its run gets the error
		w.finish(l.held, h, queue.Outcome{State: queue.Failed, Reason: string(executions.ReasonStart), Message: queue.Truncate(err.Error())}, executions.Result{
			State: record.Error, Reason: executions.ReasonStart, Message: err.Error(),
		})
		return
	}
	if h.lease.Adopted() {
		w.metrics.adoptions.Inc()
		if by := h.cancelled(); o == nil && by != "" {
			w.settleAs(l.held, h, key, req.Inputs, executions.ReasonCancelled, by)
			return
		}
		if o == nil {
			w.settle(l.held, h, key, req.Inputs, fmt.Sprintf("%s was lost", h.before()))
			return
		}
		w.report(Event{Type: JobAdopted, Job: h.job, Message: h.before()})
	} else if o != nil { // its execution was given up meanwhile, so this one gets the result
		req.Job.Resumes = true
		w.metrics.adoptions.Inc()
		w.report(Event{Type: JobAdopted, Job: h.job, Message: h.before()})
	} else {
		w.metrics.attempts.Inc()
		w.metrics.wait.Update(max(h.job.Claimed.Time().Sub(h.lease.WaitingSince()).Seconds(), 0))
		w.report(Event{Type: JobBegun, Job: h.job})
	}
	begun := w.noteStart(l.held, h)
	req.Started = begun.start
	var res executions.Result
	if o != nil {
		res, err = w.s.Executor.Adopt(ctx, req, h.job.Execution, o)
	} else {
		res, err = w.s.Executor.Make(ctx, req, h.job.Execution)
	}
	begun.stop()
	w.conclude(ctx, l, h, req, key, res, err)
	if l.held.Err() == nil { // otherwise the next worker finds the end of the command
		w.s.Supervisor.Release(req.Job.Identity)
	}
}

// before names the job's previous worker.
func (h *holding) before() string {
	maker := h.job.Maker
	if !h.lease.Adopted() { // this worker makes it
		if maker = ""; len(h.job.Lost) > 0 {
			maker = h.job.Lost[len(h.job.Lost)-1].Worker
		}
	}
	return cmp.Or(maker, "its worker")
}

// heldPause is the interval of looks at a lease that is suspended.
const heldPause = 20 * time.Millisecond

// held returns once the lease is not suspended: nil if this worker has it, else why not. A worker that stood still for
// longer than a lease finishes nothing before it knows, because another one of this host may have its commands.
func (w *Worker) held() error {
	for {
		err := w.s.Session.Held()
		if !errors.Is(err, refstore.ErrSuspended) {
			return err
		}
		select {
		case <-w.s.Session.Lost():
		case <-time.After(heldPause):
		}
	}
}

// stoppedTogether bounds how much later than its command a stopped worker receives the signal.
const stoppedTogether = 500 * time.Millisecond

// request returns the Executor's request for a job. object is the body of its task object, if that is known.
func (w *Worker) request(j *queue.Job, object []byte) (*executions.Request, executions.Key, error) {
	req, err := dispatch.Request(j)
	if err != nil {
		return nil, executions.Key{}, err
	}
	req.Job.Identity, req.Job.Held = identity(j), w.held
	if w.o.Job != "" { // a cluster's scheduler has started this worker
		req.Job.FailureGrace = stoppedTogether
	}
	req.Load = func(ctx context.Context) (*record.Task, error) {
		if data := record.TaskObject(object); objectstore.Sum(data) == req.Task {
			return record.DecodeTask(data)
		}
		return executions.LoadTask(ctx, w.s.Objects, req.Task)
	}
	return req, executions.NewKey(req.Task, req.Inputs), nil
}

// started records that a job's command is running, once it has run for Options.Begun.
type started struct {
	w     *Worker
	ctx   context.Context
	h     *holding
	mu    sync.Mutex
	timer *time.Timer
	done  sync.WaitGroup
	ended bool
}

func (w *Worker) noteStart(ctx context.Context, h *holding) *started {
	return &started{w: w, ctx: ctx, h: h}
}

func (s *started) start(_ string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil || s.ended || !s.h.job.Started.IsZero() {
		return
	}
	s.timer = time.AfterFunc(s.w.o.Begun, func() {
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return
		}
		s.done.Add(1)
		s.mu.Unlock()
		defer s.done.Done()
		_ = s.h.lease.Started(s.ctx, at) // only informative; store faults show when the job ends
	})
}

// stop returns when no more is written.
func (s *started) stop() {
	s.mu.Lock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.done.Wait()
}

// conclude records the result of an execution. ctx is the context of its command.
func (w *Worker) conclude(ctx context.Context, l *loop, h *holding, req *executions.Request, key executions.Key, res executions.Result, err error) {
	cause := context.Cause(ctx)
	h.revoked = w.o.Job != "" && errors.Is(cause, ErrStopped)
	switch {
	case l.held.Err() != nil, errors.Is(err, runner.ErrLeft), errors.Is(err, refstore.ErrLost) && w.lost() != nil:
		// The next worker of this host continues it, unless other processes have given it up.
		w.report(Event{Type: JobLost, Job: h.job, Message: lostMessage(l.held, err)})
	case errors.Is(err, refstore.ErrLost): // another process has settled the execution, though this worker still holds the job
		w.settle(l.held, h, key, req.Inputs, queue.Truncate(err.Error()))
	case err == nil && res.Reason == executions.ReasonCancelled && errors.Is(cause, ErrStopped):
		w.again(l.held, h, cause.Error(), 0)
	case err == nil && res.Reason == executions.ReasonLost: // recorded as lost: the command, or its output, is gone
		w.again(l.held, h, res.Message, againAfter)
	case err == nil:
		o := dispatch.Outcome(res)
		if errors.Is(cause, errCancelled) && o.State == queue.Cancelled {
			o.Message = queue.Truncate(h.cancelled())
		}
		w.finish(l.held, h, o, res)
	case errors.Is(cause, errCancelled):
		w.settleAs(l.held, h, key, req.Inputs, executions.ReasonCancelled, h.cancelled())
	case executions.OfMachine(err):
		h.foreign = true
		w.giveBack(l, h, err.Error(), func(ctx context.Context) error { return h.lease.Decline(ctx, err.Error()) })
	case isLost(err) && cause == nil: // no worker can make it until the run has restored the object
		w.settleAs(l.held, h, key, req.Inputs, executions.ReasonInput, queue.Truncate(err.Error()))
	case errors.Is(cause, ErrStopped):
		if h.lease.Adopted() || w.onRecord(l.held, h, key) {
			w.settle(l.held, h, key, req.Inputs, cause.Error())
			return
		}
		w.giveBack(l, h, "it had not begun", h.lease.Release)
	default: // a fault of this machine or the stores
		h.fault = true
		w.report(Event{Type: Fault, Job: h.job, Message: err.Error()})
		w.settle(l.held, h, key, req.Inputs, queue.Truncate(fmt.Sprintf("%s could not make it: %v", w.o.Name, err)))
	}
}

// onRecord tells whether the job's execution is, or may be, on record: then it has to have an end before the job leaves it.
func (w *Worker) onRecord(ctx context.Context, h *holding, key executions.Key) bool {
	_, err := w.s.Executor.Get(ctx, key, h.job.Execution)
	return !errors.Is(err, executions.ErrNotFound)
}

// giveBack returns a job that was not begun to its queue.
func (w *Worker) giveBack(l *loop, h *holding, why string, release func(context.Context) error) {
	if err := w.insist(l.held, release); err != nil {
		w.report(Event{Type: JobLost, Job: h.job, Message: err.Error()})
		return
	}
	w.report(Event{Type: JobGiven, Job: h.job, Message: why, Again: w.o.Now()})
}

// isLost tells whether an execution was not made because an object is missing or damaged.
func isLost(err error) bool {
	lost, _ := objectstore.IsLost(err)
	return lost
}

func lostMessage(held context.Context, err error) string {
	if held.Err() != nil || err == nil {
		return "the lease was lost; the next worker of this host continues the command, unless another worker has begun it again"
	}
	return err.Error()
}

// cancelled says by whom the job was cancelled, and why; "" if it was not.
func (h *holding) cancelled() string {
	select {
	case <-h.lease.CancelRequested():
	default:
		return ""
	}
	by, why := h.lease.Cancellation()
	text := "cancelled"
	if by != "" {
		text += " by " + by
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// settle gives up an execution whose end is unknown. If it has ended after all, the job ends with its result.
func (w *Worker) settle(ctx context.Context, h *holding, key executions.Key, inputs []objectstore.Hash, message string) {
	w.settleAs(ctx, h, key, inputs, executions.ReasonLost, message)
}

func (w *Worker) settleAs(ctx context.Context, h *holding, key executions.Key, inputs []objectstore.Hash, reason executions.Reason, message string) {
	var res executions.Result
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		res, err = w.s.Executor.Settle(ctx, key, inputs, h.job.Execution, reason, message)
		return err
	})
	switch {
	case err != nil:
		w.report(Event{Type: JobLost, Job: h.job, Message: err.Error()})
	case res.Reason == executions.ReasonLost: // perhaps by another process, whose message is on record
		w.again(ctx, h, queue.Truncate(res.Message), againAfter)
	default:
		w.finish(ctx, h, dispatch.Outcome(res), res)
	}
}

// againAfter is the first backoff of a job whose execution was lost.
const againAfter = time.Second

// again requeues the job for another attempt, by any worker, unless its attempts are used up.
func (w *Worker) again(ctx context.Context, h *holding, message string, backoff time.Duration) {
	if h.revoked {
		if err := w.insist(ctx, func(ctx context.Context) error { return h.lease.Revoke(ctx, message) }); err != nil {
			w.report(Event{Type: JobLost, Job: h.job, Message: err.Error()})
			return
		}
		w.report(Event{Type: JobGiven, Job: h.job, Message: message, Again: w.o.Now()})
		return
	}
	var job queue.Job
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		job, err = h.lease.Again(ctx, message, backoff)
		return err
	})
	switch {
	case err != nil:
		w.report(Event{Type: JobLost, Job: h.job, Message: err.Error()})
	case job.Status.Terminal():
		w.metrics.failed(string(executions.ReasonLost))
		w.report(Event{Type: JobEnded, Job: job, Result: executions.Result{
			ExecutionID: h.job.Execution, State: record.Error, Reason: executions.ReasonLost, Message: message,
		}})
	default:
		w.report(Event{Type: JobGiven, Job: job, Message: message, Again: job.AvailableAt.Time()})
	}
}

// finish records the outcome of a job.
func (w *Worker) finish(ctx context.Context, h *holding, o queue.Outcome, res executions.Result) {
	if err := w.insist(ctx, func(ctx context.Context) error { return h.lease.Finish(ctx, o) }); err != nil {
		w.report(Event{Type: JobLost, Job: h.job, Message: err.Error()})
		return
	}
	switch {
	case o.State == queue.Succeeded:
		w.metrics.succeeded.Inc()
	case o.Reason == queue.ReasonSuspended:
		w.metrics.suspended.Inc()
	default:
		w.metrics.failed(cmp.Or(o.Reason, "exit"))
	}
	if w.s.Told != nil && (res.Duration >= toldAfter || h.job.Retried > 0) {
		_ = w.s.Told(ctx, &h.job) // a later sweep, or the next start, tells of it
	}
	w.report(Event{Type: JobEnded, Job: h.job, Result: res, Cancelled: o.State == queue.Cancelled})
}

// toldAfter is how long an execution takes whose run is asked for: whether it was closed meanwhile costs a read.
const toldAfter = time.Second

// insist retries a change until it succeeds or can no longer take effect. ctx ends with the lease.
func (w *Worker) insist(ctx context.Context, do func(context.Context) error) error {
	told := false
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, refstore.ErrLost), isOver(err), errors.Is(err, refstore.ErrInvalid):
			return err
		}
		if !told {
			told = true
			w.report(Event{Type: Fault, Message: err.Error()})
		}
		if err := backoff.Wait(ctx, pause); err != nil {
			return err
		}
	}
}
