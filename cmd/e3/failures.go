package main

import (
	"context"
	"fmt"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/internal/repo"
)

// mostFailures is the number of groups of failures that a command tells.
const mostFailures = 3

// failureReader explains failures, also by the files of the project if it is on this machine.
func failureReader(r *repo.Repo) *explain.FailureReader {
	return &explain.FailureReader{Executions: r.Executions, Objects: r.Objects, Hints: hintsIn(r)}
}

// hintsIn says what to do about failures by the files of a workspace's project.
func hintsIn(r *repo.Repo) func(ctx context.Context, ws string, t *runview.TaskReport, tail []string) []string {
	return func(ctx context.Context, ws string, t *runview.TaskReport, tail []string) []string {
		hints, err := hintsOf(ctx, r, ws, t, tail)
		if err != nil {
			return nil // the failure itself is told
		}
		return hints
	}
}

// failuresOf explains the failures of a run, given its report without tasks.
func failuresOf(ctx context.Context, r *repo.Repo, run *runview.Report) (*explain.Failures, error) {
	if run.State != record.RunRunning && run.Summary.Failed == 0 && !run.Crashed() {
		return &explain.Failures{}, nil
	}
	tasks, err := new(runview.FailedTasks).Read(ctx, r.Workspaces.Runs, run)
	if err != nil {
		return nil, err
	}
	return failureReader(r).Read(ctx, run.WorkspaceName, tasks, mostFailures), nil
}

// writeFailure tells of a failure in a line, with the command that shows its log.
func writeFailure(w *render.Sheet, location, ws string, g *explain.FailureGroup) {
	label, text := "Failed", fmt.Sprintf("%s (%s)", g.Tasks(), g.Ended())
	if g.Allowed != "" {
		label = "Allowed"
	}
	if said := g.Said(); said != "" {
		text += ": " + said
	}
	if list := g.Commands(location, ws, true); len(list) > 0 {
		text += "; " + list[0].Line
	}
	w.Field(label, "%s", text)
}

// explainFailures prints the failures of a run that has just ended, with the ends of their logs.
func explainFailures(ctx context.Context, a *app, r *repo.Repo, location, ws string, tasks []runview.TaskReport) {
	f := failureReader(r).Read(ctx, ws, tasks, mostFailures)
	for i := range f.Groups {
		g := &f.Groups[i]
		a.Notef("")
		for _, line := range failureText(ctx, a, r, ws, g, location, true) {
			a.Notef("%s", line)
		}
	}
	if f.More > 0 {
		a.Notef("\n… and %s more; see: e3 run %s %s", human.Count(f.More, "failure"), human.Quoted(location), ws)
	}
}

// failureText explains a failure in lines: how it ended, what it said last, what to do, and where the rest is. latest
// says that it is of the workspace's latest run.
func failureText(
	ctx context.Context, a *app, r *repo.Repo, ws string, g *explain.FailureGroup, location string, latest bool,
) []string {
	var lines []string
	add := func(before, text string) {
		if text != "" {
			lines = append(lines, before+human.Line(text))
		}
	}
	add("", g.Task+": "+a.addressed(g.Ended()))
	add("  ", g.Meaning)
	for _, line := range g.Tail {
		add("  | ", line)
	}
	if g.Fault != "" {
		add("  its log cannot be read: ", g.Fault)
	}
	add("  ", g.Others())
	for _, hint := range g.Hints {
		add("  ", hint)
	}
	for _, c := range g.Commands(location, ws, latest) {
		if latest && g.Began && c.To != explain.ToLog {
			continue // the text about the folder has it
		}
		add("  "+c.To+": ", c.Line)
	}
	if latest && g.Began {
		add("  ", folderText(ctx, r, location, ws, g))
	}
	return lines
}

// writeFailures explains the failures of a run below its tasks.
func writeFailures(ctx context.Context, a *app, r *repo.Repo, w *render.Sheet, run *runview.Report, f *explain.Failures, latest bool) {
	if len(f.Groups) == 0 {
		return
	}
	w.Line("")
	w.Line("  Failures:")
	for i := range f.Groups {
		g := &f.Groups[i]
		for k, line := range failureText(ctx, a, r, run.WorkspaceName, g, a.here(), latest) {
			color := ""
			switch {
			case k > 0:
			case g.Allowed != "":
				color = w.Style.Yellow
			default:
				color = w.Style.Red
			}
			fmt.Fprintf(w, "    %s%s%s\n", color, line, w.Style.EndOf(color))
		}
	}
	if f.More > 0 {
		w.Line("    and %s more", human.Count(f.More, "failure"))
	}
}
