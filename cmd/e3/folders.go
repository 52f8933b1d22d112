package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"e3/executions"
	"e3/internal/host/remains"
	"e3/internal/human"
	"e3/internal/repo"
)

// folderJSON is the folder of a failed command, for programs.
type folderJSON struct {
	Task      string `json:"task"`
	Execution string `json:"execution,omitempty"` // whose command has left it; of a person's visit: none
	Host      string `json:"host"`
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
}

// foldersOf are the folders that this machine keeps for a workspace.
func foldersOf(r *repo.Repo, ws string) []folderJSON {
	var list []folderJSON
	for _, f := range r.Kept().List(ws) {
		doc := folderJSON{Task: f.Task, Execution: f.Execution, Host: repo.Host(), Path: f.Work(), Bytes: f.Bytes}
		if f.Visit {
			doc.Execution = ""
		}
		list = append(list, doc)
	}
	return list
}

// writeFolders tells what is kept for a workspace, and the command that enters it.
func writeFolders(w io.Writer, list []folderJSON, ws string) {
	for _, f := range list {
		text := fmt.Sprintf("folder of %s on %s: %s", f.Task, f.Host, f.Path)
		if f.Execution != "" {
			text += "; enter it with: e3 shell <repo> " + human.Quoted(ws+"."+f.Task)
		}
		fmt.Fprintf(w, "  %-10s %s\n", "Kept:", human.Line(text))
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
