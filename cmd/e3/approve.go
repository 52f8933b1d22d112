package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/workspace"
)

func newApprove(a *app) *cobra.Command {
	var note string
	var undo bool
	cmd := &cobra.Command{
		Use:   "approve [repo] [<workspace>.<task>]",
		Short: "Let a task go on that waits for approval, or list what waits",
		Long: `Approve a task that waits for it: a task with "approve: true" that must run, or a task whose command has suspended itself by
ending with its "suspend" code. A run that waits, in another terminal or on another machine, continues. If none is at work, the
next start goes on with it, without asking again. Without a task, what waits in all workspaces is listed. The name of a matrix, or
a pattern of * and ?, means each of its tasks that waits now.

An approval is for this task with these inputs: if either changes, or with start --force, a person is asked again. Approving twice
changes nothing. A task that was rejected cannot be approved before that is taken back: e3 reject --undo. An approval can be
taken back with --undo until a run goes on with it.

Exit code 2: it does not wait; 1: it was rejected, or a run has gone on already. Reject with: e3 reject <workspace>.<task>`,
		Example: `  e3 approve .
  e3 approve . prod.release
  e3 approve . prod.release --note "checked the figures"
  e3 approve . 'prod.publish[*]'
  e3 approve . prod.release --undo`,
		ValidArgsFunction: completeDeferred(a),
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			if args[0] == "" && (undo || note != "") {
				return usagef("it takes a task: <workspace>.<task>; to list what waits: e3 approve <repo>")
			}
			if args[0] == "" {
				return listDeferred(ctx, a, r)
			}
			return a.inOnly(ctx, r, args[0], func(name string) error {
				ws, path, err := dataset(name)
				switch {
				case errors.Is(err, errUnnamed):
					return err
				case err != nil || path.Entry != "":
					return usagef("%q is not <workspace>.<task>", name)
				}
				return decide(ctx, a, r, ws, path.Name, undo, approval.Resolution{Approve: true, Note: note})
			})
		}, "[workspace.task]"),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "take the approval back")
	whyFlags(cmd.Flags(), &note, "note", "reason", "the run")
	return a.answers(cmd, []waitingTask{}, workspace.Decision{}, decisions{})
}

// decisions are about the tasks that the name of a matrix, or a pattern, stands for.
type decisions struct {
	Decisions []workspace.Decision `json:"decisions"`
}

// decide resolves the block of a task, or with undo takes that back.
func decide(ctx context.Context, a *app, r *repo.Repo, ws, task string, undo bool, res approval.Resolution) error {
	if n := len(res.Note); n > approval.MaxNote {
		return usagef("the note has %s; at most %s are kept: put the rest into a file, and name that", human.Bytes(int64(n)), human.Bytes(approval.MaxNote))
	}
	res.By = repo.UserAtHost()
	act := r.Workspaces.Approvals.Resolve
	if undo {
		act = r.Workspaces.Approvals.Withdraw
	}
	d, err := act(ctx, ws, task, res)
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) && unknown.What == "task" {
		tasks, fault := several(ctx, r, ws, task, undo, res.Approve)
		switch {
		case fault != nil || len(tasks) > 0:
			return errors.Join(fault, decideEach(ctx, a, tasks, undo, res.Approve, func(task string) (workspace.Decision, error) { return act(ctx, ws, task, res) }))
		case !slices.ContainsFunc(unknown.Known, func(known string) bool { return means(task, known) }): // there is no such task
		case undo:
			return usagef("there is no %s of %s.%s to take back", decisionWord(res.Approve), ws, task)
		default:
			return usagef("no task of %s.%s waits for approval; to list what waits: e3 approve <repo>", ws, task)
		}
	}
	if err != nil {
		return err
	}
	return a.Reply(d, func(w *render.Sheet) { writeDecision(w, &d, undo, res.Approve) })
}

// several are the tasks that a decision is about which names a matrix, or has a pattern: those that wait or, with undo, those of
// which the decision is to be taken back.
func several(ctx context.Context, r *repo.Repo, ws, name string, undo, approve bool) (tasks []string, err error) {
	waiting, decided, err := r.Workspaces.Approvals.Standing(ctx, ws)
	list := waiting
	if undo {
		list = slices.DeleteFunc(decided, func(b approval.Block) bool { return (b.Status == approval.Approved) != approve })
	}
	for i := range list {
		if task := list[i].Task; means(name, task) {
			tasks = append(tasks, task)
		}
	}
	return tasks, err
}

// means reports whether a task is one of those that the name of a matrix, or a pattern, stands for.
func means(name, task string) bool {
	return strings.HasPrefix(task, name+"[") || events.IsPattern(name) && events.Match(name, task)
}

// decisionWord names a decision that is taken back.
func decisionWord(approve bool) string {
	if approve {
		return "approval"
	}
	return "rejection"
}

// decideEach decides about several tasks. The failure of one does not keep the others from it.
func decideEach(ctx context.Context, a *app, tasks []string, undo, approve bool, act func(task string) (workspace.Decision, error)) error {
	var all error
	done := decisions{[]workspace.Decision{}}
	for _, task := range tasks {
		if ctx.Err() != nil {
			break
		}
		d, err := act(task)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		done.Decisions = append(done.Decisions, d)
	}
	return errors.Join(all, context.Cause(ctx), a.Reply(done, func(w *render.Sheet) {
		for i := range done.Decisions {
			writeDecision(w, &done.Decisions[i], undo, approve)
		}
	}))
}

func writeDecision(w *render.Sheet, d *workspace.Decision, undo, approve bool) {
	name := d.Workspace + "." + d.Task
	run := "the next start"
	if d.Live {
		run = "run " + human.Short(d.Run)
	}
	switch {
	case !d.Changed && undo:
		w.Line("%s waits for approval already", name)
	case !d.Changed:
		w.Line("%s was %s already by %s", name, d.Status, cmp.Or(d.By, "an unknown user"))
	case d.Status == approval.Approved:
		w.Line("Approved %s: %s goes on with it", name, run)
	case d.Status == approval.Rejected:
		w.Line("Rejected %s: it fails in %s, and what depends on it is skipped", name, run)
	default:
		w.Line("Took the %s of %s back: it waits again", decisionWord(approve), name)
	}
}

// waitingTask is a task of any workspace that waits for approval.
type waitingTask struct {
	Workspace string `json:"workspace"`
	approval.Waiting
}

// listDeferred lists what waits for approval in all workspaces.
func listDeferred(ctx context.Context, a *app, r *repo.Repo) error {
	names, err := r.Workspaces.List(ctx)
	if err != nil {
		return err
	}
	docs := []waitingTask{}
	table := &render.Table{}
	for _, ws := range names {
		waiting, err := r.Workspaces.Approvals.Deferred(ctx, ws)
		if unknown := (*workspace.UnknownError)(nil); errors.As(err, &unknown) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		for _, one := range approval.WaitingOf(waiting) {
			docs = append(docs, waitingTask{ws, one})
			by := ""
			if one.Type == approval.Suspend {
				by = ", by its command"
			}
			table.Row(ws+"."+one.Task, string(runview.TaskDeferred), "since "+human.Stamp(one.Since.Time)+by)
		}
	}
	return a.Reply(docs, func(w *render.Sheet) {
		if len(docs) == 0 {
			fmt.Fprintln(w, "Nothing waits for approval")
		}
		table.Write(w, "")
	})
}

// askFor says what to type when a task waits for approval.
func askFor(location, ws, task string) string {
	name := human.Quoted(ws + "." + task)
	return fmt.Sprintf("%s waits for approval; type: e3 approve %s %s, or: e3 reject %s %s", human.Line(ws+"."+task), human.Quoted(location), name, human.Quoted(location), name)
}

// completeDeferred completes tasks that wait for approval.
func completeDeferred(a *app) cobra.CompletionFunc {
	return completeFirst(a, func(ctx context.Context, r *repo.Repo, word string) (list []cobra.Completion, err error) {
		var names []string
		if ws, _, inside := strings.Cut(word, "."); inside {
			names = []string{ws}
		} else if names, err = r.Workspaces.List(ctx); err != nil {
			return nil, err
		}
		for _, ws := range names {
			waiting, err := r.Workspaces.Approvals.Deferred(ctx, ws)
			if err != nil {
				continue
			}
			for i := range waiting {
				list = append(list, ws+"."+waiting[i].Task)
			}
		}
		return list, nil
	})
}

// resolvedHint says how a decision can be changed that stands in the way of another.
func resolvedHint(e *approval.ResolvedError) string {
	b := &e.Block
	name := human.Quoted(b.Workspace + "." + b.Task)
	switch {
	case b.Status == approval.Closed:
		return ""
	case b.Status == approval.Rejected:
		return "to take that back: e3 reject <repo> " + name + " --undo; to ask again: e3 start <repo> " + human.Quoted(b.Workspace) + " --force --filter " + human.Quoted(b.Task)
	case b.Acted.IsZero():
		return "to take that back: e3 approve <repo> " + name + " --undo"
	}
	return ""
}

// waitsHint says what to do about a task that does not wait.
func waitsHint(err error) string {
	var idle *workspace.NotWaitingError
	if errors.As(err, &idle) && len(idle.Others) == 0 {
		return "to see the state of the workspace: e3 status <repo> " + human.Quoted(idle.Workspace)
	}
	return ""
}
