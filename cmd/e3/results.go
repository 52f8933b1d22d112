package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
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

// resultFolder is a folder for results, checked but perhaps not made yet.
type resultFolder struct {
	project *workspace.Project
	path    string // absolute
	rel     string // of a folder in the project: relative to the package file, with slashes; else ""
	shown   string
	of      []string
	flag    string // that replaces what was edited
}

// resultFolderOf finds the folder in which results of a workspace are to be left; nil if there is none.
func resultFolderOf(ctx context.Context, r *repo.Repo, ws string, o *resultOptions) (*resultFolder, error) {
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil {
		return nil, err
	}
	f := &resultFolder{project: p, shown: o.out, of: o.of, flag: "--overwrite"}
	if len(f.of) == 0 {
		f.of = p.Plan.Of
	}
	switch {
	case o.out != "":
		f.path, err = realPath(o.out)
	case p.Plan.Dir != "" && p.Folder != "":
		f.shown = p.Plan.Dir
		f.path = filepath.Join(p.Folder, filepath.FromSlash(p.Plan.Dir))
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f.shown = strings.TrimSuffix(filepath.ToSlash(f.shown), "/") + "/"
	return f, f.check(r)
}

// realPath is the absolute path of a folder that need not exist, below the real path of the current folder.
func realPath(dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if here, err = filepath.EvalSymlinks(here); err != nil {
		return "", err
	}
	return filepath.Join(here, dir), nil
}

// check refuses folders that must not hold results.
func (f *resultFolder) check(r *repo.Repo) error {
	if info, err := os.Stat(f.path); err == nil && !info.IsDir() {
		return usagef("results cannot lie in %s: there is a file of that name; name a folder, as: -o results/", f.shown)
	}
	if slices.Contains(strings.Split(filepath.ToSlash(f.path), "/"), repo.DirName) {
		return usagef("results cannot lie in %s: that is the repository's own folder; name another, as: -o results/", f.shown)
	}
	holds := []string{r.Root}
	if p := f.project; p.Folder != "" {
		holds = append(holds, p.Folder)
		if rel, err := filepath.Rel(p.Folder, f.path); err == nil && filepath.IsLocal(rel) && rel != "." {
			f.rel = filepath.ToSlash(rel)
		}
	}
	for _, inside := range holds {
		if repo.IsURL(inside) || f.rel != "" {
			continue
		}
		if is, err := holdsFolder(f.path, inside); err == nil && is {
			return usagef("results cannot lie in %s: it holds %s; name a folder for results alone, as: -o results/", f.shown, human.Line(inside))
		}
	}
	if f.rel == "" {
		return nil
	}
	if top, err := os.OpenRoot(f.project.Folder); err == nil {
		_, err = top.Stat(filepath.FromSlash(f.rel))
		top.Close()
		if err := f.escapes(err); err != nil {
			return err
		}
	}
	for i := range f.project.Inputs {
		in := &f.project.Inputs[i]
		if in.Source == record.FromDir && inside(f.rel, in.Location) {
			return usagef("results cannot lie in %s: the input %s takes in that folder (%s), so each start would change its own input; name another", f.shown, in.Name, in.Location)
		}
	}
	return nil
}

// inside reports whether a path is a folder or lies in it.
func inside(p, dir string) bool { return p == dir || dir == "." || strings.HasPrefix(p, dir+"/") }

// open makes the folder. In the project no symbolic link leads out of it.
func (f *resultFolder) open() (*os.Root, error) {
	if f.rel == "" {
		if err := os.MkdirAll(f.path, 0o777); err != nil {
			return nil, err
		}
		return os.OpenRoot(f.path)
	}
	top, err := os.OpenRoot(f.project.Folder)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	rel := filepath.FromSlash(f.rel)
	err = top.MkdirAll(rel, 0o777)
	if err == nil {
		var root *os.Root
		if root, err = top.OpenRoot(rel); err == nil {
			return root, nil
		}
	}
	return nil, cmp.Or(f.escapes(err), err)
}

// escapes is the error for a folder to which a link out of the project leads.
func (f *resultFolder) escapes(err error) error {
	if err == nil || !strings.Contains(err.Error(), "escapes") {
		return nil
	}
	return usagef("results cannot lie in %s: a symbolic link leads out of the project there; to write outside, name the folder itself with -o", f.shown)
}

// refuse says why a result may not have a path in the folder: an input would take it in.
func (f *resultFolder) refuse(p string) string {
	if f.rel == "" {
		return ""
	}
	p = path.Join(f.rel, p)
	for i := range f.project.Inputs {
		switch in := &f.project.Inputs[i]; {
		case in.Source == record.FromGlob && manifest.MatchGlob(in.Location, p):
			return fmt.Sprintf("the input %s would take it in, by its pattern %s", in.Name, in.Location)
		case in.Source == record.FromFile && in.Location == p:
			return "it is the input " + in.Name
		case in.Source == record.FromDir && inside(p, in.Location):
			return "it lies in the input " + in.Name
		}
	}
	return ""
}

// resultsLine tells what was left in a folder.
type resultsLine struct {
	Type   string `json:"type"` // results
	Folder string `json:"folder"`
	*resultdir.Report
	Missing []string `json:"missing"`           // outputs not made yet
	Earlier []string `json:"earlier,omitempty"` // outputs that only an earlier run made
}

// leave writes results into the folder and says what it did. It returns the number of files that it kept. run is a run whose
// results the workspace has not got; nil: those of the workspace are left.
func (f *resultFolder) leave(ctx context.Context, a *app, r *repo.Repo, ws string, run *workspace.RunResult, overwrite bool) (kept int, err error) {
	root, err := f.open()
	if err != nil {
		return 0, fmt.Errorf("results in %s: %w", f.shown, err)
	}
	defer root.Close()
	real, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return 0, err
	}
	into := &resultdir.Folder{Root: root, Objects: r.Objects, Records: repo.LocalOf(r), Key: r.Workspaces.Datasets.ResultsKey(ws, real), Now: a.Now}
	set := strings.Join(f.of, " ")
	results := func() (*workspace.Results, func(), error) { return r.Workspaces.Datasets.Results(ctx, ws, f.of) }
	var left map[string]*runview.TaskReport
	if run != nil {
		results = func() (*workspace.Results, func(), error) { return r.Workspaces.Datasets.ResultsOfRun(ctx, run, f.of) }
	} else if left, err = unmadeTasks(ctx, r, ws); err != nil {
		return 0, err
	} else if len(left) == 0 {
		source, err := r.Workspaces.Datasets.ResultSource(ctx, ws)
		if err != nil {
			return 0, err
		}
		if n, same := into.Unchanged(ctx, set, source); same {
			return 0, f.say(a, &resultdir.Report{Written: []string{}, Removed: []string{}, Same: n, Kept: []resultdir.Kept{}}, nil, nil)
		}
	}
	found, release, err := results()
	if err != nil {
		return 0, err
	}
	defer release()
	o := resultdir.Options{Set: set, Overwrite: overwrite, Refuse: f.refuse}
	o.Hold = func(p string) bool { return slices.Contains(found.Unknown, taskOfResult(p)) }
	if len(found.Missing)+len(found.Unknown) == 0 {
		o.Source = found.Source
	}
	items := make([]resultdir.Item, len(found.Outputs))
	for i := range found.Outputs {
		items[i] = resultdir.Item{Path: found.Outputs[i].Path, Leaf: found.Outputs[i].Leaf}
	}
	report, err := into.Write(ctx, items, o)
	if err != nil {
		return 0, fmt.Errorf("results in %s: %w", f.shown, err)
	}
	earlier := earlierOutputs(found, left)
	for _, p := range report.Held {
		if task := taskOfResult(p); !slices.Contains(earlier, task) {
			earlier = append(earlier, task)
		}
	}
	report.Same += len(report.Held)
	missing := slices.DeleteFunc(found.Missing, func(name string) bool { return slices.Contains(earlier, name) })
	return len(report.Kept), f.say(a, report, missing, earlier)
}

// taskOfResult is the task, without its item, whose output lies at a path in a folder of results; see workspace.ResultPath.
func taskOfResult(p string) string {
	if i := strings.IndexAny(p, "/."); i >= 0 {
		return p[:i]
	}
	return p
}

// say reports what was done with the results.
func (f *resultFolder) say(a *app, rep *resultdir.Report, missing, earlier []string) error {
	if a.JSON {
		line := resultsLine{"results", f.shown, rep, append([]string{}, missing...), earlier}
		if err := a.Document(line, false); err != nil {
			return err
		}
	} else if _, err := io.WriteString(a.Stdout, f.summary(rep)); err != nil {
		return err
	}
	const most = 10
	for _, k := range rep.Kept[:min(len(rep.Kept), most)] {
		a.Warnf("%s is left as it is: %s", human.Line(f.shown+k.Path), human.Line(k.Why))
	}
	if n := len(rep.Kept) - most; n > 0 {
		a.Warnf("and %s more are left as they are", human.Count(n, "file"))
	}
	if slices.ContainsFunc(rep.Kept, func(k resultdir.Kept) bool { return k.Yields }) {
		a.Notef("e3: to replace what was edited or was there before: %s", f.flag)
	}
	if len(missing) > 0 {
		a.Notef("Not made yet: %s", human.Line(human.Few(missing)))
	}
	if len(earlier) > 0 {
		a.Notef("Of an earlier run, since the latest could not make them: %s", human.Line(human.Few(earlier)))
	}
	return nil
}

func (f *resultFolder) summary(rep *resultdir.Report) string {
	var parts []string
	part := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	part(len(rep.Written), "written")
	part(len(rep.Removed), "removed")
	part(rep.Same, "unchanged")
	part(len(rep.Kept), "kept")
	if len(parts) == 0 {
		return fmt.Sprintf("Results in %s: none\n", human.Line(f.shown))
	}
	text := fmt.Sprintf("Results in %s: %s\n", human.Line(f.shown), strings.Join(parts, ", "))
	const most = 5
	for _, p := range rep.Written[:min(len(rep.Written), most)] {
		text += "  " + human.Line(f.shown+p) + "\n"
	}
	if n := len(rep.Written) - most; n > 0 {
		text += fmt.Sprintf("  … and %d more\n", n)
	}
	return text
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
	f, err := resultFolderOf(ctx, r, ws, &o.results)
	run := o.results.run
	if run == nil || len(o.set) == 0 || o.as != "" || run.Outcome == nil { // the workspace has them
		run = nil
	} else if o.results.out == "" && f != nil {
		a.Notef("%s stays as it is: this run had values of its own. To leave its results: -o %s", human.Line(f.shown), human.Line(f.shown))
		return ended
	}
	if err == nil && f != nil {
		_, err = f.leave(ctx, a, r, ws, run, o.results.overwrite)
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
	if o.results.out == "" {
		if len(o.results.of) > 0 {
			return usagef("--of is for --output <folder>")
		}
		if plan, err := r.Workspaces.Datasets.ResultsPlan(ctx, ws); err != nil || plan.Dir == "" || o.publish == "none" {
			return nil // if it cannot be read, what starts next says so
		}
	}
	if o.publish == "none" {
		return usagef("--output leaves what a run has put into the workspace, and with --publish none it puts nothing there")
	}
	_, err := resultFolderOf(ctx, r, ws, &o.results)
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) || errors.Is(err, workspace.ErrNotDeployed) || errors.Is(err, fs.ErrNotExist) {
		return nil // the start itself says so
	}
	return err
}

// getArgument gets what an argument of "e3 get" means: one dataset, or the results of a workspace, or outputs that match a
// pattern.
func getArgument(ctx context.Context, a *app, location, arg string, o *getOptions) error {
	if arg == "" {
		ws, err := a.only(ctx, location)
		if err != nil {
			return err
		}
		arg = ws
	}
	return a.inOnly(ctx, location, arg, func(name string) error {
		ws, of, inWorkspace := strings.Cut(name, ".")
		switch {
		case strings.ContainsAny(ws, "[*?"):
			return unnamed(name, "<workspace>.<name>")
		case !inWorkspace && o.out != "":
			return getResults(ctx, a, location, ws, of, o)
		}
		err := runGet(ctx, a, location, name, o)
		var unknown *workspace.UnknownError
		if events.IsPattern(of) && errors.As(err, &unknown) { // else an item has that name
			return getResults(ctx, a, location, ws, of, o)
		}
		return err
	})
}

// getResults leaves the results of a workspace, or the outputs that match a pattern, in a folder.
func getResults(ctx context.Context, a *app, location, ws, of string, o *getOptions) error {
	if o.out == "" {
		return usagef("%s may mean several outputs: name a folder for them with -o, as: -o results/", human.Quoted(of))
	}
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	what := &resultOptions{out: o.out}
	if of != "" {
		what.of = []string{of}
	}
	f, err := resultFolderOf(ctx, r, ws, what)
	if err != nil {
		return err
	}
	f.flag = "--force"
	kept, err := f.leave(ctx, a, r, ws, nil, o.force)
	if err == nil && kept > 0 {
		return &exitError{exitFailed}
	}
	return err
}
