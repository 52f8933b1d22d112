package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/workspace"
)

func newReject(a *app) *cobra.Command {
	var undo bool
	var why string
	cmd := &cobra.Command{
		Use:   "reject [repo] <execution>|<workspace>.<task>",
		Short: "Retire a success that is wrong, or refuse a task that waits for approval",
		Long: `Refuse a task that waits for approval, given as <workspace>.<task>: it fails in the waiting run, or in the next one, and tasks that
depend on it are skipped. It stays refused with these inputs until that is taken back with --undo; then it waits again. Refusing
twice changes nothing; an approved task can no longer be refused. The name of a matrix, or a pattern of * and ?, means each of
its tasks that waits now. To list the tasks that wait: e3 approve

Or retire a successful execution with a wrong result. The cache no longer returns it: the next start runs the task again,
or takes an earlier success. The execution stays on record, marked as rejected, with its logs and its output; exports include
the mark.

The execution is given by its id, or by the beginning of it, in the whole repository or among those of a task:
<workspace>.<task>@<id>. See the ids with: e3 logs <repo> <workspace>.<task> --list`,
		Example: `  e3 reject . 018f3b4c-9a2d-7def-8abc-123456789012 --reason "wrong units"
  e3 reject . prod.train@018f3b4c
  e3 reject . prod.train@018f3b4c --undo
  e3 reject . prod.release --note "not before Monday"
  e3 reject . prod.release --undo`,
		ValidArgsFunction: completeTask(a),
		RunE: a.onExecution(a.open, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
			if arg.id != "" {
				return runReject(ctx, a, r, arg, undo, why)
			}
			err := decide(ctx, a, r, arg.ws, arg.task, undo, approval.Resolution{Note: why})
			if errors.Is(err, approval.ErrNotFound) {
				name := arg.ws + "." + arg.task
				err = usagef("%w; to retire an execution of it write %s, see the ids with: e3 logs <repo> %s --list", err, human.Quoted(name+"@<id>"), human.Quoted(name))
			}
			return err
		}, "<execution>"),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "withdraw a rejection")
	whyFlags(cmd.Flags(), &why, "reason", "note", "it later")
	return a.answers(cmd, workspace.Decision{}, decisions{}, rejection{})
}

// A rejection was made or withdrawn.
type rejection struct {
	Execution string `json:"execution"`
	Key       string `json:"key"`
	Task      string `json:"task"` // <workspace>.<task>
	Rejected  bool   `json:"rejected"`
	Changed   bool   `json:"changed"`
	Answer    string `json:"answer,omitempty"` // the execution that counts now
}

func runReject(ctx context.Context, a *app, r *repo.Repo, arg executionArg, undo bool, reason string) error {
	e, err := arg.find(ctx, a, r)
	if err != nil {
		return err
	}
	if e.State != record.Success {
		return usagef("execution %s of %s is not a success (%s), so no start uses it and there is nothing to reject", e.ExecutionID, e.TaskName(), e.State)
	}
	curator := executions.NewCurator(r.Executions, r.Records, a.Now)
	mark := &record.Rejection{Rejected: !undo, By: repo.UserAtHost(), At: a.Now(), Reason: reason}
	changed, err := curator.Reject(ctx, e.Key, e.ExecutionID, mark)
	if err != nil {
		return err
	}
	now, err := r.Executions.Lookup(ctx, e.Key)
	if err != nil {
		return err
	}
	doc := rejection{Execution: e.ExecutionID, Key: e.Key.String(), Task: e.TaskName(), Rejected: !undo, Changed: changed}
	if now.Hit != nil {
		doc.Answer = now.Hit.ExecutionID
	}
	return a.Reply(doc, func(w *render.Sheet) {
		did := "Rejected"
		switch {
		case undo && changed:
			did = "Withdrew the rejection of"
		case undo:
			did = "Is not rejected:"
		case !changed:
			did = "Was rejected already:"
		}
		w.Line("%s execution %s of %s", did, doc.Execution, doc.Task)
		switch doc.Answer {
		case "":
			w.Line("The next start that needs it runs the task again.")
		case e.ExecutionID:
			w.Line("The next start that needs it takes it from the cache.")
		default:
			w.Line("The next start that needs it takes execution %s from the cache.", doc.Answer)
		}
	})
}
