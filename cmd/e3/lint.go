package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

func newLint(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lint [repo] <workspace>",
		Short: "Tell what is probably wrong in a package file, and which tasks read what they do not declare",
		Long: `Tell the mistakes of the package file that a workspace follows, what in it is probably a mistake, and, from the latest
traced commands (e3 start --trace-files or --propose), which tasks read files of the project that they do not declare, which
they looked for in vain and did not open (--propose alone), and which inputs no command has opened. The rooms of the tasks are
told, with what has decided them, unless nothing says anything of rooms.

lint is read-only and takes no locks. Exit code 1: the file has a mistake, or a task reads what it does not declare.`,
		Example: `  e3 start . dev --trace-files && e3 lint . dev
  e3 lint . dev --json`,
		ValidArgsFunction: completeWorkspace(a),
		RunE: onWorkspaceToRead(a, func(ctx context.Context, r *repo.Repo, ws string) error {
			return runLint(ctx, a, r, ws)
		}),
	}
}

// lintJSON is what lint has found, for programs.
type lintJSON struct {
	File     string               `json:"file"`
	Warnings []string             `json:"warnings"`
	Tasks    []lintTaskJSON       `json:"tasks"` // with something to tell
	Rooms    []workspace.TaskRoom `json:"rooms,omitempty"`
}

type lintTaskJSON struct {
	Task     string         `json:"task"`
	Reads    []lintReadJSON `json:"reads"`
	Sought   []string       `json:"sought"` // looked for in vain, and not opened
	Unread   []string       `json:"unread"`
	Traced   int            `json:"traced"` // commands
	Untraced int            `json:"untraced"`
}

type lintReadJSON struct {
	Path   string `json:"path"`
	Source string `json:"source"` // under in
	Input  *struct {
		Key  string `json:"key"`
		Path string `json:"path"`
	} `json:"input"` // to declare; null if the source exists
	Note string `json:"note,omitempty"`
}

func runLint(ctx context.Context, a *app, r *repo.Repo, ws string) error {
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil {
		return err
	}
	if p.Folder == "" {
		return usagef("workspace %s follows no package file here", ws)
	}
	def, err := manifest.ParseFile(p.File)
	if err != nil {
		return err
	}
	out := lintJSON{File: p.File, Warnings: []string{}, Tasks: []lintTaskJSON{}}
	var text bytes.Buffer
	for _, w := range manifest.Lint(def) {
		out.Warnings = append(out.Warnings, w.String())
		fmt.Fprintln(&text, human.Line(w.String()))
	}
	if out.Rooms, err = r.Workspaces.Planner.Rooms(ctx, ws, def); err != nil {
		return err
	}
	writeRooms(&text, out.Rooms)
	found, err := readOpens(ctx, r, ws)
	if err != nil && !errors.Is(err, human.ErrNotFound) {
		return err
	}
	undeclared := false
	if err == nil {
		found.print(&text, fmt.Sprintf("e3 start %s %s --trace-files --force", human.Quoted(shown("", r)), human.Quoted(ws)))
		undeclared = found.addTo(&out)
	}
	if err := a.Reply(out, func(w *render.Sheet) { _, _ = w.Write(text.Bytes()) }); err != nil {
		return err
	}
	if undeclared {
		return &exitError{1}
	}
	return nil
}

// addTo adds what was found, and reports whether a task reads what it does not declare.
func (o *opened) addTo(out *lintJSON) (undeclared bool) {
	for i := range o.proposal.Tasks {
		t := &o.proposal.Tasks[i]
		row := lintTaskJSON{Task: t.Name, Reads: []lintReadJSON{}, Sought: append([]string{}, t.Sought...), Unread: append([]string{}, t.Unread...), Traced: t.Traced, Untraced: t.Untraced}
		for _, read := range t.Reads {
			undeclared = true
			one := lintReadJSON{Path: read.Path, Source: read.Source, Note: read.Note}
			for _, in := range o.proposal.New {
				if in.Name == read.Source {
					one.Input = &struct {
						Key  string `json:"key"`
						Path string `json:"path"`
					}{in.Key, in.Path}
				}
			}
			row.Reads = append(row.Reads, one)
		}
		out.Tasks = append(out.Tasks, row)
	}
	return undeclared
}
