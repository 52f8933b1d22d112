package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/workspace"
)

// jobsArgument is the help text of every command that changes jobs.
const jobsArgument = `A task is named <workspace>.<task>, a matrix for all its items, or by a pattern of * and ?. A workspace means all its tasks,
the id of a run all that it has queued; a short id of "e3 queue list" means that task. --all means all tasks.`

// jobsCommand is a command that changes each of the jobs that its arguments name.
type jobsCommand struct {
	dead  bool // it applies to failed jobs; else to unfinished ones
	all   bool // --all
	did   string
	do    func(ctx context.Context, r *repo.Repo, j *queue.Job) (queue.Job, error)
	tell  func(ctx context.Context, r *repo.Repo, done []queue.Job) error // tells of all changes in events; nil: do does
	after func(done []queue.Job) string                                   // text after all changes; nil: none
}

// register adds the flag that the commands share, and their answer.
func (c *jobsCommand) register(a *app, cmd *cobra.Command) *cobra.Command {
	what := "all tasks of all queues that wait or run"
	if c.dead {
		what = "all tasks of all queues that have failed"
	}
	cmd.Flags().BoolVar(&c.all, "all", false, what)
	return a.answers(cmd, queue.Rows{})
}

func newQueueCancel(a *app) *cobra.Command {
	var why string
	c := &jobsCommand{did: "Cancelled"}
	c.do = func(ctx context.Context, r *repo.Repo, j *queue.Job) (queue.Job, error) {
		return r.Queue().Cancel(ctx, j.Queue, j.ID, repo.UserAtHost(), why)
	}
	c.tell = func(ctx context.Context, r *repo.Repo, done []queue.Job) error {
		return repo.TellJobs(ctx, r, events.JobCancelled, done, why, nil)
	}
	cmd := &cobra.Command{
		Use:   "cancel [repo] <task>...",
		Short: "Remove tasks from their queue, or stop them",
		Long: `Remove tasks from their queue; running ones are stopped. Their run records them as cancelled and skips the tasks that depend on
them.

` + jobsArgument,
		Example: `  e3 queue cancel . prod.train 'prod.test*'
  e3 queue cancel . prod --reason "wrong input"
  e3 queue cancel . --all`,
		ValidArgsFunction: completeJobs(a, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return changeJobs(a, cmd, args, c) },
	}
	whyFlags(cmd.Flags(), &why, "reason", "note", "the run")
	return c.register(a, cmd)
}

func newQueueRetry(a *app) *cobra.Command {
	c := &jobsCommand{dead: true, did: "Queued again", after: countedAsFailed}
	c.do = func(ctx context.Context, r *repo.Repo, j *queue.Job) (queue.Job, error) {
		return repo.RetryJob(ctx, r, j)
	}
	cmd := &cobra.Command{
		Use:   "retry [repo] <task>...",
		Short: "Queue failed tasks again",
		Long: `Queue failed tasks again, so that the next start of their workspace finds their results. Their run has counted them as failed,
even if it has not ended, and does not use the results. Tasks that have succeeded since are not queued. Cancelled tasks have
not failed: run them with e3 start.

` + jobsArgument,
		ValidArgsFunction: completeJobs(a, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return changeJobs(a, cmd, args, c) },
	}
	return c.register(a, cmd)
}

func newQueueReprioritise(a *app) *cobra.Command {
	c := &jobsCommand{}
	cmd := &cobra.Command{
		Use:     "reprioritise [repo] <task>... <priority>",
		Aliases: []string{"reprioritize"},
		Short:   "Change the priority of tasks that wait",
		Long: `Change the priority of tasks that wait for a worker: greater goes first. The default is 0.

` + jobsArgument,
		Example: `  e3 queue reprioritise . prod.train 10
  e3 queue reprioritise . prod -- -1`,
		ValidArgsFunction: completeJobs(a, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs <task> and <priority>; see: %[1]s --help", cmd.CommandPath())
			}
			// A negative number looks like a flag; after -- it is an argument.
			last := len(args) - 1
			n, err := strconv.ParseInt(args[last], 10, 64)
			if err != nil {
				return usagef("%s needs <task> and <priority>, a whole number; see: %[1]s --help", cmd.CommandPath())
			}
			c.did = fmt.Sprintf("Priority is %d now:", n)
			c.do = func(ctx context.Context, r *repo.Repo, j *queue.Job) (queue.Job, error) {
				return r.Queue().Reprioritise(ctx, j.Queue, j.ID, n)
			}
			c.tell = func(ctx context.Context, r *repo.Repo, done []queue.Job) error {
				return repo.TellJobs(ctx, r, events.JobReprioritised, done, "", &n)
			}
			return changeJobs(a, cmd, args[:last], c)
		},
	}
	return c.register(a, cmd)
}

// jobArguments splits arguments into the repository, which may be left out, and the names of jobs; none with --all.
func jobArguments(a *app, cmd *cobra.Command, args []string, all bool) (location string, names []string, err error) {
	path := cmd.CommandPath()
	switch {
	case slices.Contains(args, ""): // likely an unset variable of a script
		return "", nil, usagef("<task> is empty")
	case all && (len(args) > 1 || len(args) == 1 && !isLocation(args[0])):
		return "", nil, usagef("--all and <task> exclude each other")
	case all && len(args) == 1:
		return args[0], nil, nil
	case all:
		return a.location(), nil, nil
	case len(args) == 0:
		return "", nil, usagef("%s needs <task>, or --all; see: %s --help", path, path)
	case len(args) == 1 && (strings.Trim(args[0], "./") == "" || repo.IsURL(args[0])):
		return "", nil, usagef("%s needs <task> after the repository, or --all; see: %s --help", path, path)
	case len(args) > 1 && isLocation(args[0]):
		return args[0], args[1:], nil
	}
	return a.location(), args, nil
}

// mostChanged is the number of changed jobs that are listed.
const mostChanged = 20

// changeJobs applies a command to each job that its arguments name. It reports jobs that have meanwhile reached a state
// without this change; the exit code is 1 if no job could be changed.
func changeJobs(a *app, cmd *cobra.Command, args []string, c *jobsCommand) error {
	location, names, err := jobArguments(a, cmd, args, c.all)
	if err != nil {
		return err
	}
	return a.within(cmd.Context(), a.open, location, func(r *repo.Repo) error { return c.change(cmd.Context(), a, r, names) })
}

// change changes the jobs of the names.
func (c *jobsCommand) change(ctx context.Context, a *app, r *repo.Repo, names []string) error {
	jobs, err := chooseJobs(ctx, r, names, c.dead)
	if err != nil {
		return err
	}
	done, missed, fault := queue.Change(ctx, jobs, func(ctx context.Context, j *queue.Job) (queue.Job, error) { return c.do(ctx, r, j) })
	if c.tell != nil && len(done) > 0 {
		fault = errors.Join(fault, c.tell(ctx, r, done))
	}
	for _, err := range missed[:min(len(missed), mostChanged)] {
		a.Notef("e3: %s", human.Line(err.Error()))
	}
	if n := len(missed) - mostChanged; n > 0 {
		a.Notef("e3: and the same for %s", human.Count(n, "other task"))
	}
	for i := range done {
		if o := done[i].Outcome; o != nil && o.Left != "" {
			a.Warnf("%s", mayRunOn(jobName(&done[i]), o.Left))
		}
	}
	if fault == nil || len(done) > 0 {
		fault = errors.Join(fault, a.Reply(queue.RowsOf(done), func(w *render.Sheet) { c.write(w, done) }))
	}
	if fault == nil && len(done) == 0 {
		return &exitError{exitFailed}
	}
	return fault
}

func (c *jobsCommand) write(w *render.Sheet, done []queue.Job) {
	for i := range done[:min(len(done), mostChanged)] {
		j := &done[i]
		w.Line("%s %s (%s)%s", c.did, jobName(j), shortJob(j.ID), stillRuns(j, c.dead))
	}
	if n := len(done) - mostChanged; n > 0 {
		w.Line("… and %d more: %s in all", n, human.Count(len(done), "task"))
	}
	if c.after != nil && len(done) > 0 {
		w.Line("%s", c.after(done))
	}
}

// countedAsFailed says that the tasks' runs will not use the results of a retry.
func countedAsFailed(done []queue.Job) string {
	run := "Run " + human.Short(done[0].Run) + " has"
	for i := range done {
		if done[i].Run != done[0].Run {
			run = "Their runs have"
		}
	}
	if len(done) == 1 {
		return run + " counted it as failed: once it has succeeded, e3 start takes its result"
	}
	return run + " counted them as failed: once they have succeeded, e3 start takes their results"
}

// stillRuns says that the job runs until its worker stops it.
func stillRuns(j *queue.Job, dead bool) string {
	if dead || j.Status != queue.Running || j.Orphaned() {
		return ""
	}
	return ": its worker stops it"
}

// chooseJobs finds the named jobs, or all if names is empty, among the failed jobs if dead is true, and else among the
// unfinished ones.
func chooseJobs(ctx context.Context, r *repo.Repo, names []string, dead bool) ([]queue.Job, error) {
	known, err := r.Queue().Nameable(ctx, dead)
	if err != nil {
		return nil, err
	}
	jobs, err := queue.Choose(known, names)
	var unknown *queue.NameError
	switch {
	case errors.As(err, &unknown) && unknown.Meaning > 1:
		return nil, usagef("%w", err)
	case errors.As(err, &unknown):
		return nil, unknownJob(ctx, r, unknown.Name, known, dead)
	case len(jobs) > 0:
		return jobs, nil
	case dead:
		return nil, errors.New("there is nothing that has failed")
	}
	return nil, errors.New("there is nothing queued")
}

// unknownJob is the error for a name that matches no job; it lists the known ones.
func unknownJob(ctx context.Context, r *repo.Repo, name string, known []queue.Job, dead bool) error {
	e := &workspace.UnknownError{What: "queued task", Name: name, Known: tasksOf(known)}
	are, none := "queued are", "nothing is queued"
	if dead {
		e.What, are, none = "failed task in a queue", "failed have", "nothing has failed"
		if why := notFailed(ctx, r, name); why != "" {
			return fmt.Errorf("%w: %s", e, why)
		}
	}
	switch {
	case len(known) == 0:
		return fmt.Errorf("%w: %s", e, none)
	case notation.Nearest(name, slices.Values(e.Known)) != "": // then the error already suggests a name
		return e
	}
	return fmt.Errorf("%w; %s: %s", e, are, human.Few(e.Known))
}

// tasksOf are the names of jobs' tasks, in order.
func tasksOf(jobs []queue.Job) []string {
	names := make([]string, len(jobs))
	for i := range jobs {
		names[i] = jobs[i].FullTask()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// notFailed describes the state of jobs that the user takes for failed: unfinished ones, and those of their workspace's
// latest run. It is "" if no state is known.
func notFailed(ctx context.Context, r *repo.Repo, name string) string {
	ws, _, _ := strings.Cut(name, ".")
	latest := ""
	if run, err := r.Workspaces.Runs.Run(ctx, ws, ""); err == nil {
		latest = run.RunID
	}
	f, err := r.Queue().Fate(ctx, name, latest)
	start := "e3 start <repo> " + human.Quoted(ws)
	switch {
	case err != nil:
	case f.Running:
		return "it runs, or is about to"
	case f.Waiting:
		return "it waits in its queue already"
	case f.Answered:
		return queue.ReasonAnswered
	case f.Cancelled == 1:
		return "it was cancelled in the latest run, and is not queued again; make it with: " + start
	case f.Cancelled > 1:
		return fmt.Sprintf("%d tasks of it were cancelled in the latest run, and are not queued again; make them with: %s", f.Cancelled, start)
	case f.Suspended > 0:
		return "it has suspended itself, and waits for approval; see: e3 run <repo> " + human.Quoted(ws)
	case f.Succeeded > 0:
		return "it has succeeded in the latest run"
	}
	return ""
}

// completeJobs completes the names of queued tasks, or with dead those of failed ones.
func completeJobs(a *app, dead bool) cobra.CompletionFunc {
	return completion(a, func(ctx context.Context, r *repo.Repo, args []string, _ string) ([]cobra.Completion, error) {
		known, err := r.Queue().Nameable(ctx, dead)
		return slices.DeleteFunc(tasksOf(known), func(name string) bool { return slices.Contains(args, name) }), err
	})
}
