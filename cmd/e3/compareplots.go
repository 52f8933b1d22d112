package main

import (
	"context"
	"io"

	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/internal/ui"
)

// writePlots writes the plots of all sides as a page: one chart for each output, with a line for each side and item.
func writePlots(ctx context.Context, a *app, r *repo.Repo, sides []compare.Side, where compare.Where, o *compareOptions) error {
	plots, err := comparedFrom(r).Plots(ctx, sides)
	if err != nil {
		return err
	}
	if len(plots) == 0 {
		return usagef(`no output of these is marked as a plot: write out: {curve: {file: curve.csv, kind: plot}} at a task`)
	}
	if plots, _, err = compare.Chosen(plots, where); err != nil {
		return usagef("%v", err)
	}
	title := "Plots of " + human.Few(names(sides))
	return writeDrawing(a, &resultdir.Target{Path: o.plots, Force: o.force}, func(w io.Writer) error {
		return ui.WriteCharts(w, title, plots, ui.Options{Now: a.Now, Version: a.version(), Repository: r.Root})
	})
}

func names(sides []compare.Side) []string {
	list := make([]string, len(sides))
	for i, s := range sides {
		list[i] = s.String()
	}
	return list
}
