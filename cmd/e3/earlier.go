package main

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

// sayEarlier notes that an output is of an earlier run than the latest, and why.
func sayEarlier(ctx context.Context, a *app, r *repo.Repo, name string, d *workspace.Dataset) error {
	if !d.Output || d.East {
		return nil
	}
	unmade, err := r.Workspaces.Unmade(ctx, d.Workspace)
	if t := unmade[d.Path.Name]; t != nil {
		a.Notef("note: %s is of an earlier run: %s", human.Line(name), human.Line(became(t)))
	}
	return err
}

// became says what the latest run did with a task that it could not make.
func became(t *runview.TaskReport) string {
	switch {
	case t.State == runview.TaskSkipped && t.Because != "":
		return fmt.Sprintf("the latest skipped it, since %s failed", t.Because)
	case t.State == runview.TaskSkipped:
		return "the latest skipped it"
	case t.State == runview.TaskFailed:
		return fmt.Sprintf("it failed in the latest, with exit code %d", t.ExitCode)
	case t.Message != "":
		return "it failed in the latest: " + t.Message
	}
	return "it failed in the latest"
}

// unassigned adds to the error of an output that the workspace lacks why the latest run could not make it, or which
// execution has made one that the workspace does not show.
func unassigned(ctx context.Context, r *repo.Repo, err error) error {
	var none *workspace.UnassignedError
	if !errors.As(err, &none) || !none.Output || none.East {
		return err
	}
	unmade, fault := r.Workspaces.Unmade(ctx, none.Workspace)
	if t := unmade[none.Name]; t != nil && fault == nil {
		return fmt.Errorf("%s.%s has no output: %s; see: e3 why %s %[1]s.%[2]s", none.Workspace, none.Name, became(t), human.Quoted(shown(r.Location, r)))
	}
	te, fault := r.Workspaces.Runs.TaskExecutions(ctx, none.Workspace, none.Name)
	if fault != nil {
		return err
	}
	for _, e := range te.Known {
		if e.State == record.Success && !e.Rejected() && e.Detail != nil && e.Detail.Workspace == none.Workspace {
			return fmt.Errorf("workspace %s shows no output of %s: it was made in a run with values of its own; for that: e3 get <repo> %s --execution %s",
				none.Workspace, none.Name, human.Quoted(none.Workspace+"."+none.Name), human.Short(e.ExecutionID))
		}
	}
	return err
}
