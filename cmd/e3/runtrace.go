package main

import (
	"context"
	"io"

	"e3/internal/insight/runview"
	"e3/internal/insight/trace"
	"e3/internal/repo"
	"e3/internal/resultdir"
)

// writeTrace writes the timeline of a run to a file, or to standard output.
func writeTrace(ctx context.Context, a *app, r *repo.Repo, ws string, run *runview.Report, o *runOptions) error {
	write := func(w io.Writer) error {
		_, err := trace.Write(ctx, w, trace.Stores{Records: r.Records, Executions: r.Executions, Packages: r.Workspaces.Packages}, ws, run)
		return err
	}
	if o.trace == "-" {
		return a.Raw(write)
	}
	return writeDrawing(a, &resultdir.Target{Path: o.trace, Force: o.force}, write)
}
