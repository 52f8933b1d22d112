package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"e3/cmd/e3/internal/render"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/workspace"
)

// resultOptions say where a start leaves results for people.
type resultOptions struct {
	out       string
	of        []string
	overwrite bool
	run       *workspace.RunResult // whose results these are; nil: the workspace's
}

func (o *resultOptions) flags(f *pflag.FlagSet) {
	f.StringVarP(&o.out, "output", "o", "", "leave the outputs that no task reads in this `folder`, as files of your own")
	f.StringArrayVar(&o.of, "of", nil, "with --output: leave these outputs instead, as report or 'fit[*]' (repeatable)")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace results that were edited in the folder; without it they are kept")
}

// sayLeft reports what was done with the results. overwrite is the flag that replaces what was edited.
func sayLeft(a *app, left *resultdir.Left, overwrite string) error {
	var err error
	if a.JSON { // on one line, as the events of a start
		err = a.Document(left, false)
	} else {
		err = a.Reply(left, func(w *render.Sheet) { writeLeft(w, left) })
	}
	if err != nil {
		return err
	}
	const most = 10
	for _, k := range left.Kept[:min(len(left.Kept), most)] {
		a.Warnf("%s is left as it is: %s", human.Line(left.At(k.Path)), human.Line(k.Why))
	}
	if n := len(left.Kept) - most; n > 0 {
		a.Warnf("and %s more are left as they are", human.Count(n, "file"))
	}
	if slices.ContainsFunc(left.Kept, func(k resultdir.Kept) bool { return k.Yields }) {
		a.Notef("e3: to replace what was edited or was there before: %s", overwrite)
	}
	if len(left.Beside) > 0 {
		a.Notef("In folders of outputs, and none of them: %s", human.Line(human.Few(left.Beside)))
	}
	if len(left.Missing) > 0 {
		a.Notef("Not made yet: %s", human.Line(human.Few(left.Missing)))
	}
	if len(left.Earlier) > 0 {
		a.Notef("Of an earlier run, since the latest could not make them: %s", human.Line(human.Few(left.Earlier)))
	}
	return nil
}

func writeLeft(w *render.Sheet, left *resultdir.Left) {
	var parts []string
	part := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	part(len(left.Written), "written")
	part(len(left.Removed), "removed")
	part(left.Same, "unchanged")
	part(len(left.Kept), "kept")
	if len(parts) == 0 {
		parts = []string{"none"}
	}
	where := left.Folder
	if left.At("") == "" {
		where = "the project"
	}
	w.Line("Results in %s: %s", where, strings.Join(parts, ", "))
	const most = 5
	for _, p := range left.Written[:min(len(left.Written), most)] {
		w.Line("  %s", left.At(p))
	}
	if n := len(left.Written) - most; n > 0 {
		w.Line("  … and %d more", n)
	}
}

// leaveResults leaves the results of a start. A run that failed leaves what the workspace has. The folder that the package file names
// holds those of the workspace, so a run with --set leaves its own only where -o says so.
func leaveResults(ctx context.Context, a *app, r *repo.Repo, ws string, o *startOptions, ended error) error {
	var exit *exitError
	if ended != nil && !errors.As(ended, &exit) || o.publish == "none" || ctx.Err() != nil {
		return ended
	}
	if o.results.out == "" {
		if plan, err := r.Workspaces.Datasets.ResultsPlan(ctx, ws); err != nil || plan.Dir == "" {
			return cmp.Or(ended, err)
		}
	}
	place, err := resultdir.PlaceOf(ctx, r, ws, o.results.out, o.results.of)
	run := o.results.run
	if run == nil || len(o.set) == 0 || o.as != "" || run.Outcome == nil { // the workspace has them
		run = nil
	} else if o.results.out == "" && place != nil {
		shown, other := human.Line(place.Shown), human.Line(place.Shown)
		if place.Choice.InPlace {
			shown, other = "the project", "results/"
		}
		a.Notef("%s stays as it is: this run had values of its own. To leave its results: -o %s", shown, other)
		return ended
	}
	if err == nil && place != nil {
		var left *resultdir.Left
		how := resultdir.LeaveOptions{Run: run, Overwrite: o.results.overwrite, Now: a.Now}
		if left, err = place.Leave(ctx, how); err == nil {
			err = sayLeft(a, left, "--overwrite")
		}
	}
	if err == nil {
		return ended
	}
	if ended == nil {
		return err
	}
	a.Warnf("%v", err)
	return ended
}

// checkResults refuses a faulty folder before anything runs.
func checkResults(ctx context.Context, r *repo.Repo, ws string, o *startOptions) error {
	if err := checkResultFlags(&o.results, o.publish); err != nil {
		return err
	}
	if o.results.out == "" {
		if plan, err := r.Workspaces.Datasets.ResultsPlan(ctx, ws); err != nil || plan.Dir == "" || o.publish == "none" {
			return nil // if it cannot be read, what starts next says so
		}
	}
	_, err := resultdir.PlaceOf(ctx, r, ws, o.results.out, o.results.of)
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) || errors.Is(err, workspace.ErrNotDeployed) || errors.Is(err, fs.ErrNotExist) {
		return nil // the start itself says so
	}
	return err
}

// checkResultFlags refuses what can be told without a repository.
func checkResultFlags(o *resultOptions, publish string) error {
	switch {
	case o.out == "" && len(o.of) > 0:
		return usagef("--of is for --output <folder>")
	case o.out != "" && publish == "none":
		return usagef("--output leaves what a run has put into the workspace, and with --publish none it puts nothing there")
	case o.out != "":
		return resultdir.CheckFolder(o.out)
	}
	return nil
}

// getArgument gets what an argument of "e3 get" means: one dataset, or the results of a workspace, or outputs that match a
// pattern.
func getArgument(ctx context.Context, a *app, r *repo.Repo, arg string, o *getOptions) error {
	arg, err := a.named(ctx, r, arg)
	if err != nil {
		return err
	}
	return a.inOnly(ctx, r, arg, func(name string) error {
		ws, of, inWorkspace := strings.Cut(name, ".")
		switch {
		case strings.ContainsAny(ws, "[*?"):
			return unnamed(name, "<workspace>.<name>")
		case o.past() && (!inWorkspace || of == ""):
			return usagef("--run and --execution are for the output of one task: %s.<task>", ws)
		case !inWorkspace && o.out != "":
			return getResults(ctx, a, r, ws, of, o)
		}
		err := runGet(ctx, a, r, name, o)
		var unknown *workspace.UnknownError
		if events.IsPattern(of) && errors.As(err, &unknown) && !o.past() { // else an item has that name
			return getResults(ctx, a, r, ws, of, o)
		}
		return err
	})
}

// getResults leaves the results of a workspace, or the outputs that match a pattern, in a folder.
func getResults(ctx context.Context, a *app, r *repo.Repo, ws, of string, o *getOptions) error {
	if o.out == "" {
		return usagef("%s may mean several outputs: name a folder for them with -o, as: -o results/", human.Quoted(of))
	}
	var selected []string
	if of != "" {
		selected = []string{of}
	}
	place, err := resultdir.PlaceOf(ctx, r, ws, o.out, selected)
	if err != nil {
		return err
	}
	left, err := place.Leave(ctx, resultdir.LeaveOptions{Overwrite: o.force, Now: a.Now})
	if err == nil {
		err = sayLeft(a, left, "--force")
	}
	if err == nil && len(left.Kept) > 0 {
		return &exitError{exitFailed}
	}
	return err
}
