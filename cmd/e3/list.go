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
	"e3/objectstore/tree"
	"e3/workspace"
)

func newList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [repo] [workspace[.dataset]]",
		Short: "List workspaces, datasets, or what is in one",
		Long: `List the workspaces of a repository, the datasets of a workspace, or the entries of a dataset that is a directory.

Outputs are current, stale or missing; a start leaves current ones as they are. An input is stale if its file has changed
on disk. Where a task makes a list of items and that is to be made anew, the outputs are those of the items of last time.`,
		Example: `  e3 list .
  e3 list . prod
  e3 list . prod.images/2024
  e3 list . theirs.tasks      # a workspace of the TypeScript e3`,
		ValidArgsFunction: completeDataset(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 1, "<workspace[.dataset]>")
			if err != nil {
				return err
			}
			r, err := a.openToRead(cmd.Context(), location)
			if err != nil {
				return err
			}
			defer r.Close()
			if rest[0] == "" {
				return listWorkspaces(cmd.Context(), a, r)
			}
			return a.inOnly(cmd.Context(), location, strings.TrimSuffix(rest[0], "."), func(name string) error {
				if strings.ContainsAny(name, ".[") {
					return listEntries(cmd.Context(), a, r, name)
				}
				return listDatasets(cmd.Context(), a, r, name)
			})
		},
	}
}

// datasetList is the datasets of a workspace.
type datasetList struct {
	Workspace string                 `json:"workspace"`
	Datasets  []workspace.DatasetRow `json:"datasets"`
	Growing   []workspace.Unmade     `json:"growing,omitempty"` // what is not known before a task has made a list of items
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

// eastEntries lists a tree of datasets of the TypeScript e3.
func eastEntries(ctx context.Context, r *repo.Repo, d *workspace.Dataset, t *render.Table) ([]entryJSON, error) {
	tree, err := r.Workspaces.Datasets.EastEntries(ctx, d)
	if err != nil {
		return nil, err
	}
	entries := make([]entryJSON, len(tree))
	for i, e := range tree {
		entries[i] = entryJSON{Name: e.Name, Kind: e.Kind.String(), Hash: e.Hash}
		t.Row(e.Name, leafKind(e.Leaf), "", prefix(e.Hash, 12))
	}
	return entries, nil
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

// entryJSON is an entry of a directory for programs.
type entryJSON struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Hash       string `json:"hash,omitempty"`
	Size       *int64 `json:"size,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	Target     string `json:"target,omitempty"`
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
	doc := struct {
		Dataset    string      `json:"dataset"`
		Kind       string      `json:"kind"`
		Hash       string      `json:"hash"`
		Size       *int64      `json:"size,omitempty"`
		Executable bool        `json:"executable,omitempty"`
		Entries    []entryJSON `json:"entries,omitzero"`
	}{Dataset: name, Kind: d.Kind.String(), Hash: d.Hash, Executable: d.Executable}
	t := &render.Table{Right: map[int]bool{2: true}}
	if d.Kind == record.LeafFile {
		doc.Size = &d.Size
	}
	if d.East && d.Kind == record.LeafNode {
		var err error
		if doc.Entries, err = eastEntries(ctx, r, d, t); err != nil {
			return fmt.Errorf("dataset %s: %w", name, err)
		}
		return a.Reply(doc, func(w *render.Sheet) { t.Write(w, "") })
	}
	if d.Kind != record.LeafDir {
		t.Row(name, leafKind(d.Leaf), leafSize(d.Leaf), prefix(d.Hash, 12))
		return a.Reply(doc, func(w *render.Sheet) { t.Write(w, "") })
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return err
	}
	entries, err := tree.Read(ctx, r.Objects, h)
	if err != nil {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	doc.Entries = make([]entryJSON, len(entries))
	for i := range entries {
		e := &entries[i]
		item := entryJSON{Name: e.Name, Target: e.Target, Executable: e.Executable}
		switch e.Kind {
		case tree.KindDir:
			item.Kind, item.Hash = "directory", e.Hash.String()
			t.Row(e.Name+"/", item.Kind, "", prefix(item.Hash, 12))
		case tree.KindFile:
			item.Kind, item.Hash, item.Size = "file", e.Hash.String(), &e.Size
			kind := item.Kind
			if e.Executable {
				kind = "executable"
			}
			t.Row(e.Name, kind, human.Bytes(e.Size), prefix(item.Hash, 12))
		default:
			item.Kind = "link"
			t.Row(e.Name, item.Kind, "", "→ "+e.Target)
		}
		doc.Entries[i] = item
	}
	return a.Reply(doc, func(w *render.Sheet) { t.Write(w, "") })
}

// prefix is the beginning of a hash.
func prefix(id string, n int) string { return id[:min(len(id), n)] }
