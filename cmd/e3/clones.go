package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// sayDeployed reports unexpected effects of deploying a package file: a replaced deployment of another machine, a
// workspace of another name than the file's, and a changed name.
func sayDeployed(a *app, location, ws string, built *workspace.Built) {
	if e := built.Over; e != nil {
		a.Notef("Workspace %s %s; from now on it follows yours", human.Line(ws), human.Line(e.String()))
		sayReplaced(a, location, ws, built.Replaced)
	}
	if e := built.Instead; e != nil {
		name := built.Package.Name
		a.Notef("Workspace %s %s; this clone has a workspace of its own: %s. To let %s follow this one: e3 start -f %s %s %s", human.Line(name),
			human.Line(e.String()), human.Line(ws), human.Line(name), human.Quoted(beside(built.Link.File)), human.Quoted(location), human.Quoted(name))
	}
	sayRenamed(a, location, ws, built.Link.File, built.Renamed, built.Package.Name)
}

// sayReplaced names the values that a workspace had before it followed this file, as it may have been set where it came from.
func sayReplaced(a *app, location, ws string, values []workspace.Replaced) {
	if len(values) == 0 {
		return
	}
	words := make([]string, len(values))
	for i := range values {
		v := &values[i]
		words[i] = v.Name
		if v.Before != "" && v.Now != "" {
			words[i] += fmt.Sprintf(" (%s, before %s)", human.Line(v.Now), human.Line(v.Before))
		}
	}
	first, again := &values[0], "<value>"
	if first.Before != "" {
		again = human.Quoted(first.Before)
	}
	a.Notef("Your file gives other values than %s had: %s. To set one again: e3 set %s %s %s", human.Line(ws), human.Few(words),
		human.Quoted(location), human.Quoted(ws+"."+first.Name), again)
}

// sayRenamed says that the name in a package file has changed since it was last deployed.
func sayRenamed(a *app, location, ws, file, before, now string) {
	if before == "" {
		return
	}
	text := ""
	if ws != now {
		text = "; for a workspace of that name: e3 start -f " + human.Quoted(beside(file)) + " " + human.Quoted(location) + " " + human.Quoted(now)
	}
	a.Notef("The package %s is called %s now; workspace %s goes on following its file%s", human.Line(before), human.Line(now), human.Line(ws), text)
}

// sayElsewhere says that a run or plan uses the deployed package and ignores package files, including one that the
// workspace followed here before.
func sayElsewhere(a *app, location, ws string, e *workspace.Elsewhere) {
	switch {
	case e == nil:
	case e.Mine != "":
		a.Notef("Workspace %s %s; deploy yours again with: e3 start -f %s %s %s",
			human.Line(ws), human.Line(e.String()), human.Quoted(beside(e.Mine)), human.Quoted(location), human.Quoted(ws))
	case e.Unknown:
		a.Notef("Workspace %s %s; this is what was deployed. To let it follow a file again: e3 start -f <e3.yaml> %s %s",
			human.Line(ws), human.Line(e.String()), human.Quoted(location), human.Quoted(ws))
	case e.File != "":
		a.Notef("Workspace %s %s; this is what was deployed from there", human.Line(ws), human.Line(e.String()))
	}
}

// unfollowed adds a command to the error of a start in a clone that the workspace does not follow.
func unfollowed(location string, err error) error {
	var u *workspace.UnfollowedError
	if !errors.As(err, &u) {
		return err
	}
	file, at := human.Quoted(beside(u.Mine)), human.Quoted(location)
	if u.Over.Gone { // a removed clone has no claim: either command would take the workspace
		return usagef("%w; let %s follow yours with: e3 start -f %s %s %s", err, u.Workspace, file, at, human.Quoted(u.Workspace))
	}
	return usagef("%w; run yours in a workspace of its own with: e3 start -f %s %s; let %s follow yours with: e3 start -f %s %s %s", err,
		file, at, u.Workspace, file, at, human.Quoted(u.Workspace))
}

// sayWhereItStands warns if a workspace does not follow the clone in which the command was called but another folder.
func sayWhereItStands(ctx context.Context, a *app, r *repo.Repo, ws string) {
	if u, err := r.Workspaces.Deployer.Unfollowed(ctx, ws); err == nil && u != nil { // otherwise the command itself reports the fault
		u.Mine = beside(u.Mine)
		a.Notef("Workspace %s %s, and not %s", human.Line(ws), human.Line(u.Over.String()), human.Line(u.Mine))
	}
}

// beside is the path of a file, relative if it is in the working directory or below.
func beside(path string) string {
	dir, err := workingFolder()
	if rel, e := filepath.Rel(dir, path); err == nil && e == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// holdsWorkingFolder reports whether the working directory is a folder or lies below it.
func holdsWorkingFolder(folder string) bool {
	dir, err := workingFolder()
	rel, e := filepath.Rel(folder, dir)
	return err == nil && e == nil && filepath.IsLocal(rel)
}

func workingFolder() (string, error) {
	dir, err := os.Getwd()
	if real, e := filepath.EvalSymlinks(dir); e == nil {
		dir = real
	}
	return dir, err
}
