package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"e3/executions"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/host/trace"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/internal/propose"
	"e3/internal/repo"
	"e3/objectstore"
)

// opens tells the executor of a run what to look for among the files that commands open. It is safe for concurrent use.
type opens struct {
	repo  *repo.Repo
	looks bool // tests of existence count as well
	mu    sync.Mutex
	of    map[string]*trace.Look // by workspace
}

// look is executions.Options.Trace.
func (o *opens) look(ctx context.Context, req *executions.Request) (*trace.Look, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.of[req.Workspace]
	if !ok {
		p, err := o.repo.Workspaces.Datasets.Project(ctx, req.Workspace)
		if err != nil {
			return nil, err
		}
		if p.Folder != "" {
			pkg, err := offered(ctx, o.repo, p.File, nil)
			if err != nil {
				return nil, err
			}
			known = &trace.Look{Project: namesOf(p.Folder), Others: pkg.Others(), Looks: o.looks}
		}
		o.of[req.Workspace] = known
	}
	if known == nil {
		return nil, nil
	}
	look := *known
	return &look, nil
}

// namesOf are the names of a folder: with links and without.
func namesOf(folder string) []string {
	names := []string{folder}
	if real, err := filepath.EvalSymlinks(folder); err == nil && real != folder {
		names = append(names, real)
	}
	return names
}

// offered is what a package file offers to its tasks. built, which may be nil, has the tasks that follow from lists of items.
func offered(ctx context.Context, r *repo.Repo, file string, built *record.Package) (*propose.Package, error) {
	def, err := manifest.ParseFile(file)
	if err != nil {
		return nil, err
	}
	pkg := &propose.Package{Inputs: def.Inputs}
	for i := range def.Tasks {
		t := &def.Tasks[i]
		if n := len(pkg.Tasks); n > 0 && pkg.Tasks[n-1].Name == t.Base {
			for k := range t.Outputs {
				if out := &t.Outputs[k]; out.ByItem { // each item has a path of its own
					last := &pkg.Tasks[n-1]
					last.Outputs = append(last.Outputs, propose.Output{Name: out.Name, Path: t.PathOf(out)})
				}
			}
			continue
		}
		producer := propose.Producer{Name: t.Base, Matrix: t.Items != nil, Several: t.Several}
		for _, item := range t.Items {
			producer.Dims = append(producer.Dims, item.Name)
		}
		for k := range t.Outputs {
			out := &t.Outputs[k]
			producer.Outputs = append(producer.Outputs, propose.Output{Name: out.Name, Path: t.PathOf(out)})
		}
		pkg.Tasks = append(pkg.Tasks, producer)
	}
	for i := range def.Families {
		family := &def.Families[i]
		if slices.ContainsFunc(pkg.Tasks, func(t propose.Producer) bool { return t.Name == family.Base }) {
			continue
		}
		producer := propose.Producer{Name: family.Base, Matrix: true}
		own := slices.ContainsFunc(family.Spec.Outputs, func(o manifest.Output) bool { return o.ByItem })
		if err := ofFamily(ctx, r, built, &producer, own); err != nil {
			return nil, err
		}
		pkg.Tasks = append(pkg.Tasks, producer)
	}
	return pkg, nil
}

// ofFamily completes a producer from the first of its tasks, or from all if each has paths of its own.
func ofFamily(ctx context.Context, r *repo.Repo, built *record.Package, t *propose.Producer, own bool) error {
	if built == nil {
		return nil
	}
	for i := range built.Tasks {
		base, label, _ := strings.Cut(built.Tasks[i].Name, "[")
		if base != t.Name {
			continue
		}
		h, err := objectstore.ParseHash(built.Tasks[i].Task)
		if err != nil {
			return err
		}
		task, err := executions.LoadTask(ctx, r.Objects, h)
		if errors.Is(err, objectstore.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		t.Several = task.Output.Multi
		for _, out := range task.Output.Entries {
			t.Outputs = append(t.Outputs, propose.Output{Name: out.Name, Path: out.Path})
		}
		if own && t.Dims != nil {
			continue
		}
		for part := range strings.SplitSeq(strings.TrimSuffix(label, "]"), ",") {
			if name, _, named := strings.Cut(part, "="); named {
				t.Dims = append(t.Dims, name)
			}
		}
		if !own {
			return nil
		}
	}
	return nil
}

// opened is what the commands of a workspace's latest run have opened, beside its package file.
type opened struct {
	file     string
	text     []byte // of the file
	proposal *propose.Proposal
}

// readOpens reads what is on record.
func readOpens(ctx context.Context, r *repo.Repo, ws string) (*opened, error) {
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil {
		return nil, err
	}
	o := &opened{file: p.File, proposal: &propose.Proposal{}}
	if p.Folder == "" {
		return o, nil
	}
	if o.text, err = os.ReadFile(p.File); err != nil {
		return nil, err
	}
	report, err := r.Workspaces.Runs.Report(ctx, ws, "")
	if err != nil {
		return nil, err
	}
	built, _, err := r.Workspaces.Runs.PackageOf(ctx, report)
	if err != nil {
		return nil, err
	}
	pkg, err := offered(ctx, r, p.File, built)
	if err != nil {
		return nil, err
	}
	runs, err := openedBy(ctx, r, report)
	if err != nil {
		return nil, err
	}
	o.proposal = propose.Of(pkg, projectIn(ctx, r, ws, p.Folder), runs)
	return o, nil
}

// projectIn is the project in a folder.
func projectIn(ctx context.Context, r *repo.Repo, ws, folder string) *propose.Project {
	files := os.DirFS(folder)
	made := func(rel string) string { return madeBy(ctx, r, ws, filepath.Join(folder, rel)) }
	return &propose.Project{Files: files, Ignored: propose.Ignored(files), Made: made}
}

// openedBy lists the commands behind the results of a run.
func openedBy(ctx context.Context, r *repo.Repo, report *runview.Report) ([]propose.Run, error) {
	var runs []propose.Run
	tasks := map[objectstore.Hash]*record.Task{}
	for i := range report.Tasks {
		t := &report.Tasks[i]
		key, ok := executions.ParseKey(t.Key)
		if !ok || t.ExecutionID == "" {
			continue
		}
		task := tasks[key.Task]
		if task == nil {
			var err error
			if task, err = executions.LoadTask(ctx, r.Objects, key.Task); errors.Is(err, objectstore.ErrNotFound) {
				continue
			} else if err != nil {
				return nil, err
			}
			tasks[key.Task] = task
		}
		run := propose.Run{Task: t.Task, Succeeded: t.State == runview.TaskSuccess || t.State == runview.TaskCached}
		for _, in := range task.Inputs {
			staged := propose.Staged{Name: in.Name, Path: in.Path}
			if in.Kind.OfMachine() {
				staged.Path = ""
			}
			run.Inputs = append(run.Inputs, staged)
		}
		var err error
		if run.Findings, run.Traced, err = lastTrace(ctx, r, key, t.ExecutionID); err != nil {
			return nil, err
		}
		if !run.Succeeded && run.Traced {
			if _, lines, err := explain.Ending(ctx, r.Executions, key, t.ExecutionID); err == nil {
				run.Lacks = propose.Lacks(lines)
			}
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// lastTrace is what an execution has opened or, if it was not traced, the latest traced one of its key.
func lastTrace(ctx context.Context, r *repo.Repo, key executions.Key, id string) ([]trace.Finding, bool, error) {
	found, traced, err := r.Executions.Opened(ctx, key, id)
	if traced || err != nil {
		return found, traced, err
	}
	for e, err := range r.Executions.List(ctx, key) {
		if err != nil {
			continue // it cannot be read
		}
		if found, traced, err = r.Executions.Opened(ctx, key, e.ExecutionID); traced || err != nil {
			return found, traced, err
		}
	}
	return nil, false, nil
}

// madeBy is the output of the workspace that a file holds; "": none.
func madeBy(ctx context.Context, r *repo.Repo, ws, file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := objectstore.HashReader(ctx, f)
	if err != nil {
		return ""
	}
	rows, err := r.Workspaces.Datasets.Names(ctx, ws)
	if err != nil {
		return ""
	}
	for i := range rows {
		if row := &rows[i]; row.Output && row.Hash == info.Hash.String() {
			return row.Task
		}
	}
	return ""
}
