package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/internal/repo"
)

// mostWaits is how many waits a start says something about.
const mostWaits = 8

// waitTold is how long a wait lasts before it is told, and before the first look at the queues.
const waitTold = time.Second

// A waitWatch looks after what a start waits for, while other processes execute its tasks, and says it. If the start
// executes tasks itself, it begins a worker for one job where the work would otherwise lie: for a job of another run that
// no worker has taken, and for one whose worker has died on the machine that has the command. The job stays the record
// of who does the work, so that is done once, and both runs have the result. Its methods are safe for concurrent use.
type waitWatch struct {
	a        *app
	r        *repo.Repo
	location string // as the person types it
	grace    time.Duration
	executes bool                  // this start executes tasks itself, and its results reach the repository
	here     func(*queue.Job) bool // Repo.TakesOver

	jobs queuedJobs

	mu      sync.Mutex
	waiting int
	closed  bool
	took    map[string]bool // jobs for which a worker was begun, by Ref
	workers sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context // of the workers
}

func newWaitWatch(a *app, r *repo.Repo, location string, grace time.Duration, executes bool) *waitWatch {
	w := &waitWatch{a: a, r: r, location: location, grace: grace, executes: executes, here: r.TakesOver, took: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// close stops the workers. Jobs that they had not finished are given back.
func (w *waitWatch) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.workers.Wait()
	return nil
}

// waits is executions.Options.Waiting: it looks after a wait until ctx is done.
func (w *waitWatch) waits(ctx context.Context, req *executions.Request, what executions.Wait) {
	began := time.Now()
	if !w.tookAny() && backoff.Wait(ctx, waitTold) != nil {
		return
	}
	n, said := 0, ""
	say := func(text string) {
		if text == said {
			return
		}
		if n == 0 {
			w.mu.Lock()
			w.waiting++
			n = w.waiting
			w.mu.Unlock()
		}
		switch said = text; {
		case n < mostWaits:
			w.a.Notef("%s: %s", human.Line(req.Name), text)
		case n == mostWaits:
			w.a.Notef("More tasks wait for other processes")
		}
	}
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 15*time.Second) {
		work, err := w.job(ctx, what)
		switch {
		case err != nil: // told where the request itself meets it
		case work == nil && said == "" && time.Since(began) >= waitTold:
			say(w.maker(ctx, what.Key) + "; waiting for its result")
		case work == nil:
		case work.Job.Status == queue.Running:
			say(w.text(work))
			if work.Over && w.mayAdopt(&work.Job) {
				w.work(ctx, req, work.Job.Ref())
			}
		case work.Job.Status == queue.Queued:
			lacks := w.lacks(ctx, req, &work.Job)
			say(w.queuedText(&work.Job, lacks))
			if lacks == "" {
				w.work(ctx, req, work.Job.Ref())
			}
		}
		if backoff.Wait(ctx, pause) != nil {
			return
		}
	}
}

// job is the job for which a request waits; nil if there is none.
func (w *waitWatch) job(ctx context.Context, what executions.Wait) (*queue.Work, error) {
	ref := what.Job
	if ref == "" {
		var err error
		if ref, err = w.jobs.of(ctx, w.r.Queue().Unfinished, what.Key); ref == "" {
			return nil, err
		}
	}
	name, id, err := queue.ParseRef(ref)
	if err != nil {
		return nil, err
	}
	work, err := w.r.Queue().AtJob(ctx, name, id)
	if err != nil {
		return nil, err
	}
	return &work, nil
}

// queuedJobs are the unfinished jobs of the queues by the key of what they make, as they were listed.
type queuedJobs struct {
	mu     sync.Mutex
	byKey  map[executions.Key]string // Job.Ref
	listed time.Time
	took   time.Duration
}

// of returns the job that makes a key, "" if there is none. However many requests wait, the queues are listed once a
// second, and no more than a tenth of the time.
func (q *queuedJobs) of(ctx context.Context, list func(context.Context) iter.Seq2[queue.Job, error], key executions.Key) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if began := time.Now(); q.byKey == nil || began.Sub(q.listed) > max(waitTold, 10*q.took) {
		byKey := map[executions.Key]string{}
		for j, err := range list(ctx) {
			if errors.Is(err, queue.ErrMalformed) {
				continue // workers on the queue report it
			}
			if err != nil {
				return "", err
			}
			req, err := dispatch.Request(&j)
			if err != nil || j.Force || j.Status.Terminal() {
				continue // a request that waits for the claim of a key does not wait for a forced job
			}
			byKey[executions.NewKey(req.Task, req.Inputs)] = j.Ref()
		}
		q.byKey, q.listed, q.took = byKey, time.Now(), time.Since(began)
	}
	return q.byKey[key], nil
}

func (w *waitWatch) mayAdopt(j *queue.Job) bool {
	return w.executes && w.here(j)
}

// lacks says why this start does not execute a queued job itself; "" if it does. A secret that this process does not have
// would fail the other run's task.
func (w *waitWatch) lacks(ctx context.Context, req *executions.Request, j *queue.Job) string {
	w.mu.Lock()
	took := w.took[j.Ref()]
	w.mu.Unlock()
	switch {
	case took && j.LastError != "":
		return "it was given back here: " + j.LastError
	case took:
		return ""
	case !w.executes:
		return "this start executes nothing itself"
	case j.AvailableAt.Time().After(w.a.Now()):
		return "its next attempt is due at " + human.Stamp(j.AvailableAt.Time())
	}
	task, err := req.Load(ctx)
	if err != nil {
		return err.Error()
	}
	for _, name := range task.Passed.Secrets {
		if _, set := os.LookupEnv(name); !set {
			return "the secret " + name + " is not set here"
		}
	}
	return ""
}

// queuedText says what a start does about a queued job, or what a person can do.
func (w *waitWatch) queuedText(j *queue.Job, lacks string) string {
	name := human.Line(jobName(j))
	if lacks == "" {
		return fmt.Sprintf("no worker has taken the job of %s; executing it here", name)
	}
	return fmt.Sprintf("the job of %s waits in queue %s for a worker, and %s; start one with: %s; or withdraw the job with: e3 queue cancel %s %s",
		name, j.Queue, human.Line(lacks), workerCommand(w.location, j), human.Quoted(w.location), human.Quoted(j.FullTask()))
}

// maker says what executes a key, as far as that is on record.
func (w *waitWatch) maker(ctx context.Context, key executions.Key) string {
	for e, err := range w.r.Executions.List(ctx, key) {
		if err != nil || e.State != record.Running || e.Detail == nil {
			continue
		}
		words := human.Line(e.Detail.Worker) + " executes it"
		if e.PID > 0 {
			words += fmt.Sprintf(", in process %d", e.PID)
		}
		return words + ", since " + human.Stamp(e.StartedAt)
	}
	return "another process has claimed it"
}

// text says who executes a job.
func (w *waitWatch) text(work *queue.Work) string {
	j := &work.Job
	worker := human.Line(human.Worker(cmp.Or(j.Worker, j.Maker)))
	switch {
	case !work.Over:
		since := human.Stamp(cmp.Or(j.Started, j.Claimed).Time())
		return fmt.Sprintf("%s executes it, since %s; waiting for its result", worker, since)
	case w.mayAdopt(j):
		return "its worker " + worker + " has died; going on with its command"
	default:
		return fmt.Sprintf("its worker %s has died; a worker on that machine would go on with its command: e3 worker %s "+
			"(without one it runs again in a minute)",
			worker, human.Quoted(w.location))
	}
}

// work has a worker execute a job, or go on with its command, once there are cores for it. It returns at once, and does
// this once for each job.
func (w *waitWatch) work(ctx context.Context, req *executions.Request, ref string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.took[ref] {
		return
	}
	w.took[ref] = true
	w.workers.Go(func() {
		if req.Admit != nil {
			release, err := req.Admit(ctx)
			if err != nil { // the run is ending
				return
			}
			defer release(false)
		}
		if ctx.Err() != nil { // the wait is over: another worker was faster
			return
		}
		cmd, said, err := jobWorker(w.ctx, w.r, ref, "--grace", w.grace.String())
		if err == nil {
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			cmd.WaitDelay = w.grace + 10*time.Second
			err = cmd.Run()
		}
		if err != nil && w.ctx.Err() == nil {
			w.a.Warnf("the worker for job %s: %v: %s", ref, err, human.Line(said.String()))
		}
	})
}

func (w *waitWatch) tookAny() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.took) > 0
}

// jobWorker is a worker for one job, which takes its command over if the job's worker has died here, and what it says.
func jobWorker(ctx context.Context, r *repo.Repo, ref string, args ...string) (*exec.Cmd, *bytes.Buffer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find the program of the worker: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{"worker", r.Location, "--job", ref}, args...)...)
	cmd.Args[0], cmd.Env, cmd.Stderr = os.Args[0], workerEnv(), &said
	return cmd, &said, nil
}

// takeOver is repo.Options.TakeOver. The worker may have taken other commands over as well. It is killed at last, which
// leaves these to the next worker, as the death of their own one has.
func (a *app) takeOver(ctx context.Context, r *repo.Repo, j *queue.Job) {
	a.takingOver.Lock()
	defer a.takingOver.Unlock()
	lost := func() bool {
		now, err := r.Queue().Job(ctx, j.Queue, j.ID)
		return err != nil && !queue.Unchangeable(err) || err == nil && now.Status == queue.Running && now.Execution == j.Execution
	}
	if !lost() {
		return
	}
	cmd, said, err := jobWorker(ctx, r, j.Ref())
	if err == nil {
		err = worker.RunWhile(cmd, func() bool { return ctx.Err() == nil && lost() })
	}
	if err != nil {
		a.Warnf("the worker that was to end the command of job %s: %v: %s", j.Ref(), err, human.Line(said.String()))
	}
}
