package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// Deployed is a workspace in a list.
type Deployed struct {
	Workspace  string      `json:"workspace"`
	Package    *PackageRef `json:"package"`
	DeployedAt moment.Time `json:"deployedAt"`
	File       string      `json:"file,omitempty"` // the package file that the workspace follows
}

// List lists the workspaces. A workspace whose state is damaged is left out; damaged joins these errors.
func (w *Deployer) List(ctx context.Context) (list []Deployed, damaged, err error) {
	list = []Deployed{}
	damaged, err = w.states.each(ctx, func(name string, s *State) (err error) {
		ws := Deployed{Workspace: name}
		if s.Deployed {
			if ws.File, err = w.LinkedTo(ctx, name); err != nil {
				return err
			}
			ref := s.Package()
			ws.Package, ws.DeployedAt = &ref, moment.At(s.DeployedAt)
		}
		list = append(list, ws)
		return nil
	})
	return list, damaged, err
}

// each calls do with the state of each workspace. A workspace whose state is damaged is left out; damaged joins these
// errors. The first error of do ends it.
func (w *States) each(ctx context.Context, do func(name string, s *State) error) (damaged, err error) {
	names, err := w.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s, err := w.State(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound): // removed since
			continue
		case errors.Is(err, refstore.ErrDamaged):
			damaged = errors.Join(damaged, err)
			continue
		case err == nil:
			err = do(name, s)
		}
		if err != nil {
			return damaged, err
		}
	}
	return damaged, nil
}

// A Listing is a dataset with the entries of a directory.
type Listing struct {
	Dataset string `json:"dataset"` // <workspace>.<name>
	record.Leaf
	Hash    string     `json:"hash"`
	Size    *int64     `json:"size,omitempty"`   // of a file
	Entries []DirEntry `json:"entries,omitzero"` // of a directory, or a tree of the TypeScript e3
}

// A DirEntry is one entry of a directory.
type DirEntry struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"` // directory, file, link; of a tree of the TypeScript e3 as of a dataset
	Hash       string `json:"hash,omitempty"`
	Size       *int64 `json:"size,omitempty"` // of a file
	Executable bool   `json:"executable,omitempty"`
	Target     string `json:"target,omitempty"` // of a link
}

// Listing lists the content of a dataset.
func (w *Datasets) Listing(ctx context.Context, name string, d *Dataset) (*Listing, error) {
	l := &Listing{Dataset: name, Leaf: d.Leaf, Hash: d.Hash, Size: fileSize(d.Leaf)}
	var err error
	switch {
	case d.East && d.Kind == record.LeafNode:
		var list []NamedLeaf
		list, err = w.EastEntries(ctx, d)
		l.Entries = make([]DirEntry, len(list))
		for i, e := range list {
			l.Entries[i] = DirEntry{Name: e.Name, Kind: e.Kind.String(), Hash: e.Hash}
		}
	case d.Kind == record.LeafDir:
		l.Entries, err = w.entries(ctx, d)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", name, err)
	}
	return l, nil
}

// entries lists the entries of a directory.
func (w *Datasets) entries(ctx context.Context, d *Dataset) ([]DirEntry, error) {
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return nil, err
	}
	list, err := dirtree.Read(ctx, w.states.Objects, h)
	entries := make([]DirEntry, len(list))
	for i := range list {
		e := &list[i]
		entries[i] = DirEntry{Name: e.Name, Kind: "link", Target: e.Target, Executable: e.Executable}
		switch e.Kind {
		case dirtree.KindDir:
			entries[i].Kind, entries[i].Hash = "directory", e.Hash.String()
		case dirtree.KindFile:
			entries[i].Kind, entries[i].Hash, entries[i].Size = "file", e.Hash.String(), &e.Size
		}
	}
	return entries, err
}
