package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
)

// writeRuns prints the runs of a workspace.
func writeRuns(a *app, w *render.Sheet, l *history.RunList, o *historyOptions) {
	if len(l.Shown) == 0 {
		fmt.Fprintln(w, "None")
		return
	}
	heads := []string{"RUN", "STATUS", "STARTED", "TOOK", "TASKS", "PACKAGE", "BY"}
	commits := slices.ContainsFunc(l.Shown, func(r *runview.Report) bool { return r.Git != nil })
	if commits {
		heads = append(heads, "COMMIT")
	}
	t := a.Headed(map[int]bool{3: true}, heads...)
	for _, run := range l.Shown {
		cells, notes := runCells(a, run)
		if commits {
			cells = append(cells, cmp.Or(run.Git.Short(), "-"))
		}
		t.Row(append(cells, strings.Join(notes, ", "))...)
	}
	w.Table(t, "")
	if l.More {
		fmt.Fprintf(w, "%s; --last 0 shows all\n", earlier(l.Left, l.Partial))
	}
	o.writePlot(a, w, "run", l.Durations, false)
}

// runCells are the cells of a run in a list, and notes about it.
func runCells(a *app, r *runview.Report) (cells, notes []string) {
	long, tasks := "", ""
	switch {
	case r.State != record.RunRunning:
		long = human.Duration(r.RanFor(a.Now()))
		if r.Summary != (record.Summary{}) {
			tasks = countsWaiting(r.State, r.Summary, r.Waits)
		}
	case r.Live:
		long = human.Seconds(r.RanFor(a.Now())) + "…"
	}
	cells = []string{
		human.Short(r.RunID), r.Status(), human.Stamp(r.StartedAt), long, tasks, r.PackageRef, cmp.Or(r.Process.Who(), "-"),
	}
	return cells, r.Notes(a.Now())
}
