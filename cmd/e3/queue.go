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
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/workspace"
)

func newQueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue [repo] [queue]",
		Short: "Show or change what waits for workers",
		Long: `Show the state of a repository's queues, or of one: how many tasks wait and since when, which tasks run and where, and which
failed in the last week. Tasks that still wait although their run has ended are listed separately.`,
		Example: `  e3 queue .
  e3 queue list . gpu
  e3 queue cancel . prod.train 'test.*'
  e3 queue reprioritise . prod.train 10`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeQueue(a),
		RunE: onQueue(a, func(ctx context.Context, location string, r *repo.Repo, names []string) error {
			return queueOverview(ctx, a, location, r, names)
		}),
	}
	cmd.AddCommand(newQueueList(a), newQueueCancel(a), newQueueRetry(a), newQueueReprioritise(a))
	return cmd
}

func newQueueList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [repo] [queue]",
		Short: "List the tasks that wait or run",
		Long: `List the tasks that wait for a worker, or run, in the order in which workers take them. The first column is the short id,
which other commands accept. For a task that runs, or ran, the worker follows the time. The last column says why the last worker
gave a waiting task back, if its machine could not execute the task.`,
		ValidArgsFunction: completeQueue(a),
		RunE: onQueue(a, func(ctx context.Context, _ string, r *repo.Repo, names []string) error {
			return queueList(ctx, a, r, names)
		}),
	}
}

// onQueue makes a command whose only argument is a queue; without it, the command is about all queues.
func onQueue(a *app, do func(ctx context.Context, location string, r *repo.Repo, names []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := mistyped(cmd, args); err != nil {
			return err
		}
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
				unknown := &workspace.UnknownError{What: "queue", Name: rest[0], Known: append(slices.Clone(names), commandsBelow(cmd)...)}
				if notation.Nearest(rest[0], slices.Values(unknown.Known)) == "" && len(names) > 0 {
					return fmt.Errorf("%w; there are: %s", unknown, human.Few(names))
				}
				return unknown
			}
			names = rest
		}
		return do(cmd.Context(), location, r, names)
	}
}

// commandsBelow are the names and aliases of a command's subcommands.
func commandsBelow(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return names
}

// mistyped refuses an unknown subcommand of a command that also runs without one: a word in place of the repository,
// followed by another.
func mistyped(cmd *cobra.Command, args []string) error {
	if !cmd.HasSubCommands() || len(args) < 2 || isLocation(args[0]) {
		return nil
	}
	names := commandsBelow(cmd)
	if notation.Nearest(args[0], slices.Values(names)) == "" && !isLocation(args[1]) {
		return nil
	}
	return noCommand(cmd, args[0], names)
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
	Orphaned    bool               `json:"orphaned,omitempty"` // it was running, and its worker was lost
	Priority    int64              `json:"priority"`
	Labels      []string           `json:"labels,omitempty"`
	CPU         float64            `json:"cpu,omitempty"`
	Memory      int64              `json:"memory,omitempty"` // bytes
	Resources   map[string]float64 `json:"resources,omitempty"`
	Executions  int64              `json:"executions"` // begun for it: more than 1 if workers were lost
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
		Execution: j.Execution, Message: j.LastError, CreatedAt: render.JSONTime(j.Created), AvailableAt: render.JSONTime(j.AvailableAt), ClaimedAt: render.JSONTime(j.Claimed),
		StartedAt: render.JSONTime(j.Started), FinishedAt: render.JSONTime(j.Finished),
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

// shortJob is a part of a job's id that distinguishes jobs of one repository.
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

// queueJSON is the state of a queue, for programs.
type queueJSON struct {
	Queue   string     `json:"queue"`
	Ready   int        `json:"ready"`
	Delayed int        `json:"delayed"`
	Since   *string    `json:"since"`          // begin of the longest wait of a ready job
	Over    []overJSON `json:"over,omitempty"` // ended runs with jobs that still wait
	Running []workJSON `json:"running"`
	Failed  []jobJSON  `json:"failed"`
	Faults  []string   `json:"faults,omitempty"` // records that cannot be read
}

// overJSON is a run that has ended and left jobs that no worker has begun.
type overJSON struct {
	Workspace string `json:"workspace"`
	Run       string `json:"run"`
	Waiting   int    `json:"waiting"`
}

// workJSON is a running job with the state of its worker.
type workJSON struct {
	jobJSON
	Lost    bool    `json:"lost"`              // the worker was lost
	Unheard float64 `json:"unheard,omitempty"` // seconds until a silent worker counts as lost
	Heard   *string `json:"heard,omitempty"`   // last sign of life of a worker on another host, by its own clock
}

// runsOver returns a function that reports whether a run has ended, or its process is known to be gone. It checks each
// run once.
func runsOver(r *repo.Repo) func(context.Context, queue.RunJobs) (bool, error) {
	known := map[[2]string]bool{}
	return func(ctx context.Context, run queue.RunJobs) (bool, error) {
		key := [2]string{run.Workspace, run.Run}
		if over, looked := known[key]; looked {
			return over, nil
		}
		over, err := events.Ended(ctx, r.Records, run.Workspace, run.Run)
		if err == nil && !over {
			var busy *workspace.BusyError
			busy, err = r.Workspaces.Busy(ctx, run.Workspace)
			over = err == nil && busy == nil
		}
		known[key] = over
		return over, err
	}
}

func queueOverview(ctx context.Context, a *app, location string, r *repo.Repo, names []string) error {
	doc := struct {
		Queues []queueJSON `json:"queues"`
	}{[]queueJSON{}}
	var all []queue.Overview
	over := runsOver(r)
	for _, name := range names {
		o, err := r.Queue().Overview(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, o)
		q := queueJSON{Queue: o.Queue, Ready: o.Ready, Delayed: o.Delayed, Since: render.JSONTime(o.Waiting), Running: []workJSON{}, Failed: []jobJSON{}}
		for _, run := range o.Runs {
			is, err := over(ctx, run)
			if err != nil {
				return err
			}
			if is {
				q.Over = append(q.Over, overJSON{run.Workspace, run.Run, run.Jobs})
			}
		}
		for i := range o.Running {
			w := &o.Running[i]
			q.Running = append(q.Running, workJSON{jobOf(&w.Job), w.Over, w.Pending.Seconds(), render.JSONTime(w.Heard.At)})
		}
		for i := range o.Dead {
			q.Failed = append(q.Failed, jobOf(&o.Dead[i]))
		}
		for _, err := range o.Faults {
			q.Faults = append(q.Faults, err.Error())
		}
		doc.Queues = append(doc.Queues, q)
	}
	return a.Reply(doc, func(w *render.Sheet) {
		for i := range all {
			for _, err := range all[i].Faults {
				sayMalformed(a, err)
			}
		}
		if len(all) == 0 {
			fmt.Fprintln(w, "Nothing was ever queued here; have tasks executed by workers with: e3 start <repo> <workspace> --workers")
		}
		for i := range all {
			writeOverview(a, w, &all[i], doc.Queues[i].Over, human.Quoted(shown(location, r)))
		}
	})
}

// mostFailed is the number of failures that the text form shows.
const mostFailed = 10

func writeOverview(a *app, w io.Writer, o *queue.Overview, over []overJSON, at string) {
	now := a.Now()
	waiting := fmt.Sprintf("%d waiting", o.Ready)
	if o.Ready > 0 && !o.Waiting.IsZero() {
		waiting += fmt.Sprintf(" (for up to %s)", human.Duration(max(now.Sub(o.Waiting), 0)))
	}
	if o.Delayed > 0 {
		waiting += fmt.Sprintf(", %d later", o.Delayed)
	}
	fmt.Fprintf(w, "Queue %s: %s, %d running, %d failed\n", human.Line(o.Queue), waiting, len(o.Running), len(o.Dead))
	for _, run := range over {
		fmt.Fprintf(w, "  %d of run %s of %s, which has ended: e3 queue cancel %s %s\n", run.Waiting, human.Short(run.Run), human.Line(run.Workspace), at, human.Short(run.Run))
	}
	t := &render.Table{}
	for i := range o.Running {
		work := &o.Running[i]
		j := &work.Job
		t.Row(shortJob(j.ID), jobName(j), "for "+human.Duration(max(now.Sub(cmp.Or(j.Started, j.Claimed)), 0)), cmp.Or(j.Worker, j.Maker), workerState(work, now))
	}
	t.Write(w, "  ")
	t = &render.Table{}
	for i := range o.Dead[:min(len(o.Dead), mostFailed)] {
		j := &o.Dead[i]
		t.Row(shortJob(j.ID), jobName(j), human.Ago(now, j.Finished), failureOf(j))
	}
	if len(o.Dead) > 0 {
		fmt.Fprintln(w, "  Failed:")
	}
	t.Write(w, "    ")
	if n := len(o.Dead) - mostFailed; n > 0 {
		fmt.Fprintf(w, "    … and %d more\n", n)
	}
}

// workerState says whether the worker of a job is alive, if that is in doubt.
func workerState(w *queue.Work, now time.Time) string {
	if w.Over || w.Job.Orphaned() {
		return "orphaned; the next worker takes over"
	}
	return heardOf(w.Heard, now)
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

func queueList(ctx context.Context, a *app, r *repo.Repo, names []string) error {
	doc := struct {
		Jobs []jobJSON `json:"jobs"`
	}{[]jobJSON{}}
	var jobs []queue.Job
	for _, name := range names {
		for j, err := range r.Queue().Jobs(ctx, name) {
			if errors.Is(err, queue.ErrMalformed) {
				sayMalformed(a, err)
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
	return a.Reply(doc, func(w *render.Sheet) {
		now, t := a.Now(), a.Headed(nil, "ID", "TASK", "QUEUE", "STATE", "FOR", "WORKER", "PRIORITY", "ASKS FOR", "GIVEN BACK")
		for i := range jobs {
			j := &jobs[i]
			state, since := "waiting", j.Created
			switch {
			case j.Orphaned():
				state, since = "orphaned", j.Claimed
			case j.Status == queue.Running:
				state, since = "running", j.Claimed
			case j.AvailableAt.After(now):
				state = "again in " + human.Duration(j.AvailableAt.Sub(now))
			}
			t.Row(shortJob(j.ID), jobName(j), j.Queue, state, human.Duration(max(now.Sub(since), 0)), workerOf(j), priorityText(j.Priority), demandsText(j), declinedText(j))
		}
		t.Write(w, "")
	})
}

// declinedText says why the last worker of a waiting job gave it back, if its machine could not execute it.
func declinedText(j *queue.Job) string {
	if !j.Declined() {
		return ""
	}
	return j.LastError
}

// workerOf is the worker that has a job, or that had it before it was lost.
func workerOf(j *queue.Job) string {
	if j.Status != queue.Running {
		return ""
	}
	return cmp.Or(j.Worker, j.Maker)
}

// sayMalformed reports a record that is skipped, so that it does not hide readable ones.
func sayMalformed(a *app, err error) {
	a.Warnf("%v; to see what can be done: e3 verify", err)
}

func priorityText(n int64) string {
	if n == 0 {
		return ""
	}
	return "priority " + strconv.FormatInt(n, 10)
}

// inTurn sorts jobs in the order in which workers take them: running, orphans, then by priority and age.
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
