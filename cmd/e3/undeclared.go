package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/propose"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// The greatest sizes, for hints, of a package file that is read again, and of a file that is compared with inputs.
const (
	largestHinted = 1 << 20
	largestHashed = 256 << 20
)

// hintsOf says what to do about files that a failed command has missed, given the last lines of its log.
func hintsOf(ctx context.Context, r *repo.Repo, ws string, f *runview.TaskReport, lines []string) ([]string, error) {
	if !propose.TellsOfMissing(lines) {
		return nil, nil
	}
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil || p.Folder == "" {
		return nil, err
	}
	if info, err := os.Stat(p.File); err != nil || info.Size() > largestHinted {
		return nil, err
	}
	state, err := r.Workspaces.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	built, err := r.Workspaces.Packages.Load(ctx, state.PackageHash)
	if err != nil {
		return nil, err
	}
	pkg, err := offered(ctx, r, p.File, built)
	if err != nil {
		return nil, err
	}
	run, err := failedRun(ctx, r, p.Folder, f)
	if err != nil {
		return nil, err
	}
	run.Sources = sourcesOf(built, f.Task)
	return propose.Hints(pkg, projectIn(ctx, r, ws, p.Folder), run, lines, namesOf(p.Folder)), nil
}

// failedRun is a failed execution with what was staged for it.
func failedRun(ctx context.Context, r *repo.Repo, project string, f *runview.TaskReport) (*propose.Run, error) {
	key, _ := executions.ParseKey(f.Key)
	e, err := r.Executions.Get(ctx, key, f.ExecutionID)
	if err != nil {
		return nil, err
	}
	task, err := executions.LoadTask(ctx, r.Objects, key.Task)
	if err != nil {
		return nil, err
	}
	run := &propose.Run{Task: f.Task, Script: task.Shell}
	for i, in := range task.Inputs {
		if in.Kind.OfMachine() || i >= len(e.InputHashes) {
			continue
		}
		staged := propose.Staged{Name: in.Name, Path: in.Path, Executable: in.Kind == record.KindExecutable}
		if h, err := objectstore.ParseHash(e.InputHashes[i]); err == nil && in.Kind == record.KindDir {
			staged.Has = func(rel string) bool {
				_, err := tree.Lookup(ctx, r.Objects, h, rel)
				return err == nil
			}
		}
		run.Inputs = append(run.Inputs, staged)
	}
	run.Content = func(rel string) bool {
		name := filepath.Join(project, filepath.FromSlash(rel))
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > largestHashed {
			return err == nil && info.Size() > largestHashed // in doubt nothing is said
		}
		file, err := os.Open(name)
		if err != nil {
			return false
		}
		defer file.Close()
		content, err := objectstore.HashReader(ctx, file)
		return err == nil && slices.Contains(e.InputHashes, content.Hash.String())
	}
	return run, nil
}

// sourcesOf are the names of the inputs and tasks that a task reads, also those of parts of a file of parameters.
func sourcesOf(pkg *record.Package, task string) (names []string) {
	i := slices.IndexFunc(pkg.Tasks, func(t record.PackageTask) bool { return t.Name == task })
	if i < 0 {
		return nil
	}
	for _, w := range pkg.Tasks[i].Wiring {
		all := []string{w.Name}
		for _, item := range w.Items {
			all = append(all, item.Task, item.Input)
		}
		for _, name := range all {
			if _, _, part := record.PartOf(name); part {
				names = append(names, name)
			}
			base, _, _ := strings.Cut(name, "[")
			if base, _, _ = strings.Cut(base, "."); base != "" && !slices.Contains(names, base) {
				names = append(names, base)
			}
		}
	}
	return names
}
