package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/gc"
	"e3/internal/human"
	"e3/internal/repo"
)

func newPin(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "pin",
		Short: "Keep executions from being pruned",
		Long: `Protect executions, with their logs and outputs, from e3 prune. Executions that a workspace needs are never pruned, pinned
or not.`,
	})
	cmd.AddCommand(newPinAdd(a), newPinList(a), newPinRemove(a))
	return cmd
}

// pinArgument is the help text of every command with such an argument.
const pinArgument = `The execution is given by its id, or by the beginning of it, in the whole repository or among those of a task:
<workspace>.<task>@<id>. <workspace>.<task> is the task's execution in the latest run.`

func newPinAdd(a *app) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "add [repo] <execution>",
		Short: "Pin an execution",
		Long:  "Keep an execution from being pruned.\n\n" + pinArgument,
		Example: `  e3 pin add . prod.train --note "figures of the paper"
  e3 pin add . prod.train@018f3b4c`,
		ValidArgsFunction: completeTask(a),
		RunE: a.onExecution(a.open, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
			e, err := arg.find(ctx, a, r)
			if err != nil {
				return err
			}
			changed, err := executions.NewCurator(r.Executions, r.Records, a.Now).Pin(ctx, e.Key, e.ExecutionID, repo.UserAtHost(), note)
			if err != nil {
				return err
			}
			return replyPin(a, e.ExecutionID, " of "+e.TaskName(), true, changed)
		}, "<execution>"),
	}
	whyFlags(cmd.Flags(), &note, "note", "reason", "it later")
	return a.answers(cmd, pinChange{})
}

func newPinRemove(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:               "remove [repo] <execution>",
		Short:             "Remove a pin",
		Long:              "Let an execution be pruned again.\n\n" + pinArgument,
		ValidArgsFunction: completeTask(a),
		RunE: a.onExecution(a.open, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
			id, of, err := arg.pinned(ctx, a, r)
			if err != nil {
				return err
			}
			changed, err := executions.NewCurator(r.Executions, r.Records, a.Now).Unpin(ctx, id)
			if err != nil {
				return err
			}
			return replyPin(a, id, of, false, changed)
		}, "<execution>"),
	}, pinChange{})
}

// pinned resolves the argument, first among the pins, since the pinned execution may be gone.
func (arg executionArg) pinned(ctx context.Context, a *app, r *repo.Repo) (id, of string, err error) {
	if arg.ws == "" {
		var found []string
		for p, err := range r.Executions.Pins(ctx) {
			if err != nil && !errors.Is(err, executions.ErrMalformed) {
				return "", "", err
			}
			if strings.HasPrefix(p.ExecutionID, strings.ToLower(arg.id)) {
				found = append(found, p.ExecutionID)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], "", nil
		default:
			return "", "", &executions.AmbiguousError{What: "pin of execution", Prefix: arg.id, Fits: found}
		}
	}
	e, err := arg.find(ctx, a, r)
	if err != nil {
		return "", "", err
	}
	return e.ExecutionID, " of " + e.TaskName(), nil
}

// pinChange is a pin that was added or removed.
type pinChange struct {
	Execution string `json:"execution"`
	Pinned    bool   `json:"pinned"`
	Changed   bool   `json:"changed"`
}

func replyPin(a *app, id, of string, pinned, changed bool) error {
	doc := pinChange{id, pinned, changed}
	did := "Pinned"
	switch {
	case pinned && !changed:
		did = "Was pinned already:"
	case changed && !pinned:
		did = "Removed the pin of"
	case !changed:
		did = "Is not pinned:"
	}
	return a.Reply(doc, func(w *render.Sheet) { w.Line("%s execution %s%s", did, id, of) })
}

func newPinList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:               "list [repo]",
		Short:             "List what is pinned",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			list, err := gc.ListPins(ctx, r.Executions)
			if err != nil {
				return err
			}
			return a.Reply(list, func(w *render.Sheet) {
				t := &render.Table{}
				for _, p := range list.Pins {
					when := ""
					if !p.At.IsZero() {
						when = human.Stamp(p.At.Time)
					}
					t.Row(p.Execution, p.State, p.Task, when, p.By, p.Note)
				}
				w.Table(t, "")
			})
		}),
	}, gc.Pins{})
}
