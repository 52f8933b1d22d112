package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/exportimport"
	"e3/internal/human"
	"e3/internal/pkgref"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/internal/settings"
)

// results returns the repository as exports and imports use it.
func results(a *app, r *repo.Repo) *exportimport.Repository {
	return &exportimport.Repository{
		Records: r.Records, Objects: r.Objects, Locks: r.Records, Workspaces: r.Workspaces, Executions: r.Executions,
		Curator: executions.NewCurator(r.Executions, r.Records, a.Now), Now: a.Now,
		User: repo.UserAtHost(), Location: r.Root, Version: a.version(),
	}
}

func newWorkspaceExport(a *app) *cobra.Command {
	var o exportimport.ExportOptions
	cmd := &cobra.Command{
		Use:   "export [repo] <workspace> <out.zip>",
		Short: "Write a workspace with its latest run to a zip",
		Long: `Write a workspace to a zip: its package, its datasets, its latest ended run with all attempts, and the executions that made the
workspace's results, from any run, with their logs and outputs. After an import, a start has no more to do than a start here.
Tasks without a result are listed with the reason.

The zip appears complete or not at all. The same state gives the same bytes, except in the entry that names the exporter. If you
have a key (e3 key), the zip is signed.`,
		Example: `  e3 workspace export . prod prod-backup.zip
  e3 workspace export . prod to-publish.zip --no-data`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, "<workspace>", "<out.zip>")
			if err != nil {
				return err
			}
			return exportZip(cmd.Context(), a, location, rest[1], &o, func(ctx context.Context, _ *repo.Repo, from *exportimport.Repository) (*exportimport.Exported, error) {
				return from.ExportWorkspace(ctx, rest[0], rest[1], o)
			})
		},
	}
	cmd.Flags().BoolVar(&o.AllHistory, "all-history", false, "every execution of the package's tasks, not only those of the latest run")
	exportFlags(cmd, &o)
	return a.answers(cmd, exportimport.Exported{})
}

func newPackageExport(a *app) *cobra.Command {
	var o exportimport.ExportOptions
	cmd := &cobra.Command{
		Use:   "export [repo] <name[@version]> <out.zip>",
		Short: "Write a registered package to a zip",
		Long: `Write a registered package to a zip: its tasks and its default datasets. Without a version, the highest release is exported.
Results are exported with their workspace: e3 workspace export.`,
		Example: `  e3 package export . forecast@1.0.0 forecast.zip`,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, "<name[@version]>", "<out.zip>")
			if err != nil {
				return err
			}
			return exportZip(cmd.Context(), a, location, rest[1], &o, func(ctx context.Context, r *repo.Repo, from *exportimport.Repository) (*exportimport.Exported, error) {
				name, version := pkgref.Split(rest[0])
				ref, err := r.Workspaces.Packages.Find(ctx, name, version)
				if err != nil {
					return nil, err
				}
				return from.ExportPackage(ctx, ref, rest[1], o)
			})
		},
	}
	exportFlags(cmd, &o)
	return a.answers(cmd, exportimport.Exported{})
}

func exportFlags(cmd *cobra.Command, o *exportimport.ExportOptions) {
	cmd.Flags().BoolVar(&o.NoData, "no-data", false, `leave out the content of inputs that the package file marks with "export: false"`)
	cmd.Flags().BoolVar(&o.Images, "images", false, "take along the images in which tasks run")
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace the file if it exists")
}

type exportFunc func(context.Context, *repo.Repo, *exportimport.Repository) (*exportimport.Exported, error)

// exportZip is the common part of both exports. It completes the options before it calls do.
func exportZip(ctx context.Context, a *app, location, file string, o *exportimport.ExportOptions, do exportFunc) error {
	if file == "" {
		return usagef("the name of the zip is empty")
	}
	if err := resultdir.CheckFile(file); err != nil {
		return err
	}
	if err := resultdir.CheckParent(file); err != nil {
		return err
	}
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	if o.Key, err = settings.FindKey(a.Getenv); err != nil && !errors.Is(err, settings.ErrNoKey) {
		return err
	}
	collectOften()
	var done func()
	o.Progress, done = bytesShown(a, "exporting")
	res, err := do(ctx, r, results(a, r))
	done()
	if errors.Is(err, exportimport.ErrFileExists) {
		return fmt.Errorf("%w; to replace it use --force", err)
	}
	if err != nil {
		return err
	}
	res.File = file
	for _, n := range res.Notes {
		a.Notef("note: %s", human.Line(n))
	}
	return a.Reply(res, func(w *render.Sheet) { writeExported(w, res) })
}

// bytesShown shows the progress in bytes on a terminal. done removes the line.
func bytesShown(a *app, doing string) (progress func(done, total int64), done func()) {
	live := a.Live()
	live.Unit = human.Bytes
	live.Start(doing, a.Now())
	var most atomic.Int64
	return func(n, total int64) {
		for { // several goroutines report, in any order
			was := most.Load()
			if n <= was {
				return
			}
			if most.CompareAndSwap(was, n) {
				break
			}
		}
		live.Progress(n, total)
	}, live.Close
}

// writeExported prints an export in the form of seed 003.
func writeExported(w *render.Sheet, e *exportimport.Exported) {
	if e.Workspace == "" {
		w.Line("Exported package %s", e.Package)
	} else {
		w.Line("Exported workspace %s", e.Workspace)
		w.Line("  Package: %s", e.Package)
		if e.RunID != "" {
			w.Line("  Run: %s", human.Short(e.RunID))
		}
		w.Line("  Executions: %d", e.Executions)
	}
	w.Line("  Total size: %s", human.Bytes(e.Size))
	if e.Signer != nil {
		w.Line("  Signed by: %s", e.Signer.Key)
	}
}
