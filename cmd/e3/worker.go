package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
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
			location, _, err := a.positional(cmd, args, 0)
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
	return cmd
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
	drain, ctx, end := watchSignals(ctx, o.Job != "")
	defer end()
	told := drain
	if o.Job != "" {
		drain = nil // the first signal stops it, and that is how it is to end
	}
	o.Metrics = worker.NewMetrics()
	if flags.metrics != "" {
		s, err := worker.ServeMetrics(ctx, o.Metrics, flags.metrics)
		if err != nil {
			return usagef("--metrics-addr: %w", err)
		}
		defer s.Close()
		workerSays(a, workerJSON{Type: "worker.metrics", Address: s.Addr}, "Metrics at http://"+s.Addr+"/metrics")
	}
	o.Report = func(e worker.Event) { workerEvent(a, e) }
	o.Renew, o.Now = renewSession, a.Now
	server := &worker.Server{
		Once: func(ctx context.Context, drain <-chan struct{}, w worker.Options, begun func()) error {
			once := o // of which only the time that is left differs
			once.Options = w
			return workOnce(ctx, a, drain, location, once, flags.lease, begun)
		},
		Ready: func() { workerReady(a, &o) },
		Lost: func(err error) {
			workerSays(a, workerJSON{Type: "worker.lost", Message: err.Error()}, human.Line(err.Error())+"; trying again")
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, drain, o.Options) }()
	select {
	case err := <-ended:
		if errors.Is(err, worker.ErrStopped) {
			return errInterrupted
		}
		return err
	case <-idleSince(told, o.Metrics.Running):
		a.Warnf("ending without an answer from the repository")
		return nil
	}
}

// idleEnd is how long a worker has to end once it was told to and has no job. Then it ends as if it were killed, whatever it
// waits for: a store that does not answer, or a file system.
const idleEnd = 5 * time.Second

// idleSince is closed when, after told, nothing has run for idleEnd.
func idleSince(told <-chan struct{}, running func() int64) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		<-told
		for last := time.Now(); time.Since(last) < idleEnd; time.Sleep(idleEnd / 50) {
			if running() > 0 {
				last = time.Now()
			}
		}
		close(over)
	}()
	return over
}

// workOnce opens the repository and works for as long as the lease is held.
func workOnce(ctx context.Context, a *app, drain <-chan struct{}, location string, o repo.WorkerOptions, lease time.Duration, begun func()) error {
	r, err := a.openFor(ctx, location, repo.Options{Lease: lease, Outlast: outlast})
	if err != nil {
		return err
	}
	defer r.Close()
	defer r.OnSuspension(func(s refstore.Suspension) {
		doc := workerJSON{Type: "worker.stalled", Duration: s.For.Milliseconds()}
		if s.Over {
			doc.Type = "worker.resumed"
		} else if s.Err != nil {
			doc.Message = s.Err.Error()
		}
		workerSays(a, doc, suspensionText(s))
	})()
	if err := r.BeginSession(ctx); err != nil {
		return fmt.Errorf("work here: %w", err)
	}
	if err := r.Sweep(ctx); err != nil {
		return fmt.Errorf("clean up after dead processes: %w", err)
	}
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

// watchSignals tells of the first signal by closing drain, and of the second by ending the context; with atOnce of the
// first, too. A third kills this process. Signals right after the first count as that one.
func watchSignals(ctx context.Context, atOnce bool) (drain <-chan struct{}, stop context.Context, end func()) {
	ended := make(chan struct{})
	drained := make(chan struct{})
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, ending()...)
	go func() {
		defer signal.Stop(signals)
		n, done := 0, ctx.Done()
		var first time.Time
		if ctx.Err() != nil {
			n, first = 1, time.Now()
		}
		for told := false; ; {
			if n > 0 && !told {
				told = true
				close(drained)
			}
			if n > 1 || n > 0 && atOnce {
				cancel(errInterrupted)
				return
			}
			select {
			case <-signals:
				if n == 0 {
					first = time.Now()
				} else if time.Since(first) < oneSignal {
					continue
				}
				n++
			case <-done:
				done = nil
				if !errors.Is(context.Cause(ctx), errInterrupted) { // else it was the same signal
					n++
				}
			case <-ended:
				return
			}
		}
	}()
	return drained, stop, func() {
		close(ended)
		cancel(nil)
	}
}

// workerJSON is what a worker tells programs, a line each.
type workerJSON struct {
	Type    string   `json:"type"`
	Time    *string  `json:"time"`
	Queues  []string `json:"queues,omitempty"`
	Labels  []string `json:"labels,omitempty"`
	Cores   int      `json:"cores,omitempty"`
	Address string   `json:"address,omitempty"`
	Running int      `json:"running,omitempty"`
	Message string   `json:"message,omitempty"`

	Job       string  `json:"job,omitempty"`
	Run       string  `json:"run,omitempty"`
	Workspace string  `json:"workspace,omitempty"`
	Task      string  `json:"task,omitempty"`
	Step      string  `json:"step,omitempty"`
	Attempt   int64   `json:"attempt,omitempty"` // of the command in its run
	Claim     int64   `json:"claim,omitempty"`   // of the job: greater than 1 where workers were lost
	Execution string  `json:"execution,omitempty"`
	State     string  `json:"state,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	ExitCode  int64   `json:"exitCode,omitempty"`
	Duration  int64   `json:"ms,omitempty"`
	Again     *string `json:"again,omitempty"`
}

// workerSays says something to a program, or to the person.
func workerSays(a *app, doc workerJSON, text string) {
	if !a.JSON {
		a.Notef("%s", text)
		return
	}
	if doc.Time == nil {
		doc.Time = render.JSONTime(a.Now())
	}
	if err := a.Document(doc, false); err != nil {
		a.Notef("e3: %s", human.Line(err.Error()))
	}
}

// renewSession is after how long a worker that has nothing to do begins a new session.
const renewSession = time.Hour

// workerReady says that a worker waits for tasks.
func workerReady(a *app, o *repo.WorkerOptions) {
	text := fmt.Sprintf("Waiting for tasks of %s %s, %s", map[bool]string{true: "queue", false: "queues"}[len(o.Queues) == 1], strings.Join(o.Queues, ", "), human.Count(o.Concurrency, "core"))
	if len(o.Labels) > 0 {
		text += ", " + human.Line(strings.Join(o.Labels, ", "))
	}
	workerSays(a, workerJSON{Type: "worker.ready", Queues: o.Queues, Labels: o.Labels, Cores: o.Concurrency}, text)
}

func workerEvent(a *app, e worker.Event) {
	doc := workerJSON{Type: string(e.Type), Time: render.JSONTime(e.Time), Message: e.Message, Running: e.Running, Again: render.JSONTime(e.Again)}
	switch e.Type {
	case worker.Draining:
		doc.Type = "worker.draining"
	case worker.Fault:
		doc.Type = "worker.fault"
	}
	if j := &e.Job; j.ID != "" {
		doc.Job, doc.Run, doc.Workspace, doc.Task, doc.Step = j.Ref(), j.Run, j.Workspace, j.Task, j.Step
		doc.Attempt, doc.Claim, doc.Execution = j.Attempt, j.Attempts, j.Execution
	}
	if e.Type == worker.JobEnded {
		doc.State, doc.Reason, doc.ExitCode, doc.Duration = e.Result.State.String(), string(e.Result.Reason), e.Result.ExitCode, e.Result.Duration.Milliseconds()
		doc.Message = cmp.Or(doc.Message, e.Result.Message)
	}
	workerSays(a, doc, workerText(&e))
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
