package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/format/moment"
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
		RunE: onExecution(a, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
			e, err := arg.find(ctx, a, r)
			if err != nil {
				return err
			}
			changed, err := executions.NewCurator(r.Executions, r.Records, a.Now).Pin(ctx, e.Key, e.ExecutionID, repo.UserAtHost(), note)
			if err != nil {
				return err
			}
			return replyPin(a, e.ExecutionID, " of "+taskOf(e), true, changed)
		}),
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
		RunE: onExecution(a, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
			id, of, err := arg.pinned(ctx, a, r)
			if err != nil {
				return err
			}
			changed, err := executions.NewCurator(r.Executions, r.Records, a.Now).Unpin(ctx, id)
			if err != nil {
				return err
			}
			return replyPin(a, id, of, false, changed)
		}),
	}, pinChange{})
}

// onExecution makes a command whose only argument is an execution.
func onExecution(a *app, do func(context.Context, *repo.Repo, executionArg) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, 0, "<execution>")
		if err != nil {
			return err
		}
		return a.inExecution(cmd.Context(), location, rest[0], func(arg executionArg) error {
			r, err := a.open(cmd.Context(), location)
			if err != nil {
				return err
			}
			defer r.Close()
			return do(cmd.Context(), r, arg)
		})
	}
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
			return "", "", fmt.Errorf("pin of execution %s: %w", arg.id, executions.ErrAmbiguous)
		}
	}
	e, err := arg.find(ctx, a, r)
	if err != nil {
		return "", "", err
	}
	return e.ExecutionID, " of " + taskOf(e), nil
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
		RunE: onRepository(a, func(ctx context.Context, r *repo.Repo, _ []string) error {
			return listPins(ctx, a, r)
		}),
	}, pinList{})
}

// A pinRow is a pin in a list.
type pinRow struct {
	Execution string      `json:"execution"`
	Key       string      `json:"key,omitempty"`
	Task      string      `json:"task,omitempty"` // <workspace>.<task>
	State     string      `json:"state"`          // of the execution, gone, or unreadable
	By        string      `json:"by"`             // user@host
	At        moment.Time `json:"at"`
	Note      string      `json:"note,omitempty"`
}

// pinList are the pins of a repository.
type pinList struct {
	Pins []pinRow `json:"pins"`
}

func listPins(ctx context.Context, a *app, r *repo.Repo) error {
	doc := pinList{[]pinRow{}}
	t := &render.Table{}
	for p, err := range r.Executions.Pins(ctx) {
		if err != nil && !errors.Is(err, executions.ErrMalformed) {
			return err
		}
		item := pinRow{Execution: p.ExecutionID, State: "unreadable"}
		if err == nil {
			item.Key, item.By, item.At, item.Note = p.Key.String(), p.By, moment.At(p.At), p.Note
			e, err := r.Executions.Get(ctx, p.Key, p.ExecutionID)
			switch {
			case err == nil:
				item.State, item.Task = e.State.String(), taskOf(e)
			case errors.Is(err, executions.ErrNotFound):
				item.State = "gone"
			case !errors.Is(err, executions.ErrMalformed):
				return err
			}
		}
		doc.Pins = append(doc.Pins, item)
		when := ""
		if !item.At.IsZero() {
			when = human.Stamp(p.At)
		}
		t.Row(p.ExecutionID, item.State, item.Task, when, item.By, item.Note)
	}
	return a.Reply(doc, func(w *render.Sheet) { t.Write(w, "") })
}
