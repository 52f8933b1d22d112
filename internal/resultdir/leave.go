package resultdir

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

// Left is what was left in a folder.
type Left struct {
	Type   string `json:"type"` // results
	Folder string `json:"folder"`
	*Report
	Missing []string `json:"missing"`           // outputs not made yet
	Earlier []string `json:"earlier,omitempty"` // outputs that only an earlier run made
}

// LeaveOptions say what Leave writes.
type LeaveOptions struct {
	Run       *workspace.RunResult // a run whose results the workspace has not got; nil: those of the workspace are left
	Overwrite bool                 // replaces files that were edited, or that were there before
	Now       func() time.Time
}

// Leave writes results into the folder, which it makes.
func (p *Place) Leave(ctx context.Context, o LeaveOptions) (*Left, error) {
	root, err := p.open()
	if err != nil {
		return nil, fmt.Errorf("results in %s: %w", p.Shown, err)
	}
	defer root.Close()
	real, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return nil, err
	}
	data := p.repo.Workspaces.Datasets
	folder := &Folder{
		Root: root, Objects: p.repo.Objects, Records: repo.LocalOf(p.repo), Key: data.ResultsKey(p.ws, real), Now: o.Now,
	}
	left := &Left{Type: "results", Folder: p.Shown, Missing: []string{}}
	set := strings.Join(p.Choice.Of, " ")
	var unmade map[string]*runview.TaskReport
	if o.Run == nil {
		if unmade, err = p.repo.Workspaces.Unmade(ctx, p.ws); err != nil {
			return nil, err
		}
		if len(unmade) == 0 {
			source, err := data.ResultSource(ctx, p.ws)
			if err != nil {
				return nil, err
			}
			if n, same := folder.Unchanged(ctx, set, p.source(source)); same {
				left.Report = &Report{Written: []string{}, Removed: []string{}, Same: n, Kept: []Kept{}}
				return left, nil
			}
		}
	}
	found, release, err := p.results(ctx, o.Run)
	if err != nil {
		return nil, err
	}
	defer release()
	w := Options{Set: set, Overwrite: o.Overwrite, Refuse: p.refuse, Plain: p.Choice.InPlace, Ignore: p.ignore}
	w.Hold = func(at string) bool { return found.Holds(at) != "" }
	if len(found.Missing)+len(found.Unknown) == 0 {
		w.Source = p.source(found.Source)
	}
	items := make([]Item, len(found.Outputs))
	for i := range found.Outputs {
		items[i] = Item{Path: found.Outputs[i].Path, Leaf: found.Outputs[i].Leaf}
		if unmade[found.Outputs[i].Task] != nil {
			left.Earlier = append(left.Earlier, found.Outputs[i].Name)
		}
	}
	if left.Report, err = folder.Write(ctx, items, w); err != nil {
		return nil, fmt.Errorf("results in %s: %w", p.Shown, err)
	}
	for _, at := range left.Held {
		if task := found.Holds(at); !slices.Contains(left.Earlier, task) {
			left.Earlier = append(left.Earlier, task)
		}
	}
	left.Same += len(left.Held)
	for _, name := range found.Missing {
		if !slices.Contains(left.Earlier, name) {
			left.Missing = append(left.Missing, name)
		}
	}
	return left, nil
}

// results finds the outputs of a run, or else of the workspace.
func (p *Place) results(ctx context.Context, run *workspace.RunResult) (*workspace.Results, func(), error) {
	if run != nil {
		return p.repo.Workspaces.Datasets.ResultsOfRun(ctx, run, p.Choice)
	}
	return p.repo.Workspaces.Datasets.Results(ctx, p.ws, p.Choice)
}

// source is the source of what is left: lines of .gitignore follow from the package file alone.
func (p *Place) source(of string) string {
	if of != "" && p.ignore {
		of += "/gitignore"
	}
	return of
}

// At is the path of a result for a person.
func (l *Left) At(result string) string { return strings.TrimPrefix(l.Folder, "./") + result }
