// Package dispatch has executions made by workers: it makes a job of each request, puts it into a queue, and waits until somebody has
// finished it (doc/design.md, "More than one machine"). A [Dispatcher] is what an executions.Executor calls instead of running commands. It
// works for one process, whatever the number of its runs; each run has one waiter for all of its jobs.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// Settler says how an execution has ended, and makes one an error that has not; it is *executions.Curator.
type Settler interface {
	Settle(ctx context.Context, key executions.Key, inputs []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error)
}

// Options adjust a Dispatcher.
type Options struct {
	Queue     string    // of jobs whose task names none; "": the default one
	Submitter Submitter // has workers started for jobs; nil: there are some. With it all jobs are in Queue
	// Unattended is told, once for what jobs of a queue ask of their worker, that nobody has been at work on jobs with such labels for some
	// seconds while one waits. It gets that one.
	Unattended func(*queue.Job)
	Fault      func(error) // is told of what fails and is tried again
	// Renew has this process begin another session where its last was lost, because it stood still or the store did. nil: who has lost it has
	// lost more than that, and the contexts of what is asked for end by it.
	Renew func()

	Host     string           // of this process
	By       string           // who cancels, in words
	Now      func() time.Time // required
	Patience time.Duration    // for the end of a job that was cancelled; 0: 30 s
}

const (
	// attendance is how long a job waits before it is asked whether anybody is at work,
	attendance = 5 * time.Second
	// and attendedAgain how long until that is asked again, and then twice as long each time: workers go away.
	attendedAgain = 30 * time.Second
)

// Dispatcher implements executions.Remote. It is safe for concurrent use.
type Dispatcher struct {
	q       *queue.Queue
	settler Settler
	o       Options

	ctx    context.Context // ends with the Dispatcher
	end    context.CancelFunc
	held   context.Context // likewise, and when nothing more can be followed; its cause says why
	lose   context.CancelCauseFunc
	beside sync.WaitGroup
	cancel chan struct{} // a token for each job that is being cancelled
	submit *submissions  // nil without a Submitter

	mu     sync.Mutex      // nothing is begun beside the callers but under it, while held lasts
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

// Close ends what the Dispatcher does beside its callers, who have all returned. Jobs that are out stay as they are.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	d.lose(errClosed)
	d.mu.Unlock()
	d.end()
	d.beside.Wait()
	return nil
}

var (
	// errClosed says that the process is about to end,
	errClosed = errors.New("the dispatcher is closed")
	// errOverdue that a job goes on which was cancelled.
	errOverdue = errors.New("was told to end, and has not done so")
)

// Execute implements executions.Remote. A ctx that is done cancels the job, and its end is waited for as long as Options.Patience says. Where
// this process has lost its lease for good, the job goes on, and the error wraps refstore.ErrLost.
func (d *Dispatcher) Execute(ctx context.Context, key executions.Key, req *executions.Request) (executions.Result, error) {
	began := d.o.Now()
	if _, err := req.Load(ctx); err != nil { // it also puts in place what is made of several outputs
		return executions.Result{}, err
	}
	name := d.o.Queue
	if d.submit == nil && req.Policy != nil && req.Policy.Queue != "" {
		name = req.Policy.Queue
	}
	job := Job(req, name)
	job.Host = d.o.Host
	r, err := d.run(job.Queue, job.Run)
	if err != nil {
		return executions.Result{}, err
	}
	left, fresh, err := r.left(ctx, &job, began)
	if err != nil {
		return executions.Result{}, fmt.Errorf("task %s: %w", req.Name, err)
	}
	for i := range left {
		if res, ok, err := d.inherit(ctx, key, req, &left[i], fresh); ok || err != nil {
			return res, err
		}
	}
	w := r.expect(job.ID, key, req)
	defer r.forget(job.ID)
	job, err = d.order(ctx, &job)
	if err == nil {
		job, err = d.await(ctx, w, job)
	}
	if errors.Is(err, queue.ErrMalformed) && ctx.Err() == nil { // it is this job that cannot be made, and no other
		return d.settle(ctx, w, w.claimed, executions.ReasonNone, Clip(err.Error()))
	}
	if err != nil {
		return executions.Result{}, err
	}
	return d.result(ctx, w, &job)
}

// order enqueues a job, and has a worker started for it.
func (d *Dispatcher) order(ctx context.Context, want *queue.Job) (queue.Job, error) {
	job, err := d.q.Enqueue(ctx, want)
	if err != nil || job.Status.Terminal() || d.submit == nil {
		return job, err
	}
	if err := d.o.Submitter.Submit(ctx, []queue.Job{job}); err != nil {
		return job, fmt.Errorf("submit task %s: %w", job.Task, err)
	}
	return job, nil
}

// await waits for the end of a job, and tells its request what becomes known on the way.
func (d *Dispatcher) await(ctx context.Context, w *waiter, job queue.Job) (queue.Job, error) {
	w.tell(&job)
	unattended := time.NewTimer(attendance)
	defer unattended.Stop()
	again := attendedAgain
	cancelled := ctx.Done()
	var over <-chan struct{}
	for !job.Status.Terminal() {
		select {
		case news := <-w.news:
			if news.Status == "" { // somebody has removed it, or spoilt it
				err := context.Cause(ctx)
				switch {
				case w.idle != nil:
					err = queue.ErrNotFound
				case err == nil:
					news, err = d.order(ctx, &job)
				}
				if err != nil {
					return job, fmt.Errorf("job %s is not in its queue any more: %w", job.Ref(), err)
				}
			}
			job = news
			w.tell(&job)
		case <-unattended.C:
			if job.LockedBy == "" && !job.AvailableAt.After(d.o.Now()) {
				w.run.unattended(job)
			}
			unattended.Reset(again)
			again *= 2
		case <-cancelled:
			cancelled = nil
			if cause := context.Cause(ctx); errors.Is(cause, refstore.ErrLost) {
				return job, cause
			}
			last, done := context.WithTimeout(context.WithoutCancel(ctx), d.o.Patience)
			defer done()
			over = last.Done()
			stands, err := d.callOff(last, job.Queue, job.ID, context.Cause(ctx))
			if err != nil {
				return job, errors.Join(context.Cause(ctx), fmt.Errorf("cancel job %s: %w", job.Ref(), err))
			}
			job = stands
		case <-over:
			return job, fmt.Errorf("%w; job %s %w in %v", context.Cause(ctx), job.Ref(), errOverdue, d.o.Patience)
		case <-d.held.Done():
			return job, context.Cause(d.held)
		}
	}
	w.tell(&job)
	return job, nil
}

// callOff cancels a job and returns how it stands. Its worker is ended beside that.
func (d *Dispatcher) callOff(ctx context.Context, name, id string, cause error) (queue.Job, error) {
	select {
	case d.cancel <- struct{}{}:
		defer func() { <-d.cancel }()
	case <-ctx.Done():
		return queue.Job{}, ctx.Err()
	}
	job, err := d.q.Cancel(ctx, name, id, d.o.By, Clip(cause.Error()))
	var moved *queue.TransitionError
	if errors.As(err, &moved) { // it has ended
		return moved.Job, nil
	}
	if err == nil && d.submit != nil {
		d.submit.cancel(id)
	}
	return job, err
}

// result is what the end of a job means to who has asked for it.
func (d *Dispatcher) result(ctx context.Context, w *waiter, job *queue.Job) (executions.Result, error) {
	o := job.Outcome
	if o.State == queue.Succeeded {
		output, err := objectstore.ParseHash(o.Output)
		if err != nil {
			return executions.Result{}, fmt.Errorf("job %s: its output: %w", job.Ref(), err)
		}
		return executions.Result{ExecutionID: o.ExecutionID, State: record.Success, Output: output, Size: o.Size, Duration: o.Duration}, nil
	}
	if cause := context.Cause(ctx); cause != nil && o.ExecutionID == "" {
		return executions.Result{}, cause // nothing ran
	}
	// How it has ended is on the record of the execution. Where there is none, nothing ran: then that is what is on record.
	reason := executions.Reason(o.Reason)
	if o.State == queue.Cancelled {
		reason = executions.ReasonCancelled
	}
	res, err := d.settle(ctx, w, o.ExecutionID, cmp.Or(reason, executions.ReasonLost), cmp.Or(o.Message, job.LastError, string(o.State)))
	if err != nil {
		return res, fmt.Errorf("job %s has ended as %s: %w", job.Ref(), o.State, err)
	}
	if o.State == queue.Cancelled && ctx.Err() == nil { // the record of a command that was stopped knows nothing of who, and why
		res.Message = cmp.Or(o.Message, res.Message)
	}
	return res, nil
}

// settle puts on record that an execution is an error, unless it has ended, and returns how it stands. Without an id nothing ran, and that gets one.
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
