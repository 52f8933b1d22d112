package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/events"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/workspace"
)

// A repository with one workspace needs no names of workspaces. A name is first taken as it is written; only if there is no
// such workspace, it is looked for in the only one.

// workspaceArg reads the arguments of a command whose only argument beside the repository is a workspace.
func (a *app) workspaceArg(cmd *cobra.Command, args []string) (location, ws string, err error) {
	if len(args) == 1 && notation.ValidName(args[0]) { // also where a folder has that name
		return a.location(), args[0], nil
	}
	location, rest, err := a.positional(cmd, args, 1, "<workspace>")
	if err != nil {
		return "", "", err
	}
	if rest[0] != "" {
		return location, rest[0], nil
	}
	ws, err = a.only(cmd.Context(), location)
	return location, ws, err
}

// only returns the only workspace of a repository.
func (a *app) only(ctx context.Context, location string) (string, error) {
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return "", err
	}
	defer r.Close()
	names, err := r.Workspaces.List(ctx)
	switch {
	case err != nil:
		return "", err
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0:
		return "", usagef("there are no workspaces yet; make one with: e3 start -f e3.yaml")
	}
	return "", usagef("there are several workspaces: name one of %s", human.Few(names))
}

// errUnnamed is wrapped if an argument names a dataset or task, but no workspace.
var errUnnamed = errors.New("no workspace is named")

// inOnly calls run with an argument <workspace>.<name>. If it names no workspace, run is called with the name in the
// repository's only workspace.
func (a *app) inOnly(ctx context.Context, location, arg string, run func(arg string) error) error {
	do := func(arg string) error { return a.orPending(ctx, location, arg, run(arg)) }
	err := do(arg)
	var unknown *workspace.UnknownError
	head, _, _ := strings.Cut(arg, ".")
	head, _, _ = strings.Cut(head, "[")
	switch {
	case errors.Is(err, errUnnamed):
		ws, fault := a.only(ctx, location)
		if fault != nil {
			var use *usageError
			if errors.As(fault, &use) {
				return usagef("%v; %w", err, fault)
			}
			return fault
		}
		return do(ws + "." + arg)
	case errors.As(err, &unknown) && unknown.What == "workspace" && (unknown.Name == head || events.IsPattern(head)) && len(unknown.Known) == 1:
		again := do(unknown.Known[0] + "." + arg)
		if errors.As(again, new(*pendingError)) {
			return again
		}
		if errors.As(again, new(*workspace.UnknownError)) || errors.As(again, new(*usageError)) {
			return err // the name means nothing there either: what was asked for is missing
		}
		return again
	}
	return err
}

// unnamed is the error of an argument without a workspace.
func unnamed(arg, form string) error {
	return usagef("%q is not %s%w", arg, form, quiet{errUnnamed})
}

// quiet is an error that is there to be found, and has no text.
type quiet struct{ error }

func (quiet) Error() string { return "" }

func (q quiet) Unwrap() error { return q.error }
