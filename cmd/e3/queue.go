package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
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
		RunE:              onQueue(a, queueOverview),
	}
	cmd.AddCommand(newQueueList(a), newQueueCancel(a), newQueueRetry(a), newQueueReprioritise(a))
	return a.answers(cmd, queue.States{})
}

func newQueueList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "list [repo] [queue]",
		Short: "List the tasks that wait or run",
		Long: `List the tasks that wait for a worker, or run, in the order in which workers take them. The first column is the short id,
which other commands accept. For a task that runs, or ran, the worker follows the time. The last column says why the last worker
gave a waiting task back, if its machine could not execute the task.`,
		ValidArgsFunction: completeQueue(a),
		RunE:              onQueue(a, queueList),
	}, queue.Rows{})
}

// onQueue makes a command whose only argument is a queue; without it, the command is about all queues.
func onQueue(a *app, do func(ctx context.Context, a *app, r *repo.Repo, names []string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		if err := mistyped(cmd, args); err != nil {
			return err
		}
		return a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			names, err := r.Queue().Queues(ctx)
			if err != nil {
				return err
			}
			if args[0] == "" {
				return do(ctx, a, r, names)
			}
			if !slices.Contains(names, args[0]) {
				unknown := &workspace.UnknownError{What: "queue", Name: args[0], Known: names}
				command := &workspace.UnknownError{What: "queue", Name: args[0], Known: append(slices.Clone(names), commandsBelow(cmd)...)}
				if unknownHint(command) != "" { // it may be meant
					return command
				}
				return unknown
			}
			return do(ctx, a, r, args)
		}, "[queue]")(cmd, args)
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

func queueOverview(ctx context.Context, a *app, r *repo.Repo, names []string) error {
	all, err := repo.QueueStates(ctx, r, names)
	if err != nil {
		return err
	}
	return a.Reply(all, func(w *render.Sheet) {
		if len(all.Queues) == 0 {
			w.Line("Nothing was ever queued here; have tasks executed by workers with: e3 start <repo> <workspace> --workers")
		}
		for i := range all.Queues {
			for _, fault := range all.Queues[i].Faults {
				a.sayMalformed(fault)
			}
			writeQueue(w, &all.Queues[i], a.Now())
		}
	})
}

// mostFailed is the number of failures that the text form shows.
const mostFailed = 10

func writeQueue(w *render.Sheet, q *queue.State, now time.Time) {
	waiting := fmt.Sprintf("%d waiting", q.Ready)
	if q.Ready > 0 && !q.Since.IsZero() {
		waiting += fmt.Sprintf(" (for up to %s)", human.Duration(max(now.Sub(q.Since.Time), 0)))
	}
	if q.Delayed > 0 {
		waiting += fmt.Sprintf(", %d later", q.Delayed)
	}
	w.Line("Queue %s: %s, %d running, %d failed", q.Queue, waiting, len(q.Running), len(q.Failed))
	for _, run := range q.Over {
		w.Line("  %d of run %s of %s, which has ended: e3 queue cancel <repo> %s", run.Jobs, human.Short(run.Run), run.Workspace, human.Short(run.Run))
	}
	t := &render.Table{}
	for i := range q.Running {
		j := q.Running[i].Job
		t.Row(shortJob(j.ID), jobName(j), "for "+human.Duration(max(now.Sub(cmp.Or(j.Started, j.Claimed).Time()), 0)), cmp.Or(j.Worker, j.Maker), q.Running[i].Work.Doubt(now))
	}
	w.Table(t, "  ")
	if len(q.Failed) > 0 {
		w.Line("  Failed:")
	}
	t = &render.Table{}
	for i := range q.Failed[:min(len(q.Failed), mostFailed)] {
		row := &q.Failed[i]
		t.Row(shortJob(row.ID), jobName(row.Job), human.Ago(now, row.FinishedAt.Time), row.Failure())
	}
	w.Table(t, "    ")
	if n := len(q.Failed) - mostFailed; n > 0 {
		w.Line("    … and %d more", n)
	}
}

func queueList(ctx context.Context, a *app, r *repo.Repo, names []string) error {
	rows, faults, err := r.Queue().InTurn(ctx, names...)
	if err != nil {
		return err
	}
	for _, fault := range faults {
		a.sayMalformed(fault.Error())
	}
	return a.Reply(rows, func(w *render.Sheet) {
		now, t := a.Now(), a.Headed(nil, "ID", "TASK", "QUEUE", "STATE", "FOR", "WORKER", "PRIORITY", "ASKS FOR", "GIVEN BACK")
		for i := range rows.Jobs {
			j := rows.Jobs[i].Job
			state, since := "waiting", j.Created
			switch {
			case j.Orphaned():
				state, since = "orphaned", j.Claimed
			case j.Status == queue.Running:
				state, since = "running", j.Claimed
			case j.AvailableAt.Time().After(now):
				state = "again in " + human.Duration(j.AvailableAt.Time().Sub(now))
			}
			t.Row(shortJob(j.ID), jobName(j), j.Queue, state, human.Duration(max(now.Sub(since.Time()), 0)), workerOf(j), j.Rank(), j.Demands(), declinedText(j))
		}
		w.Table(t, "")
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
func (a *app) sayMalformed(fault string) {
	a.Warnf("%s; to see what can be done: e3 verify", fault)
}
