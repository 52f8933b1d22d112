package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/pkgref"
	"e3/internal/repo"
	"e3/workspace"
)

func newWorkspace(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "workspace",
		Short: "Create, deploy, list and remove workspaces",
		Long: `A workspace is a named tree of datasets with a package deployed in it. Deployed from a package file it follows the
file and its inputs; deployed from a registered package it stays as it is.`,
	})
	cmd.AddCommand(newWorkspaceCreate(a), newWorkspaceDeploy(a), newWorkspaceList(a), newStatus(a, "status"), newWorkspaceRemove(a), newWorkspaceExport(a), newWorkspaceImport(a))
	return cmd
}

// workspaceAnswer is a workspace that a command has made, changed or removed.
type workspaceAnswer struct {
	Workspace    string                `json:"workspace"`
	Package      *workspace.PackageRef `json:"package,omitempty"`      // the deployed one
	File         string                `json:"file,omitempty"`         // the package file
	ImportedRuns *int                  `json:"importedRuns,omitempty"` // removed imported runs of a workspace that is gone
}

func newWorkspaceCreate(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "create [repo] <workspace>",
		Short: "Make an empty workspace",
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			ws := args[0]
			if err := checkName("workspace", ws); err != nil {
				return err
			}
			if err := r.Workspaces.Create(ctx, ws); err != nil {
				return err
			}
			return a.Reply(workspaceAnswer{Workspace: ws}, func(w *render.Sheet) { fmt.Fprintf(w, "Created workspace %s\n", ws) })
		}, "<workspace>"),
	}, workspaceAnswer{})
}

func newWorkspaceDeploy(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "deploy [repo] <workspace> <package|file>",
		Short: "Put a package into a workspace",
		Long: `Put a package into a workspace: a registered one by name[@version], or a package file by its path. Without a version
the highest release is deployed, or pre-release if there is no release, but never a snapshot that an export made of a workspace.
Values that were set stay if the input keeps its name and kind.`,
		Example: `  e3 workspace deploy . prod forecast@1.0.0
  e3 workspace deploy . dev ./e3.yaml`,
		ValidArgsFunction: completeDeploy(a),
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			return runDeploy(ctx, a, r, args[0], args[1])
		}, "<workspace>", "<package or file>"),
	}, workspaceAnswer{})
}

// isFile reports whether the argument of deploy is a path rather than the name of a package.
func isFile(s string) bool {
	if strings.HasPrefix(s, "@") {
		return false // the scope of a package name; a file would be ./@…
	}
	return strings.ContainsAny(s, `/\`) || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(s)))
}

func runDeploy(ctx context.Context, a *app, r *repo.Repo, ws, what string) error {
	var ref workspace.PackageRef
	doc := workspaceAnswer{Workspace: ws, Package: &ref}
	if isFile(what) {
		collectOften()
		built, err := r.Workspaces.Deployer.DeployFile(ctx, ws, what)
		if err != nil {
			return missingFile(err)
		}
		a.warn(built.Warnings)
		sayDeployed(a, shown(r.Location, r), ws, built)
		ref = workspace.PackageRef{Name: built.Package.Name, Version: built.Package.Version, Hash: built.Hash}
		doc.File = built.Link.File
	} else {
		name, version := pkgref.Split(what)
		var err error
		ref, err = r.Workspaces.Packages.Find(ctx, name, version)
		if _, statErr := os.Stat(what); err != nil && statErr == nil {
			return fmt.Errorf("%w; the file of that name is ./%s", err, what)
		}
		if err != nil {
			return err
		}
		if err := r.Workspaces.Deployer.Deploy(ctx, ws, ref); err != nil {
			return err
		}
	}
	return a.Reply(doc, func(w *render.Sheet) { fmt.Fprintf(w, "Deployed %s in workspace %s\n", ref, ws) })
}

// workspaceList is the workspaces of a repository.
type workspaceList struct {
	Workspaces []workspace.Deployed `json:"workspaces"`
}

func newWorkspaceList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "list [repo]",
		Short: "List the workspaces",
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			return listWorkspaces(ctx, a, r)
		}),
	}, workspaceList{})
}

func listWorkspaces(ctx context.Context, a *app, r *repo.Repo) error {
	list, damaged, err := r.Workspaces.Deployer.List(ctx)
	if err != nil {
		return err
	}
	if damaged != nil && a.JSON {
		return damaged
	}
	return errors.Join(damaged, a.Reply(workspaceList{list}, func(w *render.Sheet) {
		t := &render.Table{}
		for _, ws := range list {
			if ws.Package == nil {
				t.Row(ws.Workspace, "nothing deployed")
			} else {
				t.Row(ws.Workspace, ws.Package.String(), human.Stamp(ws.DeployedAt.Time), ws.File)
			}
		}
		w.Table(t, "")
	}))
}

func newWorkspaceRemove(a *app) *cobra.Command {
	var force bool
	o := cancelOptions{reason: "the workspace is being removed"}
	cmd := &cobra.Command{
		Use:   "remove [repo] <workspace>",
		Short: "Remove a workspace",
		Long: `Remove a workspace with its datasets and run records. Executions and events stay, so its results are still in the cache. Tasks
that a dead run of it has queued, and that no worker has begun, are withdrawn.

A running workspace is removed only with --force, which cancels the run first (e3 cancel). A workspace that is being deployed
is never removed.

If there is no workspace of that name, the runs that were imported under the name are removed.`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			ws := args[0]
			remove := r.Workspaces.Cleaner.Remove
			if force {
				options, err := cancelling(a, o)
				if err != nil {
					return err
				}
				remove = func(ctx context.Context, ws string) error { return r.Workspaces.Runner.RemoveForce(ctx, ws, options) }
			}
			err := remove(ctx, ws)
			var busy *workspace.BusyError
			switch {
			case errors.Is(err, workspace.ErrNotFound):
				return removeRuns(ctx, a, r, ws)
			case errors.As(err, &busy) && busy.Operation == record.Dataflow && !force:
				return fmt.Errorf("%w; cancel the run and remove it with: e3 workspace remove --force %s %s", err, human.Quoted(shown("", r)), human.Quoted(ws))
			case err != nil:
				return err
			}
			return a.Reply(workspaceAnswer{Workspace: ws}, func(w *render.Sheet) { fmt.Fprintf(w, "Removed workspace %s\n", human.Line(ws)) })
		}, "<workspace>"),
	}
	cmd.Flags().BoolVar(&force, "force", false, "cancel the run of the workspace first, if there is one, and wait until it has ended")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "with --force: how long to wait for the end of the run; 0: for ever")
	return a.answers(cmd, workspaceAnswer{})
}

// removeRuns removes the imported runs under a name that no workspace has.
func removeRuns(ctx context.Context, a *app, r *repo.Repo, ws string) error {
	n, err := r.Workspaces.Cleaner.RemoveRuns(ctx, ws)
	if err != nil {
		return err
	}
	return a.Reply(workspaceAnswer{Workspace: ws, ImportedRuns: &n}, func(w *render.Sheet) {
		fmt.Fprintf(w, "Removed %s of %s; there is no workspace of that name\n", human.Count(n, "imported run"), human.Line(ws))
	})
}

// definition reads a package file, or standard input for "-", and returns the folder that its paths are relative to.
func (a *app) definition(file string) (def *manifest.Definition, base string, err error) {
	if file != "-" {
		def, err = manifest.ParseFile(file)
		return def, filepath.Dir(file), missingFile(err)
	}
	data, err := io.ReadAll(io.LimitReader(a.stdin, manifest.MaxFileSize+1))
	if err != nil {
		return nil, "", fmt.Errorf("read standard input: %w", err)
	}
	def, err = manifest.Parse("<stdin>", data)
	return def, ".", err
}

// missingFile makes a missing package file an error of usage.
func missingFile(err error) error {
	var in *workspace.InputError
	if errors.Is(err, os.ErrNotExist) && !errors.As(err, &in) {
		return usagef("%v", err)
	}
	return err
}
