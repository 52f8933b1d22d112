package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/refstore"
)

// run is the state of one run's requests in one queue.
type run struct {
	d     *Dispatcher
	queue string
	inbox *queue.Inbox

	mu       sync.Mutex
	waiters  map[string]*waiter   // by job
	enqueued map[string]bool      // jobs that this process has begun to enqueue; no other process enqueues jobs of its runs
	attended map[string]time.Time // by the labels of jobs: when a worker last claimed or held such a job
	warned   map[string]bool      // by the requirements of jobs: the user was warned that no worker takes them
	asking   map[string]queue.Job // by the requirements of jobs: a job that waits to learn whether a worker takes it
	declined map[string]bool      // reasons that the user knows
	looking  bool                 // look is in progress

	listing   sync.Mutex
	byProduct map[string][]queue.Job // jobs of other runs by product; nil before the first listing
	listed    time.Time              // when that listing began
}

// waiter is a request whose job is in the queue.
type waiter struct {
	run  *run
	key  executions.Key
	req  *executions.Request
	news chan queue.Job // the latest state
	idle *time.Timer    // of another run's job: fires if no worker holds it for too long; nil: a job of this run

	// The changes that the waiting goroutine has reported to the request.
	claimed  string // the execution
	started  string
	orphaned uint64    // the job's token at that time
	adopted  time.Time // the last time
	reported int       // lost attempts
}

// run returns the state of a run's jobs in a queue, and begins to deliver them.
func (d *Dispatcher) run(name, id string) (*run, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held.Err() != nil {
		return nil, context.Cause(d.held)
	}
	if !d.tended[name] {
		d.tended[name] = true
		d.beside.Go(func() { d.tend(name) })
	}
	r := d.runs[[2]string{name, id}]
	if r == nil {
		r = &run{
			d: d, queue: name, inbox: d.q.Inbox(d.ctx, name, id),
			waiters: map[string]*waiter{}, enqueued: map[string]bool{}, attended: map[string]time.Time{}, warned: map[string]bool{}, asking: map[string]queue.Job{},
			declined: map[string]bool{},
		}
		d.runs[[2]string{name, id}] = r
		d.beside.Go(r.deliver)
	}
	return r, nil
}

// tend runs the maintenance of a queue until the dispatcher ends, through several sessions of this process.
func (d *Dispatcher) tend(name string) {
	for pause := 100 * time.Millisecond; ; {
		err := d.q.Tend(d.ctx, []string{name}, d.fault)
		switch {
		case d.ctx.Err() != nil:
			return
		case !errors.Is(err, refstore.ErrLost):
			d.fault(fmt.Errorf("look after queue %s: %w", name, err))
			pause = min(2*pause, 30*time.Second)
		case d.o.Renew != nil:
			d.o.Renew()
			pause = 100 * time.Millisecond
		default: // the same loss ends the run with a better message; if not, no request may wait on an unattended queue
			if d.sleep(d.o.Patience) {
				d.lose(err)
			}
			return
		}
		if !d.sleep(pause) {
			return
		}
	}
}

// begin starts a background goroutine, unless the dispatcher ends.
func (d *Dispatcher) begin(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held.Err() == nil {
		d.beside.Go(do)
	}
}

func (d *Dispatcher) fault(err error) {
	if d.ctx.Err() == nil && !errors.Is(err, refstore.ErrLost) {
		d.o.Fault(err)
	}
}

// expect registers a request for a job. It receives the job's changes once the inbox expects the job.
func (r *run) expect(id string, key executions.Key, req *executions.Request) *waiter {
	w := &waiter{run: r, key: key, req: req, news: make(chan queue.Job, 1)}
	r.mu.Lock()
	r.waiters[id] = w
	r.mu.Unlock()
	return w
}

// isFirst tells whether a job is about to be enqueued for the first time.
func (r *run) isFirst(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.enqueued[id]
	r.enqueued[id] = true
	return !before
}

func (r *run) forget(id string) {
	r.inbox.Forget(id)
	r.mu.Lock()
	delete(r.waiters, id)
	r.mu.Unlock()
}

// deliver passes the inbox's jobs to their waiters, until the dispatcher ends.
func (r *run) deliver() {
	for pause := 100 * time.Millisecond; ; {
		jobs, err := r.inbox.Next(r.d.ctx)
		if r.d.ctx.Err() != nil {
			return
		}
		if err != nil {
			r.d.fault(err)
			if !r.d.sleep(pause) {
				return
			}
			pause = min(2*pause, 5*time.Second)
			continue
		}
		pause = 100 * time.Millisecond
		r.mu.Lock()
		for i := range jobs {
			w := r.waiters[jobs[i].ID]
			if w == nil {
				continue
			}
			select { // only the latest state counts; this is the only sender
			case <-w.news:
			default:
			}
			w.news <- jobs[i]
		}
		r.mu.Unlock()
	}
}

// sleep returns false if the dispatcher ends meanwhile.
func (d *Dispatcher) sleep(pause time.Duration) bool {
	return backoff.Wait(d.ctx, pause) == nil
}

// unattended warns the user, once, if no worker takes jobs like this one. There is no list of workers: a worker is
// known by the jobs that it holds. All of a run's jobs that ask during a look share its answer.
func (r *run) unattended(j queue.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks := fmt.Sprint(j.Labels, j.Policy.Memory, j.Policy.Resources)
	if r.d.submit != nil || r.warned[asks] || r.isAttended(&j) {
		return
	}
	r.asking[asks] = j
	if !r.looking {
		r.looking = true
		r.d.begin(r.look)
	}
}

// lookPatience bounds a look for workers.
const lookPatience = time.Minute

// look finds the working workers, and warns of the asking jobs that none of them takes. If it fails, the jobs ask
// again.
func (r *run) look() {
	ctx, cancel := context.WithTimeout(r.d.ctx, lookPatience)
	defer cancel()
	working, err := r.d.q.AtWork(ctx, r.queue)
	var alone []queue.Job
	r.mu.Lock()
	r.looking = false
	if err == nil {
		for i := range working {
			if w := &working[i]; !w.Over {
				r.attended[strings.Join(w.Job.Labels, ",")] = r.d.o.Now() // saves a look for jobs that ask in the next seconds
			}
		}
		for _, asks := range slices.Sorted(maps.Keys(r.asking)) {
			if j := r.asking[asks]; !r.isAttended(&j) {
				r.warned[asks] = true
				alone = append(alone, j)
			}
		}
		clear(r.asking)
	}
	r.mu.Unlock()
	if err != nil {
		r.d.fault(fmt.Errorf("find running workers: %w", err))
	}
	for i := range alone {
		r.d.o.Unattended(&alone[i])
	}
}

// isAttended tells whether a worker recently held jobs with these labels. The caller holds the lock.
func (r *run) isAttended(j *queue.Job) bool {
	return r.d.o.Now().Sub(r.attended[strings.Join(j.Labels, ",")]) < attendance
}

// attends records that a worker has claimed a job.
func (r *run) attends(j *queue.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attended[strings.Join(j.Labels, ",")] = r.d.o.Now()
}

// tell reports changes of a job to its request.
func (w *waiter) tell(j *queue.Job) {
	if w.idle != nil {
		w.idle.Stop()
		switch {
		case j.Status == queue.Queued:
			w.idle.Reset(0)
		case j.Orphaned():
			w.idle.Reset(adoption)
		}
	}
	for i, a := range j.History() {
		switch {
		case i < w.reported: // already reported
		case a.Lost:
			w.lost(j, &a)
		default:
			w.attempt(j, &a)
		}
	}
	w.reported = len(j.Lost)
	if j.Declined() {
		w.run.declines(j)
	}
	if j.Status == queue.Queued {
		w.left(j.Updated.Time())
	}
}

// declines tells the user, once for each reason, that a job's worker could not execute it.
func (r *run) declines(j *queue.Job) {
	r.mu.Lock()
	told := r.declined[j.LastError]
	r.declined[j.LastError] = true
	r.mu.Unlock()
	if !told {
		r.d.o.Declined(j)
	}
}

// left reports the end of the execution that was claimed last and that the job does not name any more: its worker has
// given the job back before the command began, or the job has lost so many executions that it does not keep this one.
func (w *waiter) left(at time.Time) {
	before := w.claimed
	if before == "" {
		return
	}
	if end := w.recorded(before); end != nil {
		w.givenUp(before, end, time.Time{})
		return
	}
	w.claimed = ""
	if w.req.Released != nil {
		w.req.Released(before, at)
	}
}

// lost reports an attempt that was given up. The times and the reason come from the execution's record; the job says
// only that the attempt ended.
func (w *waiter) lost(j *queue.Job, a *queue.Attempt) {
	w.begun(j, a)
	end := w.recorded(a.Execution)
	if j.Outcome != nil && j.Outcome.ExecutionID == a.Execution { // the result tells of it
		return
	}
	if end == nil {
		end = &ending{reason: executions.ReasonLost, message: a.Message, at: a.At}
	}
	w.givenUp(a.Execution, end, j.AvailableAt.Time())
}

// ending is the end of an execution that another execution follows.
type ending struct {
	reason  executions.Reason
	message string
	at      time.Time
}

// recorded returns the recorded end of an execution, and reports its start; nil if no end is on record.
func (w *waiter) recorded(execution string) *ending {
	e, err := w.run.d.settler.Get(w.run.d.ctx, w.key, execution)
	if err != nil || e.State == record.Running {
		return nil
	}
	w.start(execution, e.Began())
	end := &ending{reason: executions.ReasonLost, message: e.Message, at: e.CompletedAt}
	if e.Detail != nil && e.Detail.Reason != "" {
		end.reason = executions.Reason(e.Detail.Reason)
	}
	return end
}

// givenUp reports that another attempt follows an execution.
func (w *waiter) givenUp(execution string, end *ending, again time.Time) {
	w.claimed = ""
	if w.req.Lost != nil {
		w.req.Lost(execution, end.reason, end.message, end.at, again)
	}
}

// attempt reports the present or last execution.
func (w *waiter) attempt(j *queue.Job, a *queue.Attempt) {
	w.begun(j, a)
	if j.Orphaned() && w.orphaned != j.Token {
		w.orphaned = j.Token
		if w.req.Orphaned != nil {
			w.req.Orphaned(a.Execution, j.Updated.Time())
		}
	}
}

// begun reports the workers that have taken an execution, and then its begin.
func (w *waiter) begun(j *queue.Job, a *queue.Attempt) {
	w.claim(j, a.Execution, a.Worker, a.Claimed)
	w.start(a.Execution, a.Started)
	if a.Adopter != "" && !a.Started.IsZero() && !a.Adopted.Equal(w.adopted) {
		w.adopted = a.Adopted
		if w.req.Adopted != nil {
			w.req.Adopted(a.Execution, a.Adopter, a.Adopted)
		}
	}
}

// start reports that the command of an execution has begun, if that is known.
func (w *waiter) start(execution string, at time.Time) {
	if at.IsZero() || w.started == execution {
		return
	}
	w.started = execution
	if w.req.Started != nil {
		w.req.Started(execution, at)
	}
}

func (w *waiter) claim(j *queue.Job, execution, worker string, at time.Time) {
	if w.claimed == execution {
		return
	}
	w.left(at)
	w.claimed = execution
	w.run.attends(j)
	if w.req.Claimed != nil {
		w.req.Claimed(execution, worker, at)
	}
}
