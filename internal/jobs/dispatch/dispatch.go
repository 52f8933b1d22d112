// Package dispatch lets workers make executions: it makes a job of each request, enqueues it, and waits until a worker
// has finished it (doc/design.md, "More than one machine"). An executions.Executor calls a [Dispatcher] instead of
// running commands. It serves any number of runs of one process. Each run has one waiter for all of its jobs.
package dispatch

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
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// Settler makes an execution an error unless it has ended, returns its result, and reads its record;
// *executions.Curator implements it.
type Settler interface {
	Settle(ctx context.Context, key executions.Key, inputs []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error)
	// Get returns an execution. The error may be executions.ErrNotFound, or wrap executions.ErrMalformed.
	Get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error)
}

// Options adjust a Dispatcher.
type Options struct {
	Queue     string    // for tasks that name none; "": the default queue
	Submitter Submitter // starts workers for jobs, all in Queue; nil: workers exist
	// Unattended is called once for each set of job requirements, with a waiting job, if no worker has held jobs with
	// such labels for some seconds.
	Unattended func(*queue.Job)
	// Declined is called once for each reason for which a worker gave a job back that its machine cannot execute. The job
	// waits for another worker; its LastError is the reason.
	Declined func(*queue.Job)
	Fault    func(error) // receives faults that are retried
	// Renew begins another session of this process after its session was lost because the process or the store was
	// suspended. nil: the loss ends the requests, whose contexts end with the session.
	Renew func()

	Host     string           // of this process
	By       string           // author of cancellations, for display
	Now      func() time.Time // required
	Patience time.Duration    // for the end of a job that was cancelled; 0: 30 s
}

const (
	// attendance is how long a job waits before the first look for workers.
	attendance = 5 * time.Second
	// attendedAgain is the wait before the next look, which doubles each time: workers may leave.
	attendedAgain = 30 * time.Second
)

// Dispatcher implements executions.Remote. It is safe for concurrent use.
type Dispatcher struct {
	q       *queue.Queue
	settler Settler
	o       Options

	ctx    context.Context // ends with the Dispatcher
	end    context.CancelFunc
	held   context.Context // ends with ctx, or when following must stop; its cause says why
	lose   context.CancelCauseFunc
	beside sync.WaitGroup
	cancel chan struct{} // a token for each job that is being cancelled
	submit *submissions  // nil without a Submitter

	mu     sync.Mutex      // held when a background goroutine is begun
	tended map[string]bool // queues
	runs   map[[2]string]*run
}

var _ executions.Remote = (*Dispatcher)(nil)

// New returns a Dispatcher over the queues of a repository.
func New(q *queue.Queue, settler Settler, o Options) *Dispatcher {
	o.Queue = cmp.Or(o.Queue, queue.DefaultQueue)
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	if o.Unattended == nil {
		o.Unattended = func(*queue.Job) {}
	}
	if o.Declined == nil {
		o.Declined = func(*queue.Job) {}
	}
	if o.Fault == nil {
		o.Fault = func(error) {}
	}
	d := &Dispatcher{q: q, settler: settler, o: o, cancel: make(chan struct{}, 64), tended: map[string]bool{}, runs: map[[2]string]*run{}}
	d.ctx, d.end = context.WithCancel(context.Background())
	d.held, d.lose = context.WithCancelCause(d.ctx)
	if o.Submitter != nil {
		d.submit = newSubmissions(d)
	}
	return d
}

// Close ends the background work of the Dispatcher. It is called after all calls have returned. Unfinished jobs stay as
// they are.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	d.lose(errClosed)
	d.mu.Unlock()
	d.end()
	d.beside.Wait()
	return nil
}

var (
	// errClosed says that the process is ending.
	errClosed = errors.New("the dispatcher is closed")
	// errOverdue says that a cancelled job is still running.
	errOverdue = errors.New("was told to end, and has not done so")
)

// Execute implements executions.Remote. When ctx is done, it cancels the job and waits up to Options.Patience for its
// end. If this process has lost its lease for good, the job continues, and the error wraps refstore.ErrLost.
func (d *Dispatcher) Execute(ctx context.Context, key executions.Key, req *executions.Request) (executions.Result, error) {
	began := d.o.Now()
	task, err := req.Load(ctx)
	if err != nil { // this also stores directories that gather several outputs
		return executions.Result{}, err
	}
	name := d.o.Queue
	if d.submit == nil && req.Policy != nil && req.Policy.Queue != "" {
		name = req.Policy.Queue
	}
	job := Job(req, name)
	job.Host, job.Object = d.o.Host, object(req.Task, task)
	r, err := d.run(job.Queue, job.Run)
	if err != nil {
		return executions.Result{}, err
	}
	leftovers, fresh, err := r.leftJobs(ctx, &job, began)
	if err != nil {
		return executions.Result{}, fmt.Errorf("task %s: %w", req.Name, err)
	}
	for i := range leftovers {
		if req.Shared != nil {
			req.Shared(true)
		}
		if res, ok, err := d.inherit(ctx, key, req, &leftovers[i], fresh); ok || err != nil {
			return res, err
		}
		if req.Shared != nil {
			req.Shared(false)
		}
	}
	w := r.expect(job.ID, key, req)
	defer r.forget(job.ID)
	first := r.isFirst(job.ID)
	if first {
		r.inbox.ExpectFirst(job.ID)
	}
	job, err = d.enqueue(ctx, &job, first)
	if err == nil {
		r.inbox.Expect(job.ID)
		job, err = d.await(ctx, w, job)
	}
	if d.submit != nil && err == nil && job.Status != queue.Cancelled {
		d.o.Submitter.Finished(job.ID)
	}
	if errors.Is(err, queue.ErrMalformed) && ctx.Err() == nil { // only this job cannot be made
		return d.settle(ctx, w, w.claimed, executions.ReasonNone, queue.Truncate(err.Error()))
	}
	if err != nil {
		return executions.Result{}, err
	}
	return d.result(ctx, w, &job)
}

// lasting returns a context for requests whose effect must be known: it goes on for Options.Patience after ctx has ended,
// unless that ended because this process has lost its lease.
func (d *Dispatcher) lasting(ctx context.Context) (lasting context.Context, done func()) {
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, refstore.ErrLost) || backoff.Wait(lasting, d.o.Patience) == nil {
			end(cause)
		}
	})
	return lasting, func() {
		stop()
		end(nil)
	}
}

// enqueue enqueues a job, and submits it for a worker. first says that the job was not enqueued before. Once begun,
// the enqueuing is completed even if the run is cancelled meanwhile, so that the run can cancel the job.
func (d *Dispatcher) enqueue(ctx context.Context, want *queue.Job, first bool) (queue.Job, error) {
	if ctx.Err() != nil {
		return queue.Job{}, context.Cause(ctx)
	}
	ctx, done := d.lasting(ctx)
	defer done()
	enqueue := d.q.Enqueue
	if first {
		enqueue = d.q.EnqueueFirst
	}
	job, err := enqueue(ctx, want)
	if err != nil || job.Status.Terminal() || d.submit == nil {
		return job, err
	}
	if err := d.o.Submitter.Submit(ctx, []queue.Job{job}); err != nil {
		return job, fmt.Errorf("submit task %s: %w", job.Task, err)
	}
	return job, nil
}

// await waits for the end of a job, and reports its changes to the request.
func (d *Dispatcher) await(ctx context.Context, w *waiter, job queue.Job) (queue.Job, error) {
	w.tell(&job)
	unattended := time.NewTimer(attendance)
	defer unattended.Stop()
	again := attendedAgain
	cancelled := ctx.Done()
	var last context.Context // once ctx has ended
	var expired <-chan struct{}
	for !job.Status.Terminal() {
		select {
		case news := <-w.news:
			if news.Status == "" { // the record is missing or malformed
				err := context.Cause(ctx)
				switch {
				case w.idle != nil:
					err = queue.ErrNotFound
				case err == nil:
					news, err = d.enqueue(ctx, &job, false)
				}
				if err != nil {
					return job, fmt.Errorf("job %s is not in its queue any more: %w", job.Ref(), err)
				}
			}
			job = news
			w.tell(&job)
			if expired != nil && job.Orphaned() { // the worker was lost before it ended the command
				cancelled = ctx.Done()
			}
		case <-unattended.C:
			if job.LockedBy == "" && !job.AvailableAt.Time().After(d.o.Now()) {
				w.run.unattended(job)
			}
			unattended.Reset(again)
			again *= 2
		case <-cancelled:
			cancelled = nil
			if cause := context.Cause(ctx); errors.Is(cause, refstore.ErrLost) {
				return job, cause
			}
			if expired == nil {
				var done context.CancelFunc
				last, done = context.WithTimeout(context.WithoutCancel(ctx), d.o.Patience)
				defer done()
				expired = last.Done()
			}
			stands, err := d.cancelJob(last, job.Queue, job.ID, context.Cause(ctx))
			if err != nil {
				return job, errors.Join(context.Cause(ctx), fmt.Errorf("cancel job %s: %w", job.Ref(), err))
			}
			job = stands
			w.tell(&job)
		case <-expired:
			return job, fmt.Errorf("%w; job %s %w in %v", context.Cause(ctx), job.Ref(), errOverdue, d.o.Patience)
		case <-d.held.Done():
			return job, context.Cause(d.held)
		}
	}
	w.tell(&job)
	return job, nil
}

// cancelJob cancels a job and returns its state. Its worker is ended in the background.
func (d *Dispatcher) cancelJob(ctx context.Context, name, id string, cause error) (queue.Job, error) {
	select {
	case d.cancel <- struct{}{}:
		defer func() { <-d.cancel }()
	case <-ctx.Done():
		return queue.Job{}, ctx.Err()
	}
	job, err := d.q.Cancel(ctx, name, id, d.o.By, queue.Truncate(cause.Error()))
	var moved *queue.TransitionError
	if errors.As(err, &moved) { // it has ended
		return moved.Job, nil
	}
	if err == nil && d.submit != nil {
		d.submit.cancel(id)
	}
	return job, err
}

// result translates the end of a job for its request.
func (d *Dispatcher) result(ctx context.Context, w *waiter, job *queue.Job) (executions.Result, error) {
	o := job.Outcome
	if o.State == queue.Succeeded {
		output, err := objectstore.ParseHash(o.Output)
		if err != nil {
			return executions.Result{}, fmt.Errorf("job %s: its output: %w", job.Ref(), err)
		}
		return executions.Result{ExecutionID: o.ExecutionID, State: record.Success, Output: output, Size: o.Size, Duration: o.Duration, EndedAt: o.EndedAt}, nil
	}
	if cause := context.Cause(ctx); cause != nil && o.ExecutionID == "" {
		return executions.Result{}, cause // nothing ran
	}
	// The execution's record has the result. Without one nothing ran, which is then recorded.
	reason := executions.Reason(o.Reason)
	if o.State == queue.Cancelled {
		reason = executions.ReasonCancelled
	}
	res, err := d.settle(ctx, w, o.ExecutionID, cmp.Or(reason, executions.ReasonLost), cmp.Or(o.Message, job.LastError, string(o.State)))
	if err != nil {
		return res, fmt.Errorf("job %s has ended as %s: %w", job.Ref(), o.State, err)
	}
	if o.State == queue.Cancelled && ctx.Err() == nil { // the record of a stopped command does not say by whom and why
		res.Message = cmp.Or(o.Message, res.Message)
	}
	return res, nil
}

// settle records that an execution is an error, unless it has ended, and returns its result. Without an id nothing
// ran, and the execution gets a new id.
func (d *Dispatcher) settle(ctx context.Context, w *waiter, id string, reason executions.Reason, message string) (res executions.Result, err error) {
	if id == "" {
		if id, err = executions.NewIDAfter(w.req.After); err != nil {
			return res, err
		}
	}
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), d.o.Patience)
	defer done()
	return d.settler.Settle(bound, w.key, w.req.Inputs, id, reason, message)
}
