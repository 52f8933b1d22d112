package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/workspace"
)

// A repository with one workspace needs no names of workspaces, and neither does one in which all others are experiments with that
// one (start --as). A name is first taken as it is written; only if there is no such workspace, it is looked for in the only one.

// workspaceArg reads the arguments of a command whose only argument beside the repository is a workspace; "" is the only one.
func (a *app) workspaceArg(cmd *cobra.Command, args []string) (location, ws string, err error) {
	if len(args) == 1 && notation.ValidName(args[0]) { // also where a folder has that name
		return a.location(), args[0], nil
	}
	location, rest, err := a.positional(cmd, args, "[workspace]")
	if err != nil {
		return "", "", err
	}
	return location, rest[0], nil
}

// onOne makes a command of what is to be done with a workspace, which need not be named if it is the only one.
func (a *app) onOne(open opener, do func(context.Context, *repo.Repo, string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		location, ws, err := a.workspaceArg(cmd, args)
		if err != nil {
			return err
		}
		return a.within(cmd.Context(), open, location, func(r *repo.Repo) error {
			if ws, err = a.named(cmd.Context(), r, ws); err != nil {
				return err
			}
			return do(cmd.Context(), r, ws)
		})
	}
}

// named is the workspace of an argument: the only one if that is "".
func (a *app) named(ctx context.Context, r *repo.Repo, ws string) (string, error) {
	if ws != "" {
		return ws, nil
	}
	return a.only(ctx, r)
}

// only returns the only workspace of a repository, or the one whose experiments all others are.
func (a *app) only(ctx context.Context, r *repo.Repo) (string, error) {
	names, err := r.Workspaces.List(ctx)
	switch {
	case err != nil:
		return "", err
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", usagef("there are no workspaces yet; make one with: e3 start -f e3.yaml")
	}
	main, err := r.Workspaces.Deployer.Main(ctx, names)
	if err != nil {
		return "", err
	}
	if main == "" {
		return a.ofFolder(ctx, r, names)
	}
	a.Introduce("Workspace %s; to mean an experiment, name it: %s", human.Line(main), human.Line(human.Few(slices.DeleteFunc(names, func(ws string) bool { return ws == main }))))
	return main, nil
}

// ofFolder returns the workspace that follows the package file of this folder, or of the nearest one above: each clone
// of a project that shares a repository has its own.
func (a *app) ofFolder(ctx context.Context, r *repo.Repo, names []string) (string, error) {
	found, file := "", ""
	for _, ws := range names {
		p, err := r.Workspaces.Datasets.Project(ctx, ws)
		switch {
		case errors.Is(err, workspace.ErrNotDeployed):
		case err != nil:
			return "", err
		case p.File == "" || !holdsWorkingFolder(p.Folder):
		case file == "" || len(p.Folder) > len(filepath.Dir(file)):
			found, file = ws, p.File
		case p.Folder == filepath.Dir(file): // none of the two is meant
			found = ""
		}
	}
	if found == "" {
		return "", usagef("there are several workspaces: name one of %s", human.Few(names))
	}
	a.Notef("Workspace %s, which follows %s", human.Line(found), human.Line(beside(file)))
	return found, nil
}

// errUnnamed is wrapped if an argument names a dataset or task, but no workspace.
var errUnnamed = errors.New("no workspace is named")

// inOnly calls run with an argument <workspace>.<name>. If it names no workspace, run is called with the name in the
// repository's only workspace.
func (a *app) inOnly(ctx context.Context, r *repo.Repo, arg string, run func(arg string) error) error {
	do := func(arg string) error { return orPending(ctx, r, arg, run(arg)) }
	err := do(arg)
	var unknown *workspace.UnknownError
	head, _, _ := strings.Cut(arg, ".")
	head, _, _ = strings.Cut(head, "[")
	switch {
	case errors.Is(err, errUnnamed):
		ws, fault := a.only(ctx, r)
		if fault != nil {
			var use *usageError
			if errors.As(fault, &use) {
				return usagef("%v; %w", err, fault)
			}
			return fault
		}
		if arg == ws {
			return usagef("%q is the workspace: name what is in it, as %s.report; see: e3 list <repo> %[2]s", arg, ws)
		}
		again := do(ws + "." + arg)
		if head, rest, cut := cutAny(arg, "/:"); cut && has[*usageError](again) {
			return usagef("%q: what is in a workspace follows a dot, as: %s.%s", arg, head, rest)
		}
		return again
	case errors.As(err, &unknown) && unknown.What == "workspace" && (unknown.Name == head || events.IsPattern(head)) && len(unknown.Known) > 0:
		ws := unknown.Known[0]
		if len(unknown.Known) > 1 {
			var fault error
			if ws, fault = a.only(ctx, r); fault != nil {
				return err // none is meant
			}
		}
		again := do(ws + "." + arg)
		if errors.As(again, new(*pendingError)) {
			return again
		}
		if errors.As(again, new(*workspace.UnknownError)) || errors.As(again, new(*usageError)) ||
			errors.As(again, new(*resultdir.RefusedError)) {
			return err // the name means nothing there either: what was asked for is missing
		}
		return again
	}
	return err
}

// cutAny cuts a text at the first of some characters.
func cutAny(text, chars string) (before, after string, found bool) {
	i := strings.IndexAny(text, chars)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// unnamed is the error of an argument without a workspace.
func unnamed(arg, form string) error {
	return usagef("%q is not %s%w", arg, form, quiet{errUnnamed})
}

// quiet is an error that is there to be found, and has no text.
type quiet struct{ error }

func (quiet) Error() string { return "" }

func (q quiet) Unwrap() error { return q.error }
