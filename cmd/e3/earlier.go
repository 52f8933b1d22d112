package main

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

// unmadeTasks are the tasks that the latest run of a workspace could not make, by name: they failed, or were skipped because
// another had. Their outputs in the workspace are of an earlier run. There are none if the run had values of its own, as it sets no
// outputs, or if the workspace has changed since it ended, as by a run that is at work. Where every task succeeded, that costs the
// workspace's state and the last of the run's events.
func unmadeTasks(ctx context.Context, r *repo.Repo, ws string) (map[string]*runview.TaskReport, error) {
	s, err := r.Workspaces.States.State(ctx, ws)
	if err != nil || s.CurrentRunID == "" {
		return nil, err
	}
	end, err := events.End(ctx, r.Records, ws, s.CurrentRunID)
	if err != nil || end == nil || end.Data == nil || end.Data.Summary == nil || s.RootUpdatedAt.After(end.Time) {
		return nil, ctx.Err() // what cannot be read says nothing
	}
	if sum := end.Data.Summary; sum.Failed+sum.Skipped == 0 {
		return nil, nil
	}
	rep, err := r.Workspaces.Runs.Report(ctx, ws, s.CurrentRunID)
	if err != nil || len(rep.Set) > 0 {
		return nil, ctx.Err()
	}
	found := make(map[string]*runview.TaskReport)
	for i := range rep.Tasks {
		switch t := &rep.Tasks[i]; t.State {
		case runview.TaskFailed, runview.TaskError, runview.TaskSkipped:
			found[t.Task] = t
		}
	}
	return found, nil
}

// earlierOutputs are the results of tasks that the latest run could not make.
func earlierOutputs(found *workspace.Results, unmade map[string]*runview.TaskReport) (names []string) {
	for i := range found.Outputs {
		if unmade[found.Outputs[i].Task] != nil {
			names = append(names, found.Outputs[i].Name)
		}
	}
	return names
}

// sayEarlier notes that an output is of an earlier run than the latest, and why.
func sayEarlier(ctx context.Context, a *app, r *repo.Repo, name string, d *workspace.Dataset) error {
	if !d.Output || d.East {
		return nil
	}
	unmade, err := unmadeTasks(ctx, r, d.Workspace)
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

// unassigned adds to the error of an output that was never made why the latest run could not make it.
func unassigned(ctx context.Context, r *repo.Repo, err error) error {
	var none *workspace.UnassignedError
	if !errors.As(err, &none) || !none.Output || none.East {
		return err
	}
	unmade, fault := unmadeTasks(ctx, r, none.Workspace)
	if t := unmade[none.Name]; t != nil && fault == nil {
		return fmt.Errorf("%s.%s has no output: %s; see: e3 why %s %[1]s.%[2]s", none.Workspace, none.Name, became(t), human.Quoted(shown(r.Location, r)))
	}
	return err
}
