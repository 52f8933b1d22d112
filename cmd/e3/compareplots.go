package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/report"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/internal/ui"
)

// writePlots writes the plots of all sides as a page: one chart for each output, with a line for each side and item.
func writePlots(ctx context.Context, a *app, r *repo.Repo, sides []compare.Side, o *compareOptions) error {
	plots, err := comparedFrom(r).Plots(ctx, sides)
	if err != nil {
		return err
	}
	if len(plots) == 0 {
		return usagef(`no output of these is marked as a plot: write out: {curve: {file: curve.csv, kind: plot}} at a task`)
	}
	var charts report.Charts
	var notes []string
	for i := range plots {
		p := &plots[i]
		base, label, _ := strings.Cut(p.Task, "[")
		line := strings.TrimSpace(p.Side + " " + strings.TrimSuffix(label, "]"))
		if p.Lost == "" {
			var err error
			p.Lost, err = charts.Take(report.Plotted{Task: base + "[" + line + "]", Name: p.Name, Plot: p.Plot}, int64(len(p.Data)),
				func() ([]byte, error) { return p.Data, nil })
			if err != nil {
				return err
			}
			if p.Lost != "" {
				p.Lost += "; if it is a picture, its page has it: e3 run --report"
			}
		}
		if note := fmt.Sprintf("%s of %s in %s: %s.", p.Name, p.Task, p.Side, p.Lost); p.Lost != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	title := "Plots of " + human.Few(names(sides))
	return writeDrawing(a, &resultdir.Target{Path: o.plots, Force: o.force}, func(w io.Writer) error {
		return ui.WriteCharts(w, title, charts.Draw(), notes, ui.Options{Now: a.Now, Version: a.version(), Repository: r.Root})
	})
}

func names(sides []compare.Side) []string {
	list := make([]string, len(sides))
	for i, s := range sides {
		list[i] = s.String()
	}
	return list
}
