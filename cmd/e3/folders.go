package main

import (
	"context"
	"fmt"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/host/remains"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// writeFolders tells what is kept for a workspace, and the command that enters it.
func writeFolders(w *render.Sheet, list []workspace.Folder, ws string) {
	for _, f := range list {
		text := fmt.Sprintf("folder of %s on %s: %s", f.Task, f.Host, f.Path)
		if f.Execution != "" {
			text += "; enter it with: e3 shell <repo> " + human.Quoted(ws+"."+f.Task)
		}
		w.Field("Kept", "%s", text)
	}
}

// sayFolder tells where the folder of a failed command is, and how to work in it.
func sayFolder(ctx context.Context, a *app, r *repo.Repo, location, ws string, f failure) {
	shell := fmt.Sprintf("e3 shell %s %s", human.Quoted(location), human.Quoted(ws+"."+f.task))
	if folder := r.Kept().Find(f.execution); folder != nil {
		a.Notef("  its folder: %s on %s; enter it with: %s", human.Line(folder.Work()), human.Line(repo.Host()), shell)
		return
	}
	if host := hostOf(ctx, r, f); host != "" && host != repo.Host() {
		a.Notef("  its folder is on %s, if it is kept; to enter it there: %s", human.Line(host), shell)
		return
	}
	a.Notef("  its folder is not kept (at most %d of a run are, each up to %s); to work on its inputs: %s",
		remains.MaxFolders, human.Bytes(remains.MaxBytes), shell)
}

// hostOf is the machine that made a failed execution; "" if that is not on record.
func hostOf(ctx context.Context, r *repo.Repo, f failure) string {
	key, ok := executions.ParseKey(f.key)
	if !ok {
		return ""
	}
	e, err := r.Executions.Get(ctx, key, f.execution)
	if err != nil || e.Detail == nil {
		return ""
	}
	worker, _, _ := strings.Cut(e.Detail.Worker, " ")
	_, host, _ := strings.Cut(worker, "@")
	return host
}
