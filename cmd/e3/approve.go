package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/workspace"
)

func newApprove(a *app) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "approve [repo] <workspace>.<task>",
		Short: "Let a task go on that waits for approval",
		Long: `Approve a task that waits for it: a task with "approve: true" that must run, or a task whose command has suspended itself by
ending with its "suspend" code. The waiting run, in another terminal or on another machine, then continues. To list the tasks
that wait: e3 status

Approving twice changes nothing. A task that was rejected, or whose run has ended, can no longer be approved: the next start
asks again. Exit code 2: it does not wait; 1: it was rejected, or its run has ended. Reject with: e3 reject <workspace>.<task>`,
		Example: `  e3 approve . prod.release
  e3 approve . prod.release --note "checked the figures"`,
		ValidArgsFunction: completeDeferred(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 0, "<workspace>.<task>")
			if err != nil {
				return err
			}
			ws, path, err := dataset(rest[0])
			if err != nil || path.Entry != "" {
				return usagef("%q is not <workspace>.<task>", rest[0])
			}
			return decide(cmd.Context(), a, location, ws, path.Name, approval.Resolution{Approve: true, Note: note})
		},
	}
	whyFlags(cmd.Flags(), &note, "note", "reason", "the run")
	return cmd
}

// decidedJSON is a decision, for programs.
type decidedJSON struct {
	Workspace string  `json:"workspace"`
	Task      string  `json:"task"`
	Run       string  `json:"run"`
	Block     string  `json:"block"`
	Type      string  `json:"type"`
	Status    string  `json:"status"`
	Changed   bool    `json:"changed"`
	By        string  `json:"by,omitempty"`
	At        *string `json:"at"`
	Note      string  `json:"note,omitempty"`
}

// decide resolves the block of a task.
func decide(ctx context.Context, a *app, location, ws, task string, res approval.Resolution) error {
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	res.By = repo.UserAtHost()
	b, changed, err := r.Workspaces.Approvals.Resolve(ctx, ws, task, res)
	if err != nil {
		return err
	}
	doc := decidedJSON{
		Workspace: ws, Task: task, Run: b.Run, Block: b.ID, Type: string(b.Type), Status: string(b.Status), Changed: changed, By: b.By, At: render.JSONTime(b.At), Note: b.Note,
	}
	return a.Reply(doc, func(w io.Writer) {
		name := human.Line(ws + "." + task)
		switch {
		case !changed:
			fmt.Fprintf(w, "%s was %s already by %s\n", name, b.Status, human.Line(cmp.Or(b.By, "an unknown user")))
		case b.Status == approval.Approved:
			fmt.Fprintf(w, "Approved %s: run %s goes on with it\n", name, human.Short(b.Run))
		default:
			fmt.Fprintf(w, "Rejected %s: it fails in run %s, and what depends on it is skipped\n", name, human.Short(b.Run))
		}
	})
}

// deferredJSON is a task that waits for approval.
type deferredJSON struct {
	Task      string  `json:"task"`
	Type      string  `json:"type"` // review or suspend
	Block     string  `json:"block"`
	Step      string  `json:"step,omitempty"`
	Execution string  `json:"execution,omitempty"` // the one that suspended itself
	Since     *string `json:"since"`
}

func deferredOf(list []approval.Block) []deferredJSON {
	var docs []deferredJSON
	for i := range list {
		b := &list[i]
		docs = append(docs, deferredJSON{Task: b.Task, Type: string(b.Type), Block: b.ID, Step: b.Step, Execution: b.Execution, Since: render.JSONTime(b.Created)})
	}
	return docs
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

// waitsHint says what to do about a task that does not wait.
func waitsHint(err error) string {
	var idle *workspace.NotWaitingError
	if errors.As(err, &idle) && len(idle.Others) == 0 {
		return "to see the state of the workspace: e3 status <repo> " + human.Quoted(idle.Workspace)
	}
	return ""
}
