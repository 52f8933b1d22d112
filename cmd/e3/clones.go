package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"e3/internal/repo"
	"e3/workspace"
)

// deployedFile says what a person may not expect of a package file that was deployed: whose deployment it has replaced, which workspace it
// has got instead of the one of its name, and that its name is another one now.
func (a *app) deployedFile(location, ws string, built *workspace.Built) {
	if e := built.Over; e != nil {
		a.notef("Workspace %s %s; from now on it follows yours", printable(ws, false), printable(e.String(), false))
	}
	if e := built.Instead; e != nil {
		name := built.Package.Name
		a.notef("Workspace %s %s; this clone has a workspace of its own: %s. To let %s follow this one: e3 start -f %s %s %s", printable(name, false),
			printable(e.String(), false), printable(ws, false), printable(name, false), quoted(beside(built.Link.File)), quoted(location), quoted(name))
	}
	a.renamed(location, ws, built.Link.File, built.Renamed, built.Package.Name)
}

// renamed says that a package file has another name than when it was last deployed.
func (a *app) renamed(location, ws, file, before, now string) {
	if before == "" {
		return
	}
	text := ""
	if ws != now {
		text = "; for a workspace of that name: e3 start -f " + quoted(beside(file)) + " " + quoted(location) + " " + quoted(now)
	}
	a.notef("The package %s is called %s now; workspace %s goes on following its file%s", printable(before, false), printable(now, false), printable(ws, false), text)
}

// elsewhere says that what is run or planned is what was deployed, without a look at any package file, or at one that was followed here
// before.
func (a *app) elsewhere(location, ws string, e *workspace.Elsewhere) {
	switch {
	case e == nil:
	case e.Mine != "":
		a.notef("Workspace %s %s; deploy yours again with: e3 start -f %s %s %s",
			printable(ws, false), printable(e.String(), false), quoted(beside(e.Mine)), quoted(location), quoted(ws))
	case e.Unknown:
		a.notef("Workspace %s %s; this is what was deployed. To let it follow a file again: e3 start -f <e3.yaml> %s %s",
			printable(ws, false), printable(e.String(), false), quoted(location), quoted(ws))
	case e.File != "":
		a.notef("Workspace %s %s; this is what was deployed from there", printable(ws, false), printable(e.String(), false))
	}
}

// unfollowed adds what to type to the error of a start in a clone that the workspace does not follow.
func unfollowed(location string, err error) error {
	var u *workspace.UnfollowedError
	if !errors.As(err, &u) {
		return err
	}
	file, at := quoted(beside(u.Mine)), quoted(location)
	if u.Over.Gone { // it has no claim: the workspace would be taken by either command
		return usagef("%w; let %s follow yours with: e3 start -f %s %s %s", err, u.Workspace, file, at, quoted(u.Workspace))
	}
	return usagef("%w; run yours in a workspace of its own with: e3 start -f %s %s; let %s follow yours with: e3 start -f %s %s %s", err,
		file, at, u.Workspace, file, at, quoted(u.Workspace))
}

// standsElsewhere tells a person who reads in a clone which the workspace does not follow that it is about other files.
func (a *app) standsElsewhere(ctx context.Context, r *repo.Repo, ws string) {
	if u, err := r.Workspaces.Unfollowed(ctx, ws); err == nil && u != nil { // else the command itself says what is wrong
		u.Mine = beside(u.Mine)
		a.notef("Workspace %s %s, and not %s", printable(ws, false), printable(u.Over.String(), false), printable(u.Mine, false))
	}
}

// beside is the path of a file, relative if it lies in the folder where the person stands or below.
func beside(path string) string {
	dir, err := os.Getwd()
	if real, e := filepath.EvalSymlinks(dir); e == nil {
		dir = real
	}
	if rel, e := filepath.Rel(dir, path); err == nil && e == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// elsewhereJSON is who decides what is deployed, for programs.
type elsewhereJSON struct {
	By    string  `json:"by,omitempty"`
	File  string  `json:"file,omitempty"` // of another machine, without its folder
	Since *string `json:"since"`
	Mine  string  `json:"mine,omitempty"` // which this machine had deployed before
}

func elsewhereOf(e *workspace.Elsewhere) *elsewhereJSON {
	if e == nil {
		return nil
	}
	return &elsewhereJSON{By: e.By, File: e.File, Since: moment(e.Since), Mine: e.Mine}
}
