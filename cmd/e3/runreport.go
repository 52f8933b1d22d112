package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/internal/ui"
)

// writeReport writes a run as a page of HTML.
func writeReport(ctx context.Context, a *app, r *repo.Repo, run *runview.Report, o *runOptions) error {
	return writeDrawing(a, &resultdir.Target{Path: o.report, Force: o.force}, func(w io.Writer) error {
		return ui.WriteRun(ctx, w, uiStores(a, r), run, ui.Options{Now: a.Now, Version: a.version(), Repository: r.Root})
	})
}

// writeDrawing writes a file completely or not at all, and prints a message.
func writeDrawing(a *app, to *resultdir.Target, write func(io.Writer) error) error {
	err := to.WriteFile(false, func(f io.Writer) error {
		b := bufio.NewWriterSize(f, 1<<16)
		return errors.Join(write(b), b.Flush())
	})
	if err != nil {
		return err
	}
	if info, err := os.Stat(to.Path); err == nil {
		a.Notef("Wrote %s (%s)", human.Line(to.Path), human.Bytes(info.Size()))
	}
	return nil
}
