package runview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/parallel"
	"e3/internal/pkgref"
	"e3/objectstore"
)

// complete adds the facts that only executions hold. For a task that no event describes (proven, or of an imported
// run) it adds all facts; for other tasks only the origin of the execution and whether it is still valid. If an
// execution cannot be found, the report keeps what the run says.
func (v *Runs) complete(ctx context.Context, ws string, r *Report, pkg string) error {
	var open, described []int
	for i := range r.Tasks {
		switch t := &r.Tasks[i]; {
		case t.ExecutionID == "":
		case t.Key != "":
			described = append(described, i)
		case t.Duration == 0:
			open = append(open, i)
		}
	}
	x := executions.NewStore(v.Records, v.Objects)
	err := parallel.AtMost(ctx, v.Lookups, len(described), func(ctx context.Context, k int) error {
		return r.Tasks[described[k]].look(ctx, x)
	})
	if err != nil || len(open) == 0 {
		return err
	}
	known, err := v.packagesOf(ctx, ws, r, pkg)
	if err != nil {
		return err
	}
	named := make([]bool, len(open)) // a package knows the task
	err = parallel.AtMost(ctx, v.Lookups, len(open), func(ctx context.Context, k int) error {
		t := &r.Tasks[open[k]]
		e, is, err := known.find(ctx, x, t.Task, t.ExecutionID)
		if named[k] = is; err != nil && !errors.Is(err, executions.ErrNotFound) {
			return err
		}
		t.found(e)
		return nil
	})
	if err != nil || r.Provenance == nil {
		return err
	}
	return seek(ctx, x, r.Tasks, open, named)
}

// look reads the execution of a task whose key is known. A missing or unreadable execution leaves the report as it is.
func (t *TaskReport) look(ctx context.Context, x *executions.Store) error {
	key, ok := executions.ParseKey(t.Key)
	if !ok {
		return nil
	}
	e, err := x.Get(ctx, key, t.ExecutionID)
	switch {
	case err == nil:
		t.learn(e)
	case !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed):
		return err
	}
	return nil
}

// shortest is the least duration for which the number of busy cores can be told: in a shorter time the start of a
// process dominates.
const shortest = 10 * time.Millisecond

// learn copies the facts that only the execution has: its origin, its rejection, and the resources that it used.
func (t *TaskReport) learn(e *executions.Execution) {
	if p := e.Provenance; p != nil {
		t.ImportedFrom = &Step{}
		if n := len(p.Steps); n > 0 {
			t.ImportedFrom = &Steps(p)[n-1]
		}
	}
	t.Rejected = RejectionOf(e.Rejection)
	if d := e.Detail; d != nil {
		t.Memory, t.Batch = d.PeakRSS, BatchOf(d.Batch)
		if took := e.CompletedAt.Sub(e.StartedAt); took >= shortest {
			t.Cores = float64(d.UserCPU+d.SystemCPU) / float64(took)
		}
	}
}

// seek looks in the whole repository for executions of tasks that no package here knows by name.
func seek(ctx context.Context, x *executions.Store, tasks []TaskReport, open []int, named []bool) error {
	lost := map[string]*TaskReport{}
	for k, i := range open {
		if t := &tasks[i]; !named[k] {
			lost[t.ExecutionID] = t
		}
	}
	if len(lost) == 0 {
		return nil
	}
	for e, err := range x.LocateAll(ctx, slices.Collect(maps.Keys(lost))) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			return err
		}
		if t, ok := lost[e.ExecutionID]; ok {
			t.found(e)
			delete(lost, e.ExecutionID)
		}
		if len(lost) == 0 {
			break
		}
	}
	return nil
}

// found fills in a task from its execution; the run's record gave only the execution's id.
func (t *TaskReport) found(e *executions.Execution) {
	if e == nil {
		return
	}
	t.learn(e)
	t.Key, t.StartedAt = e.Key.String(), moment.At(e.StartedAt)
	switch e.State {
	case record.Running: // when it was exported
		return
	case record.Failed:
		t.State, t.ExitCode = TaskFailed, e.ExitCode
	case record.Error:
		t.State, t.Message = TaskError, e.Message
	}
	t.Duration = moment.Millis(e.CompletedAt.Sub(e.StartedAt))
}

// taskTables are the tasks by name of each package that a run may have been made with, most likely first.
type taskTables []map[string]*record.PackageTask

// packagesOf returns the package of a run, by its events, and the package that is deployed now. If an imported run
// has neither here, it returns all packages that are registered under the same name.
func (v *Runs) packagesOf(ctx context.Context, ws string, r *Report, pkg string) (taskTables, error) {
	var hashes []string
	add := func(hash string) {
		if hash != "" && !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	add(pkg)
	s, err := v.Workspaces.State(ctx, ws)
	switch {
	case err == nil:
		add(s.PackageHash)
	case !errors.Is(err, human.ErrNotFound):
		return nil, err
	}
	if r != nil && r.Provenance != nil {
		all, err := v.Packages.List(ctx)
		if err != nil {
			return nil, err
		}
		name, _ := pkgref.Split(r.PackageRef)
		for _, p := range all {
			if p.Name == name {
				add(p.Hash)
			}
		}
	}
	list := make(taskTables, 0, len(hashes))
	for _, hash := range hashes {
		tasks, err := v.Packages.Tasks(ctx, hash)
		if err != nil {
			return nil, err
		}
		if tasks != nil {
			list = append(list, tasks)
		}
	}
	return list, nil
}

// TasksOf returns the tasks, by name, of the package that a run was made with, by its events; nil if it is not known, or gone.
func (v *Runs) TasksOf(ctx context.Context, f *Fold) (map[string]*record.PackageTask, error) {
	if hash := f.PackageHash(); hash != "" {
		return v.Packages.Tasks(ctx, hash)
	}
	return nil, nil
}

// PackageOf returns the package that a run was made with, by its Report, and the package's hash. If that package is
// unknown or gone, PackageOf takes the package that is deployed in the workspace, or registered, under the same name
// and version, provided that the run's executions belong to its tasks. Digits that an export has added to the version
// are ignored. pkg is nil if there is no such package here.
func (v *Runs) PackageOf(ctx context.Context, r *Report) (pkg *record.Package, hash string, err error) {
	candidates := []string{r.PackageHash}
	state, err := v.Workspaces.State(ctx, r.WorkspaceName)
	switch {
	case err == nil && state.PackageHash != "" && sameVersion(state.PackageName+"@"+state.PackageVersion, r.PackageRef):
		candidates = append(candidates, state.PackageHash)
	case err != nil && !errors.Is(err, human.ErrNotFound):
		return nil, "", err
	}
	registered, err := v.Packages.List(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, exact := range []bool{true, false} {
		for _, p := range registered {
			if exact == (p.String() == r.PackageRef) && sameVersion(p.String(), r.PackageRef) {
				candidates = append(candidates, p.Hash)
			}
		}
	}
	for _, hash := range candidates {
		if hash == "" {
			continue
		}
		pkg, err := v.Packages.Load(ctx, hash)
		switch {
		case errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, record.ErrType):
		case err != nil:
			return nil, "", err
		case hash == r.PackageHash || r.ranTasksOf(pkg):
			return pkg, hash, nil
		}
	}
	return nil, "", nil
}

// ranTasksOf reports whether all executions of a run with known keys belong to tasks of a package.
func (r *Report) ranTasksOf(pkg *record.Package) bool {
	tasks := make(map[string]string, len(pkg.Tasks))
	for i := range pkg.Tasks {
		tasks[pkg.Tasks[i].Name] = pkg.Tasks[i].Task
	}
	return !slices.ContainsFunc(r.Tasks, func(t TaskReport) bool {
		hash, ok := tasks[t.Task]
		key, known := executions.ParseKey(t.Key)
		return !ok || known && key.Task.String() != hash
	})
}

// sameVersion reports whether name@version is a package's reference, or the reference that an export of a workspace
// has made from it.
func sameVersion(name, of string) bool {
	if name == of {
		return true
	}
	digits, ok := strings.CutPrefix(name, of+"+")
	return ok && of != "" && len(digits) == 8 && strings.Trim(digits, "0123456789abcdef") == ""
}

// find looks for an execution by its id among the executions of every task of the given name; named reports whether
// there is such a task.
func (p taskTables) find(ctx context.Context, x *executions.Store, task, id string) (e *executions.Execution, named bool, err error) {
	err = fmt.Errorf("execution %s: %w", id, executions.ErrNotFound)
	tried := map[string]bool{}
	for _, tasks := range p {
		t, ok := tasks[task]
		if !ok || tried[t.Task] {
			continue
		}
		named, tried[t.Task] = true, true
		h, bad := objectstore.ParseHash(t.Task)
		if bad != nil {
			return nil, named, bad
		}
		if e, err = x.FindTask(ctx, h, id); err == nil || !errors.Is(err, executions.ErrNotFound) {
			return e, named, err
		}
	}
	return nil, named, err
}
