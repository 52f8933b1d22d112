package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/executions"
	"e3/internal/host/modes"
	"e3/internal/host/trace"
	"e3/internal/human"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/profile"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

// outstanding is the number of a run's executions that are queued or running at a time, for each queue and set of
// labels.
const outstanding = 1000

// runsOptions are the flags that choose where the tasks of a run are executed.
type runsOptions struct {
	executor string
	queue    string
	workers  bool

	args, resources []string // of a scheduler
	program         string

	opens openOptions
}

func (o *runsOptions) flags(cmd *cobra.Command, a *app) {
	f := cmd.Flags()
	f.StringVar(&o.executor, "executor", "", "what executes tasks: local (this process), workers, or a scheduler that starts one for each, by its name or ./profile.yaml: e3 executor list (default: the setting \"executor\", else local)")
	f.BoolVar(&o.workers, "workers", false, "have tasks executed by workers: e3 worker; the same as --executor workers")
	f.StringVar(&o.queue, "queue", "", "the queue of tasks that name none (default: the setting \"queue\", else "+queue.DefaultQueue+")")
	o.schedulerFlags(cmd)
	fromEnvironment(f, "executor", "queue")
	completeFlag(cmd, "executor", cobra.FixedCompletions(executorNames(), cobra.ShellCompDirectiveDefault))
	completeQueues(a, cmd, "queue")
}

// schedulerFlags are those that say how a scheduler is asked.
func (o *runsOptions) schedulerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.args, "executor-args", nil, "further arguments of the scheduler's command, as '--partition=long --account=me' (repeatable)")
	f.StringArrayVar(&o.resources, "executor-resource", nil, "the scheduler's name for a resource of tasks, as gpu=gpu:a100; gpu= requests nothing (repeatable)")
	f.StringVar(&o.program, "executor-program", "", "where the scheduler's nodes find e3 (default: the path of this program)")
	fromEnvironment(f, "executor-args", "executor-resource", "executor-program")
}

// saidRuns returns the executor and queue that the command line and the environment choose.
func saidRuns(a *app, o *runsOptions) (settings.Runs, error) {
	if o.workers && o.executor != "" && o.executor != settings.Workers {
		return settings.Runs{}, usagef("--workers and --executor %s exclude each other", o.executor)
	}
	said := settings.Runs{Executor: o.executor, Queue: o.queue}
	if o.workers {
		said.Executor = settings.Workers
	}
	if e := said.Executor; e != "" && !slices.Contains(settings.Executors(), e) { // before anything is made
		named, err := findProfile(e)
		if err == nil {
			_, err = named.decode()
		}
		if err != nil {
			return said, err
		}
	}
	if said.Queue != "" {
		if err := queue.ValidName(said.Queue); err != nil {
			what := "--queue"
			if said.Queue == a.Getenv("E3_QUEUE") {
				what = "E3_QUEUE"
			}
			if strings.Contains(said.Queue, ",") {
				return said, usagef("%s: %v; a run has one queue for its tasks, while a worker may take from several", what, err)
			}
			return said, usagef("%s: %v", what, err)
		}
	}
	return said, nil
}

// chooseExecutor makes the executor of a run's tasks. done releases it.
func chooseExecutor(ctx context.Context, a *app, r *repo.Repo, location, ws string, o *startOptions, s *workspace.StartOptions) (done func(), err error) {
	said, err := saidRuns(a, &o.runs)
	if err != nil {
		return nil, err
	}
	runs, err := settings.Choose(ctx, r.Settings, ws, said)
	var damaged *settings.DamagedError
	switch {
	case errors.As(err, &damaged): // the run continues without the setting
		a.Warnf("%v; the settings executor and room are unknown: this process executes the tasks, unless --executor names another way, in the rooms of the latest start, unless --room names another", err)
	case err != nil:
		return nil, err
	}
	if r.Overlay() != "" {
		if said.Executor != "" && said.Executor != settings.Local {
			return nil, usagef("%s need the right to write to the repository: their results go there", said.Executor)
		}
		runs.Executor = settings.Local // no worker sees what is kept on this machine
	}
	e := repo.ExecutorOptions{Grace: o.grace, Full: s.Durability == workspace.Full}
	if o.runs.opens.any() {
		if runs.Executor != settings.Local && runs.Executor != "" {
			return nil, usagef("only commands of this process can be traced: e3 start --executor local, without which tasks go to %s", runs.Executor)
		}
		e.Trace = (&opens{repo: r, looks: o.runs.opens.proposes(), of: map[string]*trace.Look{}}).look
	}
	var ends []func() error
	done = func() {
		for _, end := range slices.Backward(ends) {
			if err := end(); err != nil {
				a.Warnf("%v", err)
			}
		}
	}
	d := dispatch.Options{
		Queue:      runs.Queue,
		Fault:      func(err error) { a.Warnf("%v", err) },
		Unattended: func(j *queue.Job) { sayUnattended(a, location, j) },
		Declined: func(j *queue.Job) {
			a.Notef("%s waits for another worker, as %s gave it back: %s", human.Line(jobName(j)), human.Line(human.Worker(j.Worker)), human.Line(j.LastError))
		},
	}
	if runs.Executor != settings.Local && runs.Executor != "" {
		if runs.Executor != settings.Workers {
			submitter, name, end, err := newSubmitter(ctx, a, r, o, runs)
			if err != nil {
				return nil, err
			}
			ends = append(ends, end)
			d.Submitter, d.Queue = submitter, name // other workers do not take from this queue
		}
		dispatcher := r.Dispatcher(d)
		ends = append(ends, dispatcher.Close)
		e.Remote, s.Outstanding = dispatcher, outstanding
	}
	watch := newWaitWatch(a, r, location, o.grace, e.Remote == nil && r.Overlay() == "")
	ends = append(ends, watch.close)
	e.Waiting, e.Unlimited = watch.waits, func(err error) { a.Warnf("%v", err) }
	e.Prepared = a.tellPreparation
	if s.Executor, err = r.Executor(e); err != nil {
		done()
		return nil, err
	}
	ends = append(ends, func() error { sayCopies(ctx, a, s.Executor); return nil })
	return done, nil
}

// sayCopies tells of large inputs that were copied for one command after another, and what would spare that.
func sayCopies(ctx context.Context, a *app, x *executions.Executor) {
	n := x.CopiedAgain()
	if n < executions.MinCopied || ctx.Err() != nil {
		return
	}
	advice := "file systems that can, such as XFS and Btrfs, copy nothing"
	if x.RoomsShare(ctx) {
		advice = "in a closed room they share one copy: room: closed in the package file, or --room closed"
	}
	a.Notef("Commands had %s of inputs copied again, as files of this disk cannot share blocks; %s", human.Bytes(n), advice)
}

// sayUnattended prints the command that starts a worker, for a task that no worker takes.
func sayUnattended(a *app, location string, j *queue.Job) {
	of, beside := "the tasks of queue "+j.Queue, ""
	if asks := j.Demands(); asks != "" {
		of = fmt.Sprintf("tasks of queue %s that ask for %s, as %s does", j.Queue, human.Line(asks), human.Line(jobName(j)))
	}
	if j.Policy.Memory > 0 || len(j.Policy.Resources) > 0 {
		beside = " (if you give it --memory or --resource, give at least as much)"
	}
	a.Notef("No worker takes %s; start one with: %s%s", of, workerCommand(location, j), beside)
}

// workerCommand is the command that starts a worker which takes a job.
func workerCommand(location string, j *queue.Job) string {
	words := []string{"e3", "worker", human.Quoted(location)}
	if j.Queue != queue.DefaultQueue {
		words = append(words, "--queue", j.Queue)
	}
	if len(j.Labels) > 0 {
		words = append(words, "--labels", human.Quoted(strings.Join(j.Labels, ",")))
	}
	return strings.Join(words, " ")
}

// workerEnv is the environment of a worker that a start begins for one job: the job names its queue, and several workers on a
// machine cannot serve metrics at one address.
func workerEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "E3_QUEUE=") || strings.HasPrefix(v, "E3_METRICS_ADDR=")
	})
}

// newSubmitter makes a submitter that has a scheduler start workers, and the name of that. On the nodes, the program and the
// repository must have the same paths as here.
func newSubmitter(ctx context.Context, a *app, r *repo.Repo, o *startOptions, runs settings.Runs) (_ *cluster.Submitter, name string, done func() error, err error) {
	named, err := findProfile(runs.Executor)
	if err != nil {
		return nil, "", nil, err
	}
	scheduler, err := newScheduler(named, &o.runs, runs.Queue, nil)
	if err != nil {
		return nil, "", nil, err
	}
	co := cluster.Options{Repo: r.Location, Worker: []string{"--grace", o.grace.String()}, Warn: func(text string) { a.Warnf("%s", text) }}
	if co.Program, err = o.runs.programThere(); err != nil {
		return nil, "", nil, err
	}
	if !repo.IsURL(r.Location) {
		if co.Repo, err = repo.Find(r.Location); err != nil {
			return nil, "", nil, err
		}
	}
	parent, m := cachedLogs(a), modes.Modes{}
	if !repo.IsURL(co.Repo) && !repo.IsURL(r.Root) { // the nodes share the folder
		parent, m = filepath.Join(co.Repo, "tmp", "jobs"), r.Modes()
	}
	remove := func() error { return nil }
	if dir, r, err := openJobLogs(parent, m, time.Now()); err != nil {
		a.Warnf("the output of jobs' scripts is not kept: %v", err)
	} else {
		co.Logs, remove = dir, r
	}
	if _, shipped := profileNames(); named.file != "" && slices.Contains(shipped, named.name) && !strings.Contains(runs.Executor, "/") {
		a.Notef("The executor %s is your own profile, %s, instead of the shipped one", named.name, named.file)
	}
	submitter := cluster.New(scheduler, co)
	return submitter, named.name, func() error { submitter.Close(); return remove() }, nil
}

// cachedLogs is a folder for the scripts of jobs in the user's cache, which the nodes of most clusters share; "" if there is none.
func cachedLogs(a *app) string {
	if cache := a.Getenv(repo.CacheDirVariable); cache != "" {
		return filepath.Join(cache, "jobs")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "e3", "jobs")
}

// programThere is the path of e3 on a scheduler's nodes.
func (o *runsOptions) programThere() (string, error) {
	if o.program != "" {
		return o.program, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program that the scheduler is to start: %w", err)
	}
	return program, nil
}

// newScheduler makes the scheduler of a profile.
func newScheduler(named *namedProfile, o *runsOptions, queue string, told func(words []string, input, answer string, err error)) (cluster.Scheduler, error) {
	po := profile.Options{Resources: map[string]string{}, Queue: queue, Env: workerEnv(), Told: told}
	for _, list := range o.args {
		args, err := cluster.Words(list)
		if err != nil {
			return nil, usagef("--executor-args: %v", err)
		}
		po.Args = append(po.Args, args...)
	}
	for _, text := range o.resources {
		name, called, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("--executor-resource is name=theirs, not %q", text)
		}
		po.Resources[name] = called
	}
	p, err := named.decode()
	if err != nil {
		return nil, &usageError{err}
	}
	return p.Scheduler(po)
}

// executorNames are the names of executors that are found here.
func executorNames() []string {
	own, shipped := profileNames()
	return slices.Concat(settings.Executors(), own, shipped)
}
