package main

import (
	"context"
	"fmt"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/host/remains"
	"e3/internal/human"
	"e3/internal/insight/explain"
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

// folderText tells where the folder of a failed command is, and how to work in it.
func folderText(ctx context.Context, r *repo.Repo, location, ws string, g *explain.FailureGroup) string {
	shell := fmt.Sprintf("e3 shell %s %s", human.Quoted(location), human.Quoted(ws+"."+g.Task))
	if folder := r.Kept().Find(g.Execution); folder != nil {
		return fmt.Sprintf("its folder: %s on %s; enter it with: %s", folder.Work(), repo.Host(), shell)
	}
	here, _, _ := strings.Cut(repo.Host(), "/") // as records name it
	if host := hostOf(ctx, r, g); host != "" && host != here {
		return fmt.Sprintf("its folder is on %s, if it is kept; to enter it there: %s", host, shell)
	}
	return fmt.Sprintf("its folder is not kept (at most %d of a run are, each up to %s); to work on its inputs: %s",
		remains.MaxFolders, human.Bytes(remains.MaxBytes), shell)
}

// hostOf is the machine that made a failed execution; "" if that is not on record.
func hostOf(ctx context.Context, r *repo.Repo, g *explain.FailureGroup) string {
	key, ok := executions.ParseKey(g.Key)
	if !ok {
		return ""
	}
	e, err := r.Executions.Get(ctx, key, g.Execution)
	if err != nil || e.Detail == nil {
		return ""
	}
	worker, _, _ := strings.Cut(e.Detail.Worker, " ")
	_, host, _ := strings.Cut(worker, "@")
	return host
}
