package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/workspace"
)

func newList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "list [repo] [workspace[.dataset]]",
		Short: "List workspaces, datasets, or what is in one",
		Long: `List the workspaces of a repository, the datasets of a workspace, or the entries of a dataset that is a directory.

Outputs are current, stale or missing; a start leaves current ones as they are. Left out are those of failed tasks without
which their readers are current; a start tries them again. An input is stale if its file has changed on disk. Where a task
makes a list of items and that is to be made anew, the outputs are those of the items of last time.`,
		Example: `  e3 list .
  e3 list . prod
  e3 list . prod.images/2024
  e3 list . theirs.tasks      # a workspace of the TypeScript e3`,
		ValidArgsFunction: completeDataset(a),
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			if args[0] == "" {
				return listWorkspaces(ctx, a, r)
			}
			return a.inOnly(ctx, r, strings.TrimSuffix(args[0], "."), func(name string) error {
				if strings.ContainsAny(name, ".[") {
					return listEntries(ctx, a, r, name)
				}
				return listDatasets(ctx, a, r, name)
			})
		}, "[workspace.dataset]"),
	}, workspaceList{}, datasetList{}, workspace.Listing{})
}

// datasetList is the datasets of a workspace.
type datasetList struct {
	Workspace string                 `json:"workspace"`
	Datasets  []workspace.DatasetRow `json:"datasets"`
	Growing   []workspace.Unmade     `json:"growing,omitempty"` // unknown until a task has made a list of items
}

func listDatasets(ctx context.Context, a *app, r *repo.Repo, ws string) error {
	st, err := r.Workspaces.Planner.Status(ctx, ws)
	if err != nil {
		return err
	}
	if !st.State.Deployed {
		return fmt.Errorf("workspace %s: %w", ws, workspace.ErrNotDeployed)
	}
	for _, f := range st.Faults {
		a.Notef("e3: %s", human.Text(f.Error()))
	}
	t := &render.Table{Right: map[int]bool{2: true}}
	for i := range st.Datasets {
		d := &st.Datasets[i]
		state := d.Freshness.String()
		switch {
		case d.Set:
			state = "set"
		case d.LastTime:
			state += ", an item of last time"
		case d.Output:
		case d.Source == record.FromVariable.String():
			state += ", environment"
		case d.Source == record.FromTool.String():
			state += ", program"
		case d.Location != "":
			state += ", " + d.Location
		}
		value := ""
		if d.Output || d.Source != record.FromTool.String() { // what a program consists of is no line
			value = shortValue(ctx, r, d.Leaf)
		}
		t.Row(d.Name, leafKind(d.Leaf), leafSize(d.Leaf), prefix(d.Hash, 12), state, value)
	}
	for i := range st.Unmade {
		if u := &st.Unmade[i]; u.Pending {
			t.Row(u.Name, "", "", "", strings.TrimPrefix(strings.TrimPrefix(u.String(), u.Name+" "), "is "))
		}
	}
	return a.Reply(datasetList{ws, st.Datasets, st.Unmade}, func(w *render.Sheet) { t.Write(w, "") })
}

// shortValue is a value on one line, cut where that is long; "lost" if its content is gone or
// damaged, and "" if the dataset is no value, or cannot be read.
func shortValue(ctx context.Context, r *repo.Repo, l record.Leaf) string {
	const most = 40
	if l.Kind != record.LeafValue {
		return ""
	}
	h, err := objectstore.ParseHash(l.Hash)
	if err != nil {
		return ""
	}
	v, err := readValue(ctx, r, h)
	if lost, _ := objectstore.IsLost(err); lost {
		return "lost"
	}
	if err != nil {
		return ""
	}
	text, scalar := v.Scalar()
	if !scalar {
		data, err := v.JSON()
		if err != nil {
			return ""
		}
		text = string(data)
	}
	text = human.Line(text)
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return "= " + text
}

func leafKind(l record.Leaf) string {
	if l.Executable {
		return "executable"
	}
	return l.Kind.String()
}

func leafSize(l record.Leaf) string {
	if l.Kind != record.LeafFile {
		return ""
	}
	return human.Bytes(l.Size)
}

func listEntries(ctx context.Context, a *app, r *repo.Repo, name string) error {
	ws, path, err := dataset(name)
	if err != nil {
		return err
	}
	d, err := r.Workspaces.Datasets.Dataset(ctx, ws, path)
	if err != nil {
		return err
	}
	return describe(ctx, a, r, name, d)
}

// describe prints a dataset: its entries if it is a directory.
func describe(ctx context.Context, a *app, r *repo.Repo, name string, d *workspace.Dataset) error {
	l, err := r.Workspaces.Datasets.Listing(ctx, name, d)
	if err != nil {
		return err
	}
	return a.Reply(l, func(w *render.Sheet) {
		t := &render.Table{Right: map[int]bool{2: true}}
		if l.Entries == nil {
			t.Row(name, leafKind(d.Leaf), leafSize(d.Leaf), prefix(d.Hash, 12))
		}
		for i := range l.Entries {
			switch e := &l.Entries[i]; {
			case e.Target != "":
				t.Row(e.Name, e.Kind, "", "→ "+e.Target)
			case e.Size != nil && e.Executable:
				t.Row(e.Name, "executable", human.Bytes(*e.Size), prefix(e.Hash, 12))
			case e.Size != nil:
				t.Row(e.Name, e.Kind, human.Bytes(*e.Size), prefix(e.Hash, 12))
			case e.Kind == record.LeafDir.String():
				t.Row(e.Name+"/", e.Kind, "", prefix(e.Hash, 12))
			default:
				t.Row(e.Name, e.Kind, "", prefix(e.Hash, 12))
			}
		}
		w.Table(t, "")
	})
}

// prefix is the beginning of a hash.
func prefix(id string, n int) string { return id[:min(len(id), n)] }
