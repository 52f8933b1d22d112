package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/internal/format/moment"
	"e3/internal/format/notation"
	"e3/internal/host/runner"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/internal/repo"
	"e3/refstore"
)

type workerOptions struct {
	queues, labels []string
	limits         limitOptions
	grace, lease   time.Duration
	duration, idle time.Duration
	metrics, job   string
}

func newWorker(a *app) *cobra.Command {
	var o workerOptions
	cmd := &cobra.Command{
		Use:   "worker [repo]",
		Short: "Execute the tasks of runs that ask for workers",
		Long: `Execute the tasks of "e3 start --workers", from this machine or others, until stopped. A worker needs access to the repository,
the programs that tasks call, and the variables that they are passed (pass_env, secrets). It passes its own variables, not
those of the process that started the run; a task fails if one of its secrets is missing. Every user with write access to the
repository can make a worker run any command.

Ctrl-C, or TERM, ends the worker once its tasks have ended. A second one stops the tasks too, and another worker runs them
again. If a worker is killed, or cannot reach the repository, its commands go on (on_lost of a task). A new worker on the same
machine continues them, within a day, unless a worker of another machine has begun them again.

A worker runs as many tasks at a time as fit into its cores, its memory and its resources (cpu, memory and resources of a
task). A task with more cpu than the worker has gets all cores. Tasks that need more memory, more of a resource, or labels
that this worker lacks are left to other workers.`,
		Example: `  e3 worker .
  e3 worker . --queue gpu --labels a100 --resource gpu=2
  e3 worker . --idle 10m --for 8h`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args)
			if err != nil {
				return err
			}
			options, err := o.parse()
			if err != nil {
				return err
			}
			return runWorker(cmd.Context(), a, location, options, &o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.queues, "queue", nil, "take the tasks of this queue (repeatable, or with commas; default: "+queue.DefaultQueue+")")
	f.StringSliceVar(&o.labels, "labels", nil, "labels of this worker, for tasks that need them: gpu,avx512")
	o.limits.flags(f)
	f.DurationVar(&o.grace, "grace", 5*time.Second, "between TERM and KILL when a command is stopped")
	f.DurationVar(&o.lease, "lease", 0, "silence after which other workers take over its tasks (default: the lease of the location, or 15s)")
	f.DurationVar(&o.duration, "for", 0, "take no more tasks after this time, as 8h, and exit")
	f.DurationVar(&o.idle, "idle", 0, "exit after this long without work, as 10m")
	f.StringVar(&o.metrics, "metrics-addr", "", "serve /metrics and /healthz at this port of this machine, or at host:port")
	f.StringVar(&o.job, "job", "", "execute this job, <queue>/<id>, and exit")
	_ = f.MarkHidden("job") // it exists
	fromEnvironment(f, "queue", "labels", "grace", "lease", "metrics-addr")
	completeQueues(a, cmd, "queue")
	return a.answers(cmd, lines{worker.Line{}})
}

// parse turns the flags into what they mean.
func (o *workerOptions) parse() (repo.WorkerOptions, error) {
	l, err := o.limits.parse()
	w := repo.WorkerOptions{Grace: o.grace, Options: worker.Options{
		Queues: o.queues, Labels: o.labels, Concurrency: l.concurrency, Memory: l.memory, Capacities: l.capacities,
		For: o.duration, Idle: o.idle,
	}}
	if err != nil {
		return w, err
	}
	for name, d := range map[string]time.Duration{"grace": o.grace, "for": o.duration, "idle": o.idle, "lease": o.lease} {
		if d < 0 {
			return w, usagef("--%s must not be negative", name)
		}
	}
	if o.lease != 0 && (o.lease < repo.MinLease || o.lease > repo.MaxLease) {
		return w, usagef("--lease is a time from %v to %v", repo.MinLease, repo.MaxLease)
	}
	if o.job != "" {
		if len(o.queues) > 0 {
			return w, usagef("--job and --queue exclude each other: the job names its queue")
		}
		name, id, err := queue.ParseRef(o.job)
		if err != nil {
			return w, usagef("--job: %v", err)
		}
		w.Queues, w.Job = []string{name}, id
	}
	if len(w.Queues) == 0 {
		w.Queues = []string{queue.DefaultQueue}
	}
	for _, name := range w.Queues {
		if err := queue.ValidName(name); err != nil {
			return w, usagef("--queue: %v", err)
		}
	}
	for _, label := range w.Labels {
		if !notation.ValidName(label) { // no task could ask for it
			return w, usagef("--labels: %q is not a label: a letter, digit or '_', then letters, digits, '_' and '-', at most 64", label)
		}
	}
	return w, nil
}

// runWorker works until it is told to stop.
func runWorker(ctx context.Context, a *app, location string, o repo.WorkerOptions, flags *workerOptions) error {
	o.Metrics = worker.NewMetrics()
	if flags.metrics != "" {
		s, err := worker.ServeMetrics(context.WithoutCancel(ctx), o.Metrics, flags.metrics)
		if err != nil {
			return usagef("--metrics-addr: %w", err)
		}
		defer s.Close()
		workerSays(a, worker.Line{Type: worker.Serving, Address: s.Addr}, "Metrics at http://"+s.Addr+"/metrics")
	}
	o.Report = func(e worker.Event) { workerSays(a, worker.LineOf(&e), workerText(&e)) }
	o.Renew, o.Now = renewSession, a.Now
	server := &worker.Server{
		Once: func(ctx context.Context, drain <-chan struct{}, w worker.Options, begun func()) error {
			once := o // of which only the time that is left differs
			once.Options = w
			return workOnce(ctx, a, drain, location, once, flags.lease, begun)
		},
		Ready: func() { workerReady(a, &o) },
		Lost: func(err error) {
			workerSays(a, worker.Line{Type: worker.Lost, Message: err.Error()}, human.Line(err.Error())+"; trying again")
		},
		Signals: ending(), OneSignal: oneSignal,
	}
	err := server.Serve(ctx, o.Options)
	switch {
	case errors.Is(err, worker.ErrStopped):
		return errInterrupted
	case errors.Is(err, worker.ErrUnanswered):
		a.Warnf("%v", err)
		return nil
	}
	return err
}

// workOnce opens the repository and works for as long as the lease is held.
func workOnce(ctx context.Context, a *app, drain <-chan struct{}, location string, o repo.WorkerOptions, lease time.Duration, begun func()) error {
	r, err := a.openFor(ctx, location, repo.Options{Lease: lease, Outlast: outlast})
	if err != nil {
		return err
	}
	defer r.Close()
	defer r.OnSuspension(func(s refstore.Suspension) {
		l := worker.Line{Type: worker.Stalled, Took: moment.Millis(s.For)}
		if s.Over {
			l.Type = worker.Resumed
		} else if s.Err != nil {
			l.Message = s.Err.Error()
		}
		workerSays(a, l, suspensionText(s))
	})()
	if err := r.BeginSession(ctx); err != nil {
		return fmt.Errorf("work here: %w", err)
	}
	if err := r.Sweep(ctx); err != nil {
		return fmt.Errorf("clean up after dead processes: %w", err)
	}
	o.Prepared = a.tellPreparation
	w, err := r.Worker(o)
	if err != nil {
		return err
	}
	sayUntrusted(ctx, a, r, "what this worker makes answers no later start")
	begun()
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4)) // the cores are the commands'
	runner.Prompt()
	return w.Run(ctx, drain)
}

// workerSays says something to a program, or to the person.
func workerSays(a *app, l worker.Line, text string) {
	if !a.JSON {
		a.Notef("%s", text)
		return
	}
	if l.Time.IsZero() {
		l.Time = moment.At(a.Now())
	}
	if err := a.Document(l, false); err != nil {
		a.Notef("e3: %s", human.Line(err.Error()))
	}
}

// renewSession is after how long a worker that has nothing to do begins a new session.
const renewSession = time.Hour

// workerReady says that a worker waits for tasks.
func workerReady(a *app, o *repo.WorkerOptions) {
	queues := "queue"
	if len(o.Queues) != 1 {
		queues = "queues"
	}
	text := fmt.Sprintf("Waiting for tasks of %s %s, %s", queues, strings.Join(o.Queues, ", "), human.Count(o.Concurrency, "core"))
	if len(o.Labels) > 0 {
		text += ", " + human.Line(strings.Join(o.Labels, ", "))
	}
	workerSays(a, worker.Line{Type: worker.Ready, Queues: o.Queues, Labels: o.Labels, Cores: o.Concurrency}, text)
}

// workerText is the line for a person.
func workerText(e *worker.Event) string {
	name := ""
	if j := &e.Job; j.ID != "" {
		name = human.Line(j.Workspace+"."+j.Task) + "  "
	}
	message := human.Line(e.Message)
	switch e.Type {
	case worker.JobBegun:
		return name + "begun" + ofClaim(&e.Job)
	case worker.JobAdopted:
		return name + "goes on here; it was begun by " + message
	case worker.JobEnded:
		return name + endedText(e)
	case worker.JobGiven:
		return name + "given back: " + message
	case worker.JobLost:
		return name + "lost: " + message
	case worker.Draining:
		if e.Running == 0 {
			return "Ending"
		}
		return fmt.Sprintf("Taking nothing more; waiting for %s. Again to stop now", human.Count(e.Running, "task"))
	}
	return "warning: " + name + message
}

// ofClaim says how often a job was begun before, if it was.
func ofClaim(j *queue.Job) string {
	if j.Attempts > 1 {
		return fmt.Sprintf(", for the %s time", ordinal(j.Attempts))
	}
	return ""
}

func ordinal(n int64) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

func endedText(e *worker.Event) string {
	res := &e.Result
	switch {
	case e.Succeeded():
		return "succeeded in " + human.Duration(res.Duration)
	case e.Cancelled:
		return "cancelled"
	case e.Suspended():
		return "suspended itself after " + human.Duration(res.Duration) + "; waits for approval"
	case res.Message != "":
		return "failed: " + human.Line(res.Message)
	}
	return fmt.Sprintf("failed with exit code %d after %s", res.ExitCode, human.Duration(res.Duration))
}
