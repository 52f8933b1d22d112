package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/queue"
	"e3/internal/repo"
	"e3/workspace"
)

func newQueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue [repo] [queue]",
		Short: "Show or change what waits for workers",
		Long: `Show how the queues of a repository stand, or one of them: how many tasks wait and since when, what runs and where, and what has
failed in the last week.`,
		Example: `  e3 queue .
  e3 queue list . gpu
  e3 queue cancel . prod.train
  e3 queue reprioritise . prod.train 10`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeQueue,
		RunE: a.onQueue(func(ctx context.Context, r *repo.Repo, names []string) error {
			return a.queueOverview(ctx, r, names)
		}),
	}
	cmd.AddCommand(newQueueList(a), newQueueCancel(a), newQueueRetry(a), newQueueReprioritise(a))
	return cmd
}

func newQueueList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [repo] [queue]",
		Short: "List the tasks that wait or run",
		Long: `List the tasks that wait for a worker, or run, in the order in which they are to be taken. The first column is the id by which
other commands take them, in short.`,
		ValidArgsFunction: a.completeQueue,
		RunE: a.onQueue(func(ctx context.Context, r *repo.Repo, names []string) error {
			return a.queueList(ctx, r, names)
		}),
	}
}

// onQueue makes a command whose only argument is a queue, which may be left out: then it is about all.
func (a *app) onQueue(do func(ctx context.Context, r *repo.Repo, names []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, 1, "<queue>")
		if err != nil {
			return err
		}
		r, err := a.open(cmd.Context(), location)
		if err != nil {
			return err
		}
		defer r.Close()
		names, err := r.Queue().Queues(cmd.Context())
		if err != nil {
			return err
		}
		if rest[0] != "" {
			if !slices.Contains(names, rest[0]) {
				for _, sub := range cmd.Commands() {
					names = append(names, sub.Name())
				}
				return &workspace.UnknownError{What: "queue", Name: rest[0], Known: names}
			}
			names = rest
		}
		return do(cmd.Context(), r, names)
	}
}

// completeQueue completes the name of a queue as an argument, completeQueues as the value of a flag.
func (a *app) completeQueue(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, _ string) []cobra.Completion {
		if len(args) > 0 {
			return nil
		}
		names, err := r.Queue().Queues(ctx)
		if err != nil {
			return nil
		}
		return names
	})
}

func (a *app) completeQueues(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, _ := a.complete(cmd, args[:min(len(args), 1)], word, func(ctx context.Context, r *repo.Repo, _ []string, _ string) []cobra.Completion {
			names, err := r.Queue().Queues(ctx)
			if err != nil {
				return nil
			}
			return names
		})
		return list, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag exists, and has no other function
	}
}

// jobJSON is a job for programs.
type jobJSON struct {
	ID          string             `json:"id"`
	Queue       string             `json:"queue"`
	Workspace   string             `json:"workspace"`
	Run         string             `json:"run"`
	Task        string             `json:"task"`
	Step        string             `json:"step,omitempty"`
	Attempt     int64              `json:"attempt"`
	Status      string             `json:"status"`
	Orphaned    bool               `json:"orphaned,omitempty"` // it runs, and its worker was lost
	Priority    int64              `json:"priority"`
	Labels      []string           `json:"labels,omitempty"`
	CPU         float64            `json:"cpu,omitempty"`
	Memory      int64              `json:"memory,omitempty"` // bytes
	Resources   map[string]float64 `json:"resources,omitempty"`
	Executions  int64              `json:"executions"` // begun for it: more than 1 where workers were lost
	MaxExecs    int64              `json:"maxExecutions"`
	Worker      string             `json:"worker,omitempty"`
	Execution   string             `json:"execution,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Message     string             `json:"message,omitempty"`
	ExitCode    int64              `json:"exitCode,omitempty"`
	CreatedAt   *string            `json:"createdAt"`
	AvailableAt *string            `json:"availableAt,omitempty"`
	ClaimedAt   *string            `json:"claimedAt,omitempty"`
	StartedAt   *string            `json:"startedAt,omitempty"`
	FinishedAt  *string            `json:"finishedAt,omitempty"`
}

func jobOf(j *queue.Job) jobJSON {
	doc := jobJSON{
		ID: j.ID, Queue: j.Queue, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, Attempt: j.Attempt, Status: string(j.Status),
		Orphaned: j.Orphaned(), Priority: j.Priority, Labels: j.Labels, CPU: j.Policy.CPU, Memory: j.Policy.Memory, Executions: j.Attempts, MaxExecs: j.MaxAttempts, Worker: j.Worker,
		Execution: j.Execution, Message: j.LastError, CreatedAt: moment(j.Created), AvailableAt: moment(j.AvailableAt), ClaimedAt: moment(j.Claimed),
		StartedAt: moment(j.Started), FinishedAt: moment(j.Finished),
	}
	for _, r := range j.Policy.Resources {
		if doc.Resources == nil {
			doc.Resources = map[string]float64{}
		}
		doc.Resources[r.Name] = r.Value
	}
	if o := j.Outcome; o != nil {
		doc.Execution, doc.Reason, doc.ExitCode = cmp.Or(o.ExecutionID, j.Execution), o.Reason, o.ExitCode
		doc.Message = cmp.Or(o.Message, j.LastError)
	}
	return doc
}

// shortJob is the part of a job's id that tells jobs of one repository apart.
func shortJob(id string) string {
	_, hash, ok := strings.Cut(id, ".")
	if !ok {
		return id
	}
	return prefix(hash, 10)
}

func jobName(j *queue.Job) string {
	name := j.Workspace + "." + j.Task
	if j.Step != "" {
		name += " (" + j.Step + ")"
	}
	return name
}

// queueJSON is how a queue stands, for programs.
type queueJSON struct {
	Queue   string     `json:"queue"`
	Ready   int        `json:"ready"`
	Delayed int        `json:"delayed"`
	Since   *string    `json:"since"` // when the job was put there that has waited longest of those that are ready
	Running []workJSON `json:"running"`
	Failed  []jobJSON  `json:"failed"`
	Faults  []string   `json:"faults,omitempty"` // records that cannot be read
}

// workJSON is a job that runs, and what is known of its worker.
type workJSON struct {
	jobJSON
	Lost    bool    `json:"lost"`              // its worker is
	Unheard float64 `json:"unheard,omitempty"` // the worker was not heard of lately: within so many seconds it is known whether it lives
}

func (a *app) queueOverview(ctx context.Context, r *repo.Repo, names []string) error {
	doc := struct {
		Queues []queueJSON `json:"queues"`
	}{[]queueJSON{}}
	var all []queue.Overview
	for _, name := range names {
		o, err := r.Queue().Overview(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, o)
		q := queueJSON{Queue: o.Queue, Ready: o.Ready, Delayed: o.Delayed, Since: moment(o.Waiting), Running: []workJSON{}, Failed: []jobJSON{}}
		for i := range o.Running {
			w := &o.Running[i]
			q.Running = append(q.Running, workJSON{jobOf(&w.Job), w.Over, w.Pending.Seconds()})
		}
		for i := range o.Dead {
			q.Failed = append(q.Failed, jobOf(&o.Dead[i]))
		}
		for _, err := range o.Faults {
			q.Faults = append(q.Faults, err.Error())
		}
		doc.Queues = append(doc.Queues, q)
	}
	return a.reply(doc, func(w io.Writer) {
		for i := range all {
			for _, err := range all[i].Faults {
				a.malformedJob(err)
			}
		}
		if len(all) == 0 {
			fmt.Fprintln(w, "Nothing was ever queued here; have tasks executed by workers with: e3 start <repo> <workspace> --workers")
		}
		for i := range all {
			a.writeOverview(w, &all[i])
		}
	})
}

// mostFailed is how many failures a person is shown.
const mostFailed = 10

func (a *app) writeOverview(w io.Writer, o *queue.Overview) {
	now := a.now()
	waiting := fmt.Sprintf("%d waiting", o.Ready)
	if o.Ready > 0 && !o.Waiting.IsZero() {
		waiting += fmt.Sprintf(" (for up to %s)", elapsed(max(now.Sub(o.Waiting), 0)))
	}
	if o.Delayed > 0 {
		waiting += fmt.Sprintf(", %d later", o.Delayed)
	}
	fmt.Fprintf(w, "Queue %s: %s, %d running, %d failed\n", printable(o.Queue, false), waiting, len(o.Running), len(o.Dead))
	t := &table{}
	for i := range o.Running {
		work := &o.Running[i]
		j := &work.Job
		t.row(shortJob(j.ID), jobName(j), "for "+elapsed(max(now.Sub(j.Claimed), 0)), cmp.Or(j.Worker, j.Maker), workerState(work))
	}
	t.write(w, "  ")
	t = &table{}
	for i := range o.Dead[:min(len(o.Dead), mostFailed)] {
		j := &o.Dead[i]
		t.row(shortJob(j.ID), jobName(j), ago(now, j.Finished), failureOf(j))
	}
	if len(o.Dead) > 0 {
		fmt.Fprintln(w, "  Failed:")
	}
	t.write(w, "    ")
	if n := len(o.Dead) - mostFailed; n > 0 {
		fmt.Fprintf(w, "    … and %d more\n", n)
	}
}

// workerState says whether the worker of a job is alive, where that is in question.
func workerState(w *queue.Work) string {
	switch {
	case w.Over || w.Job.Orphaned():
		return "orphaned; another worker takes over"
	case w.Pending > 0:
		return fmt.Sprintf("not heard of; known within %s", elapsed(w.Pending))
	}
	return ""
}

func failureOf(j *queue.Job) string {
	o := j.Outcome
	switch {
	case o == nil:
		return j.LastError
	case o.Message != "":
		return o.Message
	case o.Reason != "":
		return o.Reason
	}
	return "exit code " + strconv.FormatInt(o.ExitCode, 10)
}

func (a *app) queueList(ctx context.Context, r *repo.Repo, names []string) error {
	doc := struct {
		Jobs []jobJSON `json:"jobs"`
	}{[]jobJSON{}}
	var jobs []queue.Job
	for _, name := range names {
		for j, err := range r.Queue().Jobs(ctx, name) {
			if errors.Is(err, queue.ErrMalformed) {
				a.malformedJob(err)
				continue
			}
			if err != nil {
				return err
			}
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, inTurn)
	for i := range jobs {
		doc.Jobs = append(doc.Jobs, jobOf(&jobs[i]))
	}
	return a.reply(doc, func(w io.Writer) {
		now, t := a.now(), &table{}
		for i := range jobs {
			j := &jobs[i]
			state, since := "waiting", j.Created
			switch {
			case j.Orphaned():
				state, since = "orphaned", j.Claimed
			case j.Status == queue.Running:
				state, since = "running", j.Claimed
			case j.AvailableAt.After(now):
				state = "again in " + elapsed(j.AvailableAt.Sub(now))
			}
			t.row(shortJob(j.ID), jobName(j), j.Queue, state, elapsed(max(now.Sub(since), 0)), priorityText(j.Priority), demandsText(j))
		}
		t.write(w, "")
	})
}

// malformedJob tells of a record that is passed over, so that it does not hide the others.
func (a *app) malformedJob(err error) {
	a.notef("warning: %s; see what can be done with: e3 verify", printable(err.Error(), false))
}

func priorityText(n int64) string {
	if n == 0 {
		return ""
	}
	return "priority " + strconv.FormatInt(n, 10)
}

// inTurn orders jobs as they are to be taken: what runs, then orphans, priority, age.
func inTurn(a, b queue.Job) int {
	rank := func(j *queue.Job) int {
		switch {
		case j.Orphaned():
			return 1
		case j.Status == queue.Running:
			return 0
		}
		return 2
	}
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// jobArgument is said of every command that takes one.
const jobArgument = `A task is named <workspace>.<task>; that means all that is queued of it. Or by the beginning of its id in "e3 queue list".`

// shortestID is how much of an id means one: a slip should not cancel the only job there is.
const shortestID = 4

// sameWork tells whether two jobs of a task make the same execution.
func sameWork(a, b *queue.Job) bool {
	return a.Queue == b.Queue && a.TaskHash == b.TaskHash && slices.Equal(a.Inputs, b.Inputs)
}

// findJobs finds the jobs that an argument means, among those that are not finished or, with dead, those that have failed.
func findJobs(ctx context.Context, r *repo.Repo, arg string, dead bool) ([]queue.Job, error) {
	if arg == "" { // of a script's variable that is not set
		return nil, usagef("<task> is empty")
	}
	names, err := r.Queue().Queues(ctx)
	if err != nil {
		return nil, err
	}
	var byName, byID []queue.Job
	var known []string
	consider := func(j queue.Job) {
		name := j.Workspace + "." + j.Task
		known = append(known, name)
		switch {
		case name == arg:
			// One that has failed several times is made once, and would be queued again under the latest attempt.
			if !dead || !slices.ContainsFunc(byName, func(other queue.Job) bool { return sameWork(&other, &j) }) {
				byName = append(byName, j)
			}
		case len(arg) >= shortestID && (strings.HasPrefix(j.ID, arg) || strings.HasPrefix(j.ID[strings.IndexByte(j.ID, '.')+1:], arg)),
			strings.HasPrefix(j.Ref(), arg) && len(arg) >= len(j.Queue+"/")+shortestID:
			byID = append(byID, j)
		}
	}
	for _, name := range names {
		if dead {
			o, err := r.Queue().Overview(ctx, name)
			if err != nil {
				return nil, err
			}
			for _, j := range o.Dead { // the latest first
				consider(j)
			}
			continue
		}
		for j, err := range r.Queue().Jobs(ctx, name) {
			if errors.Is(err, queue.ErrMalformed) {
				continue // the queue's overview tells of it
			}
			if err != nil {
				return nil, err
			}
			consider(j)
		}
	}
	switch {
	case len(byName) > 0:
		return byName, nil
	case len(byID) > 1:
		return nil, usagef("%q is the beginning of the ids of %d tasks; give more of it", arg, len(byID))
	case len(byID) == 1:
		return byID, nil
	}
	what := "queued task"
	if dead {
		what = "failed task in a queue"
	}
	return nil, &workspace.UnknownError{What: what, Name: arg, Known: known}
}

// onJobs makes a command whose first argument means jobs, and does something to each of them. A job that has meanwhile gone where it cannot be
// done any more is told, and the exit code is 1 if it could be done to none.
func (a *app) onJobs(dead bool, did string, names []string, do func(ctx context.Context, r *repo.Repo, j *queue.Job, rest []string) (queue.Job, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, 0, names...)
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		r, err := a.open(ctx, location)
		if err != nil {
			return err
		}
		defer r.Close()
		jobs, err := findJobs(ctx, r, rest[0], dead)
		if err != nil {
			return err
		}
		doc := struct {
			Jobs []jobJSON `json:"jobs"`
		}{[]jobJSON{}}
		var text strings.Builder
		for i := range jobs {
			j, err := do(ctx, r, &jobs[i], rest[1:])
			var moved *queue.TransitionError
			switch {
			case errors.As(err, &moved), errors.Is(err, queue.ErrNotFound):
				a.notef("e3: %s", printable(err.Error(), false))
				continue
			case err != nil:
				return err
			}
			doc.Jobs = append(doc.Jobs, jobOf(&j))
			fmt.Fprintf(&text, "%s %s (%s)%s\n", did, printable(jobName(&j), false), shortJob(j.ID), stillRuns(&j, dead))
		}
		if err := a.reply(doc, func(w io.Writer) { _, _ = io.WriteString(w, text.String()) }); err != nil {
			return err
		}
		if len(doc.Jobs) == 0 {
			return &exitError{exitFailed}
		}
		return nil
	}
}

// stillRuns says that a worker is to be told first.
func stillRuns(j *queue.Job, dead bool) string {
	if dead || j.Status != queue.Running {
		return ""
	}
	return ": its worker is told"
}

func newQueueCancel(a *app) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "cancel [repo] <task>",
		Short: "Take a task out of its queue, or stop it",
		Long: `Take a task out of its queue; one that runs is stopped. For its run it has been cancelled, and what depends on it is skipped.

` + jobArgument,
		ValidArgsFunction: a.completeJobs(false),
	}
	cmd.RunE = a.onJobs(false, "Cancelled", []string{"<task>"}, func(ctx context.Context, r *repo.Repo, j *queue.Job, _ []string) (queue.Job, error) {
		return r.Queue().Cancel(ctx, j.Queue, j.ID, repo.UserAtHost(), why)
	})
	whyFlags(cmd.Flags(), &why, "reason", "note", "the run")
	return cmd
}

func newQueueRetry(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "retry [repo] <task>",
		Short: "Queue a task again that has failed",
		Long: `Queue a task again that has failed, so that its result is there when its workspace is started the next time. Its run is over for the
task, or altogether, and does not go on with it.

` + jobArgument,
		ValidArgsFunction: a.completeJobs(true),
		RunE: a.onJobs(true, "Queued again", []string{"<task>"}, func(ctx context.Context, r *repo.Repo, j *queue.Job, _ []string) (queue.Job, error) {
			return r.Queue().Retry(ctx, j.Queue, j.ID)
		}),
	}
}

func newQueueReprioritise(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "reprioritise [repo] <task> <priority>",
		Aliases: []string{"reprioritize"},
		Short:   "Change the priority of a task that waits",
		Long: `Change the priority of a task that waits for a worker: greater goes first. 0 is that of tasks that say nothing.

` + jobArgument,
		Example:           `  e3 queue reprioritise . prod.train 10`,
		ValidArgsFunction: a.completeJobs(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := int64(0), error(nil)
			if len(args) > 0 {
				if n, err = strconv.ParseInt(args[len(args)-1], 10, 64); err != nil {
					return usagef("%s needs <task> and <priority>, a whole number; see: %[1]s --help", cmd.CommandPath())
				}
			}
			// A negative number looks like a flag to who comes first; after -- it is none.
			return a.onJobs(false, fmt.Sprintf("Priority is %d now:", n), []string{"<task>", "<priority>"}, func(ctx context.Context, r *repo.Repo, j *queue.Job, _ []string) (queue.Job, error) {
				return r.Queue().Reprioritise(ctx, j.Queue, j.ID, n)
			})(cmd, args)
		},
	}
}

// completeJobs completes the tasks that are queued, or with dead those that have failed.
func (a *app) completeJobs(dead bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, _ string) []cobra.Completion {
			var unknown *workspace.UnknownError
			if _, err := findJobs(ctx, r, "\x00", dead); len(args) > 0 || !errors.As(err, &unknown) {
				return nil
			}
			slices.Sort(unknown.Known)
			return slices.Compact(unknown.Known)
		})
	}
}
