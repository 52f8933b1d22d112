package main

import (
	"cmp"
	"fmt"
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
	t := a.Headed(map[int]bool{3: true}, "RUN", "STATUS", "STARTED", "TOOK", "TASKS", "PACKAGE", "BY")
	for _, run := range l.Shown {
		runRow(a, t, run)
	}
	w.Table(t, "")
	if l.More {
		fmt.Fprintf(w, "%s; --last 0 shows all\n", earlier(l.Left, l.Partial))
	}
	o.writePlot(a, w, "run", l.Durations, false)
}

func runRow(a *app, t *render.Table, r *runview.Report) {
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
	var notes []string
	if text := human.Unheard(r.Heard.At, r.Heard.Lease, a.Now()); text != "" {
		notes = append(notes, text)
	}
	if text := cancelledBy(r); text != "" && r.By != "" {
		notes = append(notes, "cancelled "+text)
	} else if text != "" {
		notes = append(notes, text)
	}
	if r.Filter != "" {
		notes = append(notes, "filter "+r.Filter)
	}
	if len(r.Set) > 0 {
		notes = append(notes, "set "+human.Truncate(r.Set.String(), 200))
	}
	if r.State == record.RunFailed && r.FailedTask != "" {
		notes = append(notes, r.FailedTask+" failed")
	}
	if p := r.Provenance; p != nil {
		notes = append(notes, "imported "+runview.Whence(runview.Steps(p), a.Now())[0])
	}
	t.Row(human.Short(r.RunID), r.Status(), human.Stamp(r.StartedAt), long, tasks, r.PackageRef, cmp.Or(r.Process.Who(), "-"), strings.Join(notes, ", "))
}
