package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/exportimport"
	"e3/internal/human"
	"e3/internal/settings"
	"e3/workspace"
)

func newWorkspaceImport(a *app) *cobra.Command {
	var o exportimport.ImportOptions
	cmd := &cobra.Command{
		Use:   "import [repo] <in.zip> [workspace]",
		Short: "Make a workspace from a zip, as it was when it was exported",
		Long: `Make a workspace from a zip of e3 workspace export, with its package, its datasets, its run and the run's executions. It
keeps its name unless you give another. A start then has nothing to do.

A faulty zip changes nothing, and an import that was interrupted can be repeated.`,
		Example: `  e3 workspace import . prod-backup.zip
  e3 workspace import . prod-backup.zip staging`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && isRegular(args[0]) { // a path may look like a repository
				args = append([]string{a.location()}, args...)
			}
			location, rest, err := a.positional(cmd, args, "<in.zip>", "[workspace]")
			if err != nil {
				return err
			}
			o.NewWorkspace, o.Workspace = true, rest[1]
			if o.Workspace != "" {
				if err := checkName("workspace", o.Workspace); err != nil {
					return err
				}
			}
			return importZip(cmd.Context(), a, location, rest[0], o)
		},
	}
	importFlags(cmd, &o)
	return a.answers(cmd, exportimport.Imported{})
}

func newPackageImport(a *app) *cobra.Command {
	var o exportimport.ImportOptions
	var as string
	cmd := &cobra.Command{
		Use:   "import [repo] <in.zip>",
		Short: "Import a package, and the executions that come with it",
		Long: `Import a zip of e3 workspace export or e3 package export: the package under its name and version, the executions, marked
with their origin, and the run. Results computed there are cache hits here. Results of this repository are never overwritten,
except a failure by a success.

Exports of the TypeScript e3 can be imported too. Their results can be read; their tasks cannot be run here.

A faulty zip changes nothing, and an import that was interrupted can be repeated.`,
		Example: `  e3 package import . prod-backup.zip
  e3 package import . prod-backup.zip --as forecast@1.0.0-from-ann`,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, "<in.zip>")
			if err != nil {
				return err
			}
			if o.As.Name, o.As.Version, err = splitAs(as); err != nil {
				return err
			}
			return importZip(cmd.Context(), a, location, rest[0], o)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "another name and version for the package, as name@version")
	importFlags(cmd, &o)
	return a.answers(cmd, exportimport.Imported{})
}

func importFlags(cmd *cobra.Command, o *exportimport.ImportOptions) {
	cmd.Flags().BoolVar(&o.RequireSigned, "require-signed", false, "refuse a zip without a signature by a key that this repository trusts")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only list what would be imported")
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func importZip(ctx context.Context, a *app, location, file string, o exportimport.ImportOptions) error {
	info, err := os.Stat(file) // to open a pipe would wait for its other end
	switch {
	case errors.Is(err, os.ErrNotExist):
		return usagef("there is no file %s", file)
	case err != nil:
		return err
	case info.IsDir():
		return usagef("%s is not a file, but a folder", file)
	case !info.Mode().IsRegular():
		return usagef("%s is not a file; a zip is read more than once, so it cannot come through a pipe", file)
	}
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() // it is only read
	if info, err = f.Stat(); err != nil {
		return err
	}
	collectOften()
	o.File = filepath.Base(file)
	var done func()
	o.Progress, done = bytesShown(a, "importing")
	res, err := results(a, r).Import(ctx, f, info.Size(), o)
	done()
	if err != nil {
		return importAdvice(fmt.Errorf("import %s: %w", file, err), file)
	}
	res.File = file
	for _, n := range res.Notes {
		a.Notef("note: %s", human.Line(n))
	}
	return a.Reply(res, func(w *render.Sheet) { writeImported(w, res) })
}

// importAdvice adds a command to the error of a name that is taken.
func importAdvice(err error, file string) error {
	var conflict *exportimport.ConflictError
	var name *exportimport.NameError
	switch {
	case errors.As(err, &conflict):
		return fmt.Errorf("%w; give it another name with: e3 package import <repo> %s --as %s", err, human.Quoted(file), human.Quoted(otherVersion(conflict.Package)))
	case errors.As(err, &name):
		return &usageError{fmt.Errorf("%w: e3 workspace import <repo> %s <workspace>", err, human.Quoted(file))}
	case errors.Is(err, workspace.ErrExists):
		return fmt.Errorf("%w; give it another name with: e3 workspace import <repo> %s <workspace>", err, human.Quoted(file))
	}
	return err
}

// otherVersion is an unused version of a package.
func otherVersion(p workspace.PackageRef) string {
	version := p.Version
	if len(version) > 50 { // of 64
		version = version[:50]
	}
	return p.Name + "@" + version + "-" + prefix(p.Hash, 8)
}

// writeImported prints an import in the form of seed 003, with more lines if not everything was imported.
func writeImported(w *render.Sheet, i *exportimport.Imported) {
	done := "Imported"
	if i.DryRun {
		done = "Would import"
	}
	w.Line("%s %s", done, i.Package)
	if i.Executions > 0 {
		how := "marked as imported from"
		if i.Taken() == 0 {
			how = "exported by"
		}
		w.Line("  Executions: %d (%s %s)", i.Executions, how, cmp.Or(i.From, i.Source))
	}
	if i.Outcomes[executions.Added] < i.Executions {
		for out := executions.Added; out <= executions.SkippedUnfinished; out++ {
			if n := i.Outcomes[out]; n > 0 {
				w.Line("    %d %s", n, out)
			}
		}
	}
	if i.Workspace != "" {
		w.Line("  Workspace: %s", i.Workspace)
	}
	if i.Verdict.Trust != settings.Unsigned {
		w.Line("  Signature: %s", i.Verdict)
	}
}
