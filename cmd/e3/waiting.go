package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/internal/repo"
)

// mostWaits is how many waits a start says something about.
const mostWaits = 8

// A waitWatch says what a start waits for, while other processes execute its tasks. If the worker of such a task has
// died, and the start executes tasks itself, it begins a worker for this job alone on the machine that has the command:
// the command goes on, or its end is taken. Its methods are safe for concurrent use.
type waitWatch struct {
	a        *app
	r        *repo.Repo
	location string // as the person types it
	grace    time.Duration
	adopts   bool
	here     func(*queue.Job) bool // Repo.TakesOver

	mu      sync.Mutex
	waiting int
	closed  bool
	workers sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context // of the workers
}

func newWaitWatch(a *app, r *repo.Repo, location string, grace time.Duration, adopts bool) *waitWatch {
	w := &waitWatch{a: a, r: r, location: location, grace: grace, adopts: adopts, here: r.TakesOver}
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
	w.mu.Lock()
	w.waiting++
	n := w.waiting
	w.mu.Unlock()
	say := func(format string, args ...any) {
		switch {
		case n < mostWaits:
			w.a.Notef("%s: %s", human.Line(req.Name), fmt.Sprintf(format, args...))
		case n == mostWaits:
			w.a.Notef("More tasks wait for other processes")
		}
	}
	name, id, err := queue.ParseRef(what.Job)
	if what.Job == "" || err != nil {
		maker := ""
		if n < mostWaits { // otherwise it is not said, and not read
			maker = w.maker(ctx, what.Key)
		}
		say("%s; waiting for its result", maker)
		return
	}
	said := ""
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, 15*time.Second) {
		work, err := w.r.Queue().AtJob(ctx, name, id)
		if err == nil && work.Job.Status == queue.Running {
			if text := w.text(&work); text != said {
				said = text
				say("%s", text)
			}
			if work.Over && w.mayAdopt(&work.Job) {
				w.adopt(what.Job)
				return
			}
		}
		if backoff.Wait(ctx, pause) != nil {
			return
		}
	}
}

func (w *waitWatch) mayAdopt(j *queue.Job) bool {
	return w.adopts && w.here(j)
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
	return "another process has claimed it, perhaps for a worker that is still to come (e3 queue)"
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

// adopt has a worker go on with a job.
func (w *waitWatch) adopt(ref string) {
	cmd, said, err := jobWorker(w.ctx, w.r, ref, "--grace", w.grace.String())
	if err != nil {
		w.a.Warnf("go on with job %s: %v", ref, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.workers.Go(func() {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = w.grace + 10*time.Second
		if err := cmd.Run(); err != nil && w.ctx.Err() == nil {
			w.a.Warnf("the worker that goes on with job %s: %v: %s", ref, err, human.Line(said.String()))
		}
	})
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
