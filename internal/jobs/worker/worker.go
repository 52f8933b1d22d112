// Package worker executes the jobs of queues (doc/design.md, "More than one machine"). A worker claims what fits into its free cores,
// memory and resources, makes the execution that each claim names, and puts on record what came of it. It decides nothing else:
// which tasks run, and whether they are tried again, is their run's.
//
// All that a worker holds, it holds under one session, a lease. Commands run under a supervisor that outlives the worker for as long as the
// lease would have: a worker of the same host takes over what a dead one has left, and waits for it. Where the lease is lost,
// [Worker.Run] stops its commands and returns; a [Server] opens the repository anew and begins again.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
)

// Executor makes executions; it is *executions.Executor.
type Executor interface {
	Make(ctx context.Context, req *executions.Request, id string) (executions.Result, error)
	Adopt(ctx context.Context, req *executions.Request, id string, o *runner.Orphan) (executions.Result, error)
	Settle(ctx context.Context, key executions.Key, inputs []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error)
}

// Supervisor runs the commands of an Executor, and outlives this process.
type Supervisor interface {
	Adopt(ctx context.Context) ([]*runner.Orphan, error)
	Release(identity string)
}

// Session is the lease of this process.
type Session interface {
	Lost() <-chan struct{}
	Held() error
}

// Stores are what a worker works with.
type Stores struct {
	Queue      *queue.Queue
	Executor   Executor
	Supervisor Supervisor
	Session    Session
	Objects    objectstore.Store
	Sweep      func(ctx context.Context) error // removes what dead processes left
}

// Options say which jobs a worker takes, and how many at a time.
type Options struct {
	Queues      []string // whose jobs; at least one
	Labels      []string // that the worker has
	Concurrency int      // commands at a time, in cores
	Memory      int64    // bytes that demands may add up to; 0: no limit
	Capacities  map[string]float64
	Name        string // for people: "me@host"
	Host        string // this one, as others are told from it
	// Patience is how long a job whose worker was lost is left to others while its command may go on: elsewhere, or under another worker
	// of this host.
	Patience time.Duration
	For      time.Duration // after which nothing is claimed any more; 0: for ever
	Idle     time.Duration // the worker ends when it had nothing to do for so long, and nobody may have been lost whose job it could take; 0: it waits
	// Job is the one that the worker is for, in the first of Queues: it ends once that is settled, by whomever. What the job asks for is
	// taken as there.
	Job string

	Report  func(Event) // is told of what happens, by one goroutine at a time; nil: nobody is
	Metrics *Metrics    // nil: nobody asks
	Now     func() time.Time
	// Renew is after how long a worker that has nothing to do returns ErrRenew: its session protects from collections all that was stored
	// since it began. 0: never. With Idle it does so only within two seconds of a job's end, as who begins anew has not been idle yet.
	Renew time.Duration
	Sweep time.Duration // how often what dead processes have left is removed; 0: hourly
	Begun time.Duration // after which it is put on record that a command runs; 0: 300 ms
}

// ErrRenew says that the repository is to be opened anew, because the session is old.
var ErrRenew = errors.New("the session of the worker is old")

// ErrStopped is the cause with which the commands of a worker end that was told to stop at once.
var ErrStopped = errors.New("the worker was stopped")

// Worker executes jobs. Create it with [New], and call [Worker.Run] once.
type Worker struct {
	s       Stores
	o       Options
	labels  map[string]bool
	metrics *Metrics

	room    *capacity         // of the loop
	turn    turn              // of the loop
	running map[*holding]bool // of the loop
	orphans []*runner.Orphan  // were taken over, and their jobs are to be claimed; of the loop
	sought  map[string]bool   // orphaned jobs that were begun here, and whose commands were looked for here; of the loop
	looked  time.Time         // when that was last done; of the loop
	beside  bool              // another worker of this host goes on with commands of dead ones; of the loop
	glanced time.Time         // when there was last a look at what is orphaned while there was no room; of the loop
	faults  int               // of this machine or the stores, one after the other; of the loop
	paused  time.Time         // until when nothing is claimed because of faults; of the loop
	done    chan *holding
	reports sync.Mutex
}

// holding is a job that this worker works on.
type holding struct {
	lease *queue.Lease
	job   queue.Job
	fault bool // the attempt could not be made, for reasons that are not the command's
	// revoked says that the attempt was stopped by a scheduler, which tells the run why: it does not count.
	revoked bool
}

// New returns a worker. It does nothing yet.
func New(s Stores, o Options) *Worker {
	w := &Worker{
		s: s, o: o, labels: map[string]bool{}, metrics: o.Metrics, room: newCapacity(&o),
		running: map[*holding]bool{}, sought: map[string]bool{}, done: make(chan *holding),
	}
	for _, l := range o.Labels {
		w.labels[l] = true
	}
	if w.metrics == nil {
		w.metrics = NewMetrics()
	}
	if w.o.Now == nil {
		w.o.Now = time.Now
	}
	if w.o.Report == nil {
		w.o.Report = func(Event) {}
	}
	w.o.Sweep = cmp.Or(o.Sweep, time.Hour)
	w.o.Begun = cmp.Or(o.Begun, 300*time.Millisecond)
	depth := w.depths
	w.metrics.depth.Store(&depth)
	return w
}

// depths are how many jobs of the worker's queues wait.
func (w *Worker) depths(ctx context.Context) (map[string]int, error) {
	depths := map[string]int{}
	for _, name := range w.o.Queues {
		n, err := w.s.Queue.Depth(ctx, name)
		if err != nil {
			return nil, err
		}
		depths[name] = n
	}
	return depths, nil
}

// Run works until drain is closed, or until the options say that it is enough; then it claims nothing more, and returns once what runs has
// ended. A done ctx stops the commands: their jobs are given back. Where the lease is lost, commands are stopped, their jobs
// are left to others, and the error wraps [refstore.ErrLost].
func (w *Worker) Run(ctx context.Context, drain <-chan struct{}) error {
	// What is put on record goes on when ctx is done, so that jobs are given back.
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	jobs, stop := context.WithCancelCause(held)
	defer stop(nil)
	go func() {
		select {
		case <-ctx.Done():
			stop(ErrStopped)
		case <-jobs.Done():
		}
	}()
	go func() {
		select {
		case <-w.s.Session.Lost():
			lose(w.lost())
		case <-held.Done():
		}
	}()
	l := &loop{w: w, jobs: jobs, held: held, drain: drain}
	err := l.run()
	if errors.Is(err, refstore.ErrLost) {
		w.metrics.losses.Inc()
	}
	return err
}

// lost returns why the lease is not held any more, nil if it is.
func (w *Worker) lost() error {
	err := w.s.Session.Held()
	if err != nil && !errors.Is(err, refstore.ErrLost) {
		return fmt.Errorf("%w: %w", refstore.ErrLost, err)
	}
	return err
}

// worksOn tells whether a job is held. It may be so twice for a moment: one that was given back can be claimed again before the loop hears of that.
func (w *Worker) worksOn(name, id string) bool {
	for h := range w.running {
		if h.job.Queue == name && h.job.ID == id {
			return true
		}
	}
	return false
}

// has tells whether the worker has all labels that a job asks for.
func (w *Worker) has(labels []string) bool {
	for _, l := range labels {
		if !w.labels[l] {
			return false
		}
	}
	return true
}
