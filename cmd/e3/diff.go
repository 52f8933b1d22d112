package main

import (
	"cmp"
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
	commit   bool
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

With --commit, sides are branches of git, or commits by the beginning of their names: main, 3f9a2c1, HEAD, prod@main. A side
is the latest completed run that began there. What a branch means follows from the runs on record, not from the repository of git.

Items of a matrix that differ alike are one line; --all has each on its own.

Durations are shown, but do not count as differences, and neither does a result from the cache. Facts that neither side has
kept, or that only a run can show, are marked as such. Nothing is written. With --exit-code the exit code is 1 if anything
differs or cannot be compared, as that of "git diff".`,
		Example: `  e3 diff . prod                 # the latest run, and what the next start would see
  e3 diff . prod@-1 @            # the latest run and the one before
  e3 diff . prod@018f prod       # a run and the workspace now
  e3 diff . prod staging         # two workspaces
  e3 diff --commit main 3f9a2c1  # the latest completed runs at a branch and at a commit
  e3 diff . prod@ --exit-code && echo unchanged since`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			location, sides, err := a.diffArgs(cmd, args, &o)
			if err != nil {
				return err
			}
			return a.within(ctx, a.openToRead, location, func(r *repo.Repo) error {
				was, is, err := a.sides(ctx, r, sides, &o)
				if err != nil {
					return err
				}
				return runDiff(ctx, a, r, was, is, &o)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every change, every item and every duration, not only the first and the notable ones")
	f.BoolVar(&o.commit, "commit", false, "A and B are commits or branches of git")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs")
	return a.answers(cmd, compare.Difference{})
}

// diffArgs are the repository and the two sides; the second may be "". A branch may have the form of a path, so with
// --commit the first of two arguments is the repository only if it is a dot, or is one.
func (a *app) diffArgs(cmd *cobra.Command, args []string, o *diffOptions) (location string, sides []string, err error) {
	if o.commit && len(args) == 2 && strings.Trim(args[0], "./") != "" {
		if _, err := repo.Find(args[0]); err != nil && !repo.IsURL(args[0]) {
			return a.location(), args, nil
		}
	}
	if o.commit && len(args) == 1 {
		return a.location(), pad(args, 2), nil
	}
	return a.positional(cmd, args, "[A]", "[B]")
}

// sides reads the two sides. Where the first names no workspace, the only one is meant.
func (a *app) sides(ctx context.Context, r *repo.Repo, texts []string, o *diffOptions) (was, is compare.Side, err error) {
	parse, named := compare.ParseSide, texts[0] != "" && !strings.HasPrefix(texts[0], "@")
	if o.commit {
		parse, named = compare.ParseCommit, strings.Index(texts[0], "@") > 0
	}
	ws := ""
	if !named {
		if ws, err = a.only(ctx, r); err != nil {
			return was, is, err
		}
	}
	if was, is, err = sides(parse, cmp.Or(texts[0], ws), texts[1], ws); err != nil {
		err = usagef("%v; see: e3 diff --help", err)
	}
	return was, is, err
}

// sides reads two sides, of which the first may be in a given workspace. The second may be missing.
func sides(parse func(text, ws string) (compare.Side, error), a, b, ws string) (was, is compare.Side, err error) {
	if was, err = parse(a, ws); err != nil {
		return was, is, err
	}
	if b != "" {
		is, err = parse(b, was.Workspace)
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
