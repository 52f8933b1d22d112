package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/insight/compare"
	"e3/internal/repo"
)

type diffOptions struct {
	all      bool
	exitCode bool
}

func newDiff(a *app) *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff [repo] <A> [B]",
		Short: "Show what differs between two runs, two workspaces, or a run and now",
		Long: `Show what differs between two sides: inputs (which files of a directory, values before and after), how tasks are declared
and how they ended, outputs, metrics (outputs marked "kind: metrics", compared by key), and durations. A side is

  prod         a workspace as it is now
  prod@        its latest run
  prod@-1      the run before that (also prod@~1; prod@-2 and so on)
  prod@018f    a run by the beginning of its id, also an imported one
  prod@next    what the next start would see: package file and inputs on disk, and their results in the cache

With one side, a run is compared with its workspace as it is now, and a workspace's latest run with what the next start would
see. In B the workspace may be left out where it is that of A: @, @-1, @next.

Durations are shown, but do not count as differences, and neither does a result from the cache. Facts that neither side has
kept, or that only a run can show, are marked as such. Nothing is written. With --exit-code the exit code is 1 if anything
differs or cannot be compared, as that of "git diff".`,
		Example: `  e3 diff . prod                 # the latest run, and what the next start would see
  e3 diff . prod@-1 @            # the latest run and the one before
  e3 diff . prod@018f prod       # a run and the workspace now
  e3 diff . prod staging         # two workspaces
  e3 diff . prod@ --exit-code && echo unchanged since`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			if args[0] == "" || strings.HasPrefix(args[0], "@") {
				ws, err := a.only(ctx, r)
				if err != nil {
					return err
				}
				args[0] = ws + args[0]
			}
			was, is, err := sides(args[0], args[1])
			if err != nil {
				return usagef("%v; see: e3 diff --help", err)
			}
			return runDiff(ctx, a, r, was, is, &o)
		}, "[A]", "[B]"),
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every change and every duration, not only the first and the notable ones")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs")
	return a.answers(cmd, compare.Difference{})
}

// sides reads the arguments; the second may be missing.
func sides(a, b string) (was, is compare.Side, err error) {
	if was, err = compare.ParseSide(a, ""); err != nil {
		return was, is, err
	}
	if b != "" {
		is, err = compare.ParseSide(b, was.Workspace)
		return was, is, err
	}
	is = compare.Side{Workspace: was.Workspace}
	if was.What == compare.Workspace {
		was.What, is.What = compare.Earlier, compare.Next
	}
	return was, is, nil
}

func runDiff(ctx context.Context, a *app, r *repo.Repo, was, is compare.Side, o *diffOptions) error {
	d, err := compare.Compare(ctx, comparedFrom(r), was, is)
	if errors.Is(err, compare.ErrSyntax) {
		return usagef("%v", err)
	}
	if err != nil {
		return err
	}
	err = a.Reply(d, func(w *render.Sheet) {
		t := diffText{w: w, d: d, st: w.Style, all: o.all}
		t.write()
	})
	if err == nil && o.exitCode && d.Differs {
		return &exitError{exitFailed}
	}
	return err
}

// comparedFrom returns the stores that a comparison reads.
func comparedFrom(r *repo.Repo) compare.Stores {
	return compare.Stores{
		Records: r.Records, Objects: r.Objects, Executions: r.Executions,
		Workspaces: r.Workspaces.View(), Runs: r.Workspaces.Runs, Packages: r.Workspaces.Packages,
	}
}
