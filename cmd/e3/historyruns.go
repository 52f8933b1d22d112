package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/repo"
)

// pastRunJSON is a run of a history for programs.
type pastRunJSON struct {
	runJSON
	Duration *int64 `json:"ms,omitempty"` // up to now if it is running; unknown if it was interrupted
	By       string `json:"by,omitempty"` // user@host that ran it
}

// runHistory lists the runs of a workspace.
func runHistory(ctx context.Context, a *app, r *repo.Repo, ws string, o *historyOptions) error {
	var runs []*runview.Report
	partial := false // and there are earlier ones
	for run, err := range r.Workspaces.Runs.List(ctx, ws) {
		if err != nil {
			return err
		}
		if o.wantsRun(run) {
			runs = append(runs, run)
		}
		if few := o.few(); few > 0 && len(runs) > few {
			partial, runs = true, runs[:few]
			break
		}
	}
	var points []render.Point
	for _, run := range slices.Backward(runs) {
		if run.State != record.RunRunning {
			points = append(points, render.Point{
				At: run.StartedAt, Took: run.RanFor(a.Now()), Status: run.Status(), Bad: run.State != record.RunCompleted,
			})
		}
	}
	shown, left := limit(runs, o.last)
	doc := struct {
		Workspace string         `json:"workspace"`
		Total     *int           `json:"total,omitempty"` // that match; absent if earlier ones were not read
		More      bool           `json:"more,omitempty"`  // there are earlier ones that --last left out
		Runs      []pastRunJSON  `json:"runs"`
		Durations []durationJSON `json:"durations"` // of all that were read and match, the oldest first
	}{ws, nil, partial || left > 0, []pastRunJSON{}, durationsOf(points)}
	if total := len(runs); !partial {
		doc.Total = &total
	}
	for _, run := range shown {
		item := pastRunJSON{runJSON: runOf(run), By: history.Who(run.Process)}
		item.Tasks = nil
		if run.State != record.RunRunning || run.Live {
			ms := run.RanFor(a.Now()).Milliseconds()
			item.Duration = &ms
		}
		doc.Runs = append(doc.Runs, item)
	}
	return a.Reply(doc, func(w *render.Sheet) {
		if len(shown) == 0 {
			fmt.Fprintln(w, "None")
			return
		}
		t := a.Headed(map[int]bool{3: true}, "RUN", "STATUS", "STARTED", "TOOK", "TASKS", "PACKAGE", "BY")
		for _, run := range shown {
			runRow(a, t, run)
		}
		t.Write(w, "")
		if partial || left > 0 {
			fmt.Fprintf(w, "%s; --last 0 shows all\n", earlier(left, partial))
		}
		if o.draw(a, points, false) {
			fmt.Fprintln(w)
			a.Plot("run", points).Write(w)
		}
	})
}

// wantsRun reports whether a run passes the filters.
func (o *historyOptions) wantsRun(r *runview.Report) bool {
	bad := r.State != record.RunCompleted && !r.Live && r.Waits == 0
	return strings.HasPrefix(r.RunID, strings.ToLower(o.run)) && o.matches(r.Status(), bad, r.StartedAt, history.Who(r.Process))
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
	if text := unheard(r.Heard, a.Now()); text != "" {
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
	t.Row(human.Short(r.RunID), r.Status(), human.Stamp(r.StartedAt), long, tasks, r.PackageRef, cmp.Or(history.Who(r.Process), "-"), strings.Join(notes, ", "))
}
