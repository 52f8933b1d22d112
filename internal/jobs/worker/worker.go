// Package worker executes the jobs of queues (doc/design.md, "More than one machine"). A worker claims jobs that fit
// into its free cores, memory and resources, makes the execution that each claim names, and records the outcome. It
// decides nothing else: the run decides which tasks run, and whether they are retried.
//
// A worker holds everything under one session, a lease. Commands run under a supervisor that outlives the worker: a
// worker of the same host adopts a dead worker's commands. If the lease is lost, [Worker.Run] leaves its commands to
// the supervisor and returns; a [Server] opens the repository anew, and its next worker adopts them.
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

// Executor makes executions; *executions.Executor implements it.
type Executor interface {
	Make(ctx context.Context, req *executions.Request, id string) (executions.Result, error)
	Adopt(ctx context.Context, req *executions.Request, id string, o *runner.Orphan) (executions.Result, error)
	Settle(ctx context.Context, key executions.Key, inputs []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error)
	Get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error)
}

// Supervisor runs the commands of an Executor, and outlives this process.
type Supervisor interface {
	Adopt(ctx context.Context, lost ...string) ([]*runner.Orphan, error)
	Release(identity string)
	// Leave leaves all commands to be adopted.
	Leave() error
}

// Session is the lease of this process.
type Session interface {
	Lost() <-chan struct{}
	Held() error
	// Outlast sets how long the lease may be suspended, so that a store that does not answer does not end it.
	Outlast(most time.Duration)
}

// Stores are the stores and services that a worker uses.
type Stores struct {
	Queue      *queue.Queue
	Executor   Executor
	Supervisor Supervisor
	Session    Session
	Objects    objectstore.Store
	Sweep      func(ctx context.Context) error // removes leftovers of dead processes
	// Told is called when the execution of a job has ended whose run may have been closed meanwhile: it took long enough, or
	// a person has queued the job again. nil: nothing is told.
	Told func(ctx context.Context, j *queue.Job) error
}

// Options say which jobs a worker takes, and how many at a time.
type Options struct {
	Queues      []string // whose jobs; at least one
	Labels      []string // of the worker
	Concurrency int      // commands at a time, in cores
	Memory      int64    // bound in bytes for the sum of demands; 0: none
	Capacities  map[string]float64
	Name        string // for display: "me@host"
	Host        string // of this machine
	// Patience is how long a lost worker's job is left to other workers that may continue its command: elsewhere, or
	// under another worker of this host.
	Patience time.Duration
	For      time.Duration // stop claiming after this long; 0: never
	Idle     time.Duration // exit after this long without work, once every other session is known to be alive; 0: never
	// Job is the worker's only job, in the first of Queues: the worker ends once the job is settled, by any process.
	// The job's demands are assumed to be met.
	Job string

	Report  func(Event) // receives events, one at a time; nil: they are dropped
	Metrics *Metrics    // nil: not kept
	Now     func() time.Time
	// Renew is the age at which an idle worker's session is renewed: Run returns ErrRenew. A session protects
	// everything that was stored since it began from collection, so it should not grow old. 0: never. With Idle, Run
	// does so only within two seconds of a job's end, because a new session restarts the idle time.
	Renew time.Duration
	Sweep time.Duration // interval of removing leftovers of dead processes; 0: hourly
	Begun time.Duration // a command that has run this long is recorded as running; 0: 300 ms
}

// ErrRenew says that the session is old, and the repository must be opened anew.
var ErrRenew = errors.New("the session of the worker is old")

// ErrStopped is the cause of the end of commands of a worker that was told to stop at once.
var ErrStopped = errors.New("the worker was stopped")

// Worker executes jobs. Create it with [New], and call [Worker.Run] once.
type Worker struct {
	s       Stores
	o       Options
	labels  map[string]bool
	metrics *Metrics

	room    *capacity            // of the loop
	turn    turn                 // of the loop
	running map[*holding]bool    // of the loop
	foreign map[string]time.Time // jobs that need what this machine lacks, and when that was found; of the loop
	orphans []*runner.Orphan     // adopted commands whose jobs must still be claimed; of the loop
	sought  map[string]bool      // lost jobs begun on this host whose commands were searched for; of the loop
	looked  time.Time            // time of the last search; of the loop
	beside  bool                 // another worker of this host adopts dead workers' commands; of the loop
	polled  time.Time            // last look at orphans without room for jobs; of the loop
	faults  int                  // consecutive faults of this machine or the stores; of the loop
	paused  time.Time            // no claims before this time, because of faults; of the loop
	done    chan *holding
	reports sync.Mutex

	dropped   chan struct{} // signals that a command was stopped which no job needs any more
	withdrawn []*withdrawn  // commands whose jobs were withdrawn, for jobs that ask for the same; of the loop
}

// holding is a job that this worker holds.
type holding struct {
	lease *queue.Lease
	job   queue.Job
	fault bool // a fault other than the command's prevented the attempt
	// foreign says that this machine lacks what the job needs.
	foreign bool
	// revoked says that a scheduler stopped the attempt and tells the run why, so it does not count.
	revoked bool
}

// New returns a worker that has not begun.
func New(s Stores, o Options) *Worker {
	w := &Worker{
		s: s, o: o, labels: map[string]bool{}, metrics: o.Metrics, room: newCapacity(&o),
		running: map[*holding]bool{}, foreign: map[string]time.Time{}, sought: map[string]bool{}, done: make(chan *holding), dropped: make(chan struct{}, 1),
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

// depths returns the number of waiting jobs in each of the worker's queues.
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

// Run works until drain is closed, or the options end it. It then stops claiming, and returns once the running jobs
// have ended. When ctx is done, it stops the commands and gives their jobs back. If the lease is lost, the commands are
// left for adoption, and the error wraps [refstore.ErrLost].
func (w *Worker) Run(ctx context.Context, drain <-chan struct{}) error {
	// Writes continue when ctx is done, so that jobs are given back.
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	jobs, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	go func() {
		select {
		case <-ctx.Done():
			w.s.Session.Outlast(0) // a stopped worker does not wait for a store that does not answer
			stop(&executions.StopError{Err: w.stopped()})
		case <-jobs.Done():
		}
	}()
	go func() {
		select {
		case <-w.s.Session.Lost():
			if err := w.s.Supervisor.Leave(); err != nil { // before the jobs end, which stops commands
				w.report(Event{Type: Fault, Message: "leave commands to be adopted: " + err.Error()})
			}
			lose(w.lost())
			stop(w.lost())
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

// stopped says that this worker was stopped.
func (w *Worker) stopped() error {
	if w.o.Job != "" {
		return stopped{w.o.Name + " was stopped by the cluster's scheduler"}
	}
	return stopped{w.o.Name + " was stopped"}
}

// stopped is ErrStopped with the name of the worker.
type stopped struct{ text string }

func (s stopped) Error() string { return s.text }

// Is implements the interface of errors.Is.
func (s stopped) Is(target error) bool { return target == ErrStopped }

// lost returns why the lease is no longer held; nil if it is held or suspended.
func (w *Worker) lost() error {
	err := w.s.Session.Held()
	if errors.Is(err, refstore.ErrSuspended) {
		return nil
	}
	if err != nil && !errors.Is(err, refstore.ErrLost) {
		return fmt.Errorf("%w: %w", refstore.ErrLost, err)
	}
	return err
}

// worksOn tells whether a job is held. It may briefly be held twice: a job can be claimed again before the loop learns
// that it was given back.
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
