package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/propose"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// noGit is what git says where it finds no repository (doc/design.md, §7, "Environment").
const noGit = "not a git repository"

// The greatest sizes, for hints, of a package file that is read again, and of a file that is compared with inputs.
const (
	largestHinted = 1 << 20
	largestHashed = 256 << 20
)

// sayUndeclared tells what to do about files that a failed command has missed, given the last lines of its log. What
// has been said of another task is not said again.
func sayUndeclared(
	ctx context.Context, a *app, r *repo.Repo, ws string, f failure, lines []string, said map[string]bool,
) {
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, noGit) }) {
		a.Notef("  the project's git repository is no input of %s, so that git does not find it. What git tells can be one: "+
			"key_env: [COMMIT], and COMMIT=$(git rev-parse HEAD) e3 start", human.Line(f.task))
	}
	hints, err := hintsOf(ctx, r, ws, f, lines)
	if err != nil {
		return // the failure itself is told
	}
	const most = 3
	for _, hint := range hints[:min(len(hints), most)] {
		if !said[hint] {
			a.Notef("  %s", human.Line(hint))
		}
		said[hint] = true
	}
}

// hintsOf are the hints for a failed execution.
func hintsOf(ctx context.Context, r *repo.Repo, ws string, f failure, lines []string) ([]string, error) {
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
	run.Sources = sourcesOf(built, f.task)
	return propose.Hints(pkg, projectIn(ctx, r, ws, p.Folder), run, lines, namesOf(p.Folder)), nil
}

// failedRun is a failed execution with what was staged for it.
func failedRun(ctx context.Context, r *repo.Repo, project string, f failure) (*propose.Run, error) {
	key, _ := executions.ParseKey(f.key)
	e, err := r.Executions.Get(ctx, key, f.execution)
	if err != nil {
		return nil, err
	}
	task, err := executions.LoadTask(ctx, r.Objects, key.Task)
	if err != nil {
		return nil, err
	}
	run := &propose.Run{Task: f.task, Script: task.Shell}
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

// failureLines are the last lines of a failed command's standard error or, if that is empty, of its output; none if they
// cannot be read.
func failureLines(ctx context.Context, x *executions.Store, key executions.Key, id string) ([]string, executions.Stream) {
	for _, stream := range []executions.Stream{executions.Stderr, executions.Stdout} {
		if data, _, err := x.LogTail(ctx, key, id, stream, 8<<10); err == nil {
			if lines := tail(data, 10); len(lines) > 0 {
				return lines, stream
			}
		}
	}
	return nil, executions.Stdout
}
