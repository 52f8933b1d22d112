package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// cancelPatience is the time that a run may take to stop before a message names the process that still holds the
// workspace.
const cancelPatience = 8 * time.Second

type cancelOptions struct {
	reason  string
	noWait  bool
	timeout time.Duration
}

func newCancel(a *app) *cobra.Command {
	var o cancelOptions
	cmd := &cobra.Command{
		Use:   "cancel [repo] <workspace>",
		Short: "Stop the run of a workspace",
		Long: `Ask the process that runs a workspace, in another terminal or on another machine, to stop, and wait until it has. The run
ends as by Ctrl-C there: commands get TERM, and KILL after that start's --grace. Running tasks are recorded as cancelled,
results are kept, and the start exits with 130 and names the user who cancelled it.

Tasks that a dead run has queued, and that no worker has begun, are withdrawn.

The exit code is 0 once no process runs the workspace, also if none did or if the run ended by itself. The outcome is printed,
and with --json is "status": cancelled, completed, failed, interrupted, idle, "not begun"; with --no-wait requested. A run
whose process is gone is closed as interrupted, as the next start would do. A workspace that is being deployed or removed is
busy: exit code 11. After --timeout the exit code is 124; the request stays, so a process that was only suspended ends its
run when it continues.`,
		Example: `  e3 cancel . prod
  e3 cancel . prod --reason "wrong input"
  e3 cancel . prod --no-wait`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: a.onOne(a.open, func(ctx context.Context, r *repo.Repo, ws string) error {
			options, err := cancelling(a, o)
			if err != nil {
				return err
			}
			options.Curator = executions.NewCurator(r.Executions, r.Records, a.Now)
			c, err := r.Workspaces.Runner.Cancel(ctx, ws, options)
			if err != nil {
				return err
			}
			return a.Reply(c, func(w *render.Sheet) { w.Line("%s", cancelText(c, options.By)) })
		}),
	}
	f := cmd.Flags()
	whyFlags(f, &o.reason, "reason", "note", "the run")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until the run has ended")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for the end of the run; 0: for ever")
	return a.answers(cmd, workspace.Cancelled{})
}

// cancelling turns the flags into options.
func cancelling(a *app, o cancelOptions) (workspace.CancelOptions, error) {
	if o.timeout < 0 {
		return workspace.CancelOptions{}, usagef("--timeout must not be negative")
	}
	return workspace.CancelOptions{
		By: repo.UserAtHost(), Reason: o.reason, NoWait: o.noWait, Timeout: o.timeout, Patience: cancelPatience,
		OnWait: func(e *workspace.BusyError) {
			a.Notef("%s%s; still waiting for it to stop", human.Line(e.Error()), also(human.Unheard(e.Heard.At, e.Heard.Lease, a.Now())))
		},
		OnLeft: func(task, worker string) { a.Warnf("%s", mayRunOn(task, worker)) },
	}, nil
}

// mayRunOn says that the command of a cancelled task was not stopped.
func mayRunOn(task, worker string) string {
	return fmt.Sprintf("the command of %s may run on: its worker %s was lost, and only that user can stop it, by a new worker on that machine",
		human.Line(task), human.Line(human.Worker(worker)))
}

// cancelText describes the outcome of a request to cancel.
func cancelText(c *workspace.Cancelled, by string) string {
	ws := c.Workspace
	run := "the run of workspace " + ws
	if c.RunID != "" {
		run = fmt.Sprintf("run %s of workspace %s", human.Short(c.RunID), ws)
	}
	switch c.Status {
	case workspace.CancelIdle:
		if c.Withdrawn > 0 {
			return fmt.Sprintf("Workspace %s is not being run; withdrew %s that a dead run had queued and no worker had begun", ws, human.Count(c.Withdrawn, "task"))
		}
		return fmt.Sprintf("Workspace %s is not being run: there is nothing to cancel", ws)
	case workspace.CancelRequested:
		return fmt.Sprintf("Asked %s to stop", run)
	case workspace.CancelBefore:
		return fmt.Sprintf("Stopped the start of workspace %s before it had begun a run", ws)
	case workspace.CancelCompleted, workspace.CancelFailed:
		return fmt.Sprintf("Nothing was cancelled: %s had already %s", run, c.Status)
	case workspace.CancelInterrupted:
		if c.Closed {
			return fmt.Sprintf("Run %s of workspace %s was left open by a process that is gone; it is closed now", human.Short(c.RunID), ws)
		}
		return fmt.Sprintf("Nothing was cancelled: the process of %s has ended without finishing it", run)
	}
	text := "Cancelled " + run
	switch c.By {
	case by:
	case "":
		text += " (its process got a signal)"
	default:
		text += " (" + c.By + " was first)"
	}
	return text
}

// cancelledRun names the user who cancelled a run, and the reason: " by ann@host: wrong input".
func cancelledRun(c *workspace.CancelledError) string {
	if c == nil {
		return ""
	}
	text := " by " + human.Line(c.By)
	if c.Reason != "" {
		text += ": " + human.Line(c.Reason)
	}
	return text
}
