package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/propose"
	"e3/internal/repo"
	"e3/workspace"
)

func newLint(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
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
		RunE: a.onOne(a.openToRead, func(ctx context.Context, r *repo.Repo, ws string) error {
			return runLint(ctx, a, r, ws)
		}),
	}, lint{})
}

// lint is what was found.
type lint struct {
	File     string               `json:"file"`
	Warnings []string             `json:"warnings"`
	Tasks    []propose.Task       `json:"tasks"` // with something to tell
	Rooms    []workspace.TaskRoom `json:"rooms,omitempty"`
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
	out := lint{File: p.File, Warnings: []string{}, Tasks: []propose.Task{}}
	var text bytes.Buffer
	for _, w := range manifest.Lint(def) {
		out.Warnings = append(out.Warnings, w.String())
		fmt.Fprintln(&text, human.Line(w.String()))
	}
	for _, w := range r.Workspaces.Datasets.Unpinned(def, p.Inputs) {
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
		out.Tasks, undeclared = found.tasks()
	}
	if err := a.Reply(out, func(w *render.Sheet) { _, _ = w.Write(text.Bytes()) }); err != nil {
		return err
	}
	if undeclared {
		return &exitError{1}
	}
	return nil
}

// tasks are the tasks of the proposal with the inputs that it would declare. undeclared reports whether one reads what it
// does not declare.
func (o *opened) tasks() (list []propose.Task, undeclared bool) {
	list = slices.Clone(o.proposal.Tasks)
	for i := range list {
		t := &list[i]
		t.Reads, t.Sought, t.Unread = append([]propose.Read{}, t.Reads...), append([]string{}, t.Sought...), append([]string{}, t.Unread...)
		undeclared = undeclared || len(t.Reads) > 0
		for j := range t.Reads {
			for k := range o.proposal.New {
				if o.proposal.New[k].Name == t.Reads[j].Source {
					t.Reads[j].Input = &o.proposal.New[k]
				}
			}
		}
	}
	return append([]propose.Task{}, list...), undeclared
}
