package runview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/packages"
	"e3/objectstore"
	"e3/refstore"
)

// TaskExecutions are the executions of a task as seen from a workspace.
type TaskExecutions struct {
	Run     *Report     // the run that the workspace shows, without its tasks; nil before the first
	Task    *TaskReport // the task in that run; nil if it is not part of the run yet
	Retries int64       // attempts that may follow the first
	// Known are the executions with the task's key in the run, latest first; without a key, all executions of the task.
	Known []*executions.Execution
	// Lost says why the execution that counts is not on record: it was pruned, removed by hand, or damaged; nil if it
	// is.
	Lost error

	hash string // of the task object
}

// Current is the execution that counts for the task in the run; nil if there is none.
func (te *TaskExecutions) Current() *executions.Execution {
	for _, e := range te.Known {
		if te.Task != nil && e.ExecutionID == te.Task.ExecutionID {
			return e
		}
	}
	return nil
}

// TaskExecutions finds the executions of a task, in the run that the workspace shows and elsewhere. The workspace need
// not exist if a run of it was imported.
func (v *Runs) TaskExecutions(ctx context.Context, ws, task string) (*TaskExecutions, error) {
	state, missing := v.Workspaces.State(ctx, ws)
	if missing == nil && state.PackageHash == "" {
		missing = fmt.Errorf("workspace %s: %w", ws, packages.ErrNotDeployed)
	}
	if missing != nil && !errors.Is(missing, human.ErrNotFound) && !errors.Is(missing, packages.ErrNotDeployed) {
		return nil, missing
	}
	te := &TaskExecutions{}
	var err error
	if te.Run, err = v.Summary(ctx, ws); err != nil && !errors.Is(err, ErrNoRun) && missing == nil {
		return nil, err
	}
	if missing != nil && (err != nil || te.Run.Provenance == nil) {
		return nil, missing
	}
	pkg := ""
	if te.Run != nil {
		if te.Task, pkg, err = v.taskOf(ctx, ws, te.Run, task); err != nil {
			return nil, err
		}
	}
	packages, err := v.packagesOf(ctx, ws, te.Run, pkg)
	if err != nil {
		return nil, err
	}
	if err := te.declared(packages, task); err != nil {
		return nil, err
	}
	if te.Known, err = v.known(ctx, te, packages); err != nil {
		return nil, err
	}
	if h, err := objectstore.ParseHash(te.hash); err == nil && te.Lost == nil && te.Task != nil && te.Task.ExecutionID != "" && te.Current() == nil {
		if _, err := executions.NewStore(v.Records, v.Objects).FindTask(ctx, h, te.Task.ExecutionID); errors.Is(err, executions.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) || errors.Is(err, executions.ErrMalformed) {
			te.Lost = err
		}
	}
	return te, nil
}

// declared fills in the task's declaration from the package of the run, or from the package that was deployed since.
func (te *TaskExecutions) declared(from taskTables, task string) error {
	known := map[string]bool{}
	for _, tasks := range from {
		if t, ok := tasks[task]; ok {
			te.hash, te.Retries = t.Task, t.Policy.Retries
			return nil
		}
		for name := range tasks {
			known[name] = true
		}
	}
	if te.Task != nil {
		return nil
	}
	return &human.UnknownError{What: "task", Name: task, Known: slices.Sorted(maps.Keys(known))}
}

// known lists the executions with the key of the task in the run, or with the task's hash.
func (v *Runs) known(ctx context.Context, te *TaskExecutions, from taskTables) ([]*executions.Execution, error) {
	x := executions.NewStore(v.Records, v.Objects)
	var keys []executions.Key
	if t := te.Task; t != nil && t.ExecutionID != "" {
		key, ok := executions.ParseKey(t.Key)
		if !ok {
			e, named, err := from.find(ctx, x, t.Task, t.ExecutionID)
			if errors.Is(err, executions.ErrNotFound) && !named && te.Run.Provenance != nil {
				e, err = x.Locate(ctx, t.ExecutionID)
			}
			if err != nil && !(named && errors.Is(err, executions.ErrNotFound)) {
				return nil, fmt.Errorf("task %s: %w", t.Task, err)
			}
			if te.Lost = err; err == nil {
				t.found(e)
				key = e.Key
			}
		}
		if te.Lost == nil {
			keys, te.hash = append(keys, key), key.Task.String()
		}
	}
	if hash, err := objectstore.ParseHash(te.hash); len(keys) == 0 && err == nil {
		for inputs, err := range x.Inputs(ctx, hash) {
			if err != nil {
				return nil, err
			}
			keys = append(keys, executions.Key{Task: hash, Inputs: inputs})
		}
	}
	var list []*executions.Execution
	for _, key := range keys {
		for e, err := range x.List(ctx, key) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err == nil { // an unreadable one has no logs either
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b *executions.Execution) int { return strings.Compare(b.ExecutionID, a.ExecutionID) })
	return list, nil
}

// FindExecution finds an execution of a task by a prefix of its id, whatever its inputs were.
func (v *Runs) FindExecution(ctx context.Context, te *TaskExecutions, prefix string) (*executions.Execution, error) {
	if h, err := objectstore.ParseHash(te.hash); err == nil { // otherwise only an imported run names the task
		e, err := executions.NewStore(v.Records, v.Objects).FindTask(ctx, h, prefix)
		var pruned *executions.PrunedError
		if errors.As(err, &pruned) {
			pruned.Now = v.Now()
			return nil, pruned
		}
		if !errors.Is(err, executions.ErrNotFound) {
			return e, err
		}
	}
	unknown := &human.UnknownError{What: "execution", Name: prefix}
	for _, e := range te.Known {
		unknown.Known = append(unknown.Known, e.ExecutionID)
	}
	return nil, unknown
}

// TaskHashes returns the hashes of some tasks of a workspace, as AllTaskHashes does; none of those that no package has.
func (v *Runs) TaskHashes(ctx context.Context, ws string, tasks iter.Seq[string]) (map[string][]objectstore.Hash, error) {
	packages, err := v.packagesIn(ctx, ws)
	if err != nil {
		return nil, err
	}
	found := map[string][]objectstore.Hash{}
	for name := range tasks {
		for _, tables := range packages {
			if t, ok := tables[name]; ok {
				addHash(found, t)
			}
		}
	}
	return found, nil
}

// AllTaskHashes returns the hashes of each task of a workspace, from the deployed package and from packages of its
// runs, as far as they are here.
func (v *Runs) AllTaskHashes(ctx context.Context, ws string) (map[string][]objectstore.Hash, error) {
	packages, err := v.packagesIn(ctx, ws)
	if err != nil {
		return nil, err
	}
	all := map[string][]objectstore.Hash{}
	for _, tasks := range packages {
		for _, t := range tasks {
			addHash(all, t)
		}
	}
	return all, nil
}

func addHash(to map[string][]objectstore.Hash, t *record.PackageTask) {
	if h, err := objectstore.ParseHash(t.Task); err == nil && !slices.Contains(to[t.Name], h) {
		to[t.Name] = append(to[t.Name], h)
	}
}

// packagesIn returns the tasks of the deployed package of a workspace, and of packages of its runs, as far as they
// are here.
func (v *Runs) packagesIn(ctx context.Context, ws string) (taskTables, error) {
	r, err := v.Summary(ctx, ws)
	if err != nil && !errors.Is(err, ErrNoRun) && !errors.Is(err, human.ErrNotFound) {
		return nil, err
	}
	pkg := ""
	if r != nil {
		started, err := events.First(ctx, v.Records, ws, r.RunID)
		if err != nil {
			return nil, err
		}
		if started != nil && started.Data != nil {
			pkg = started.Data.PackageHash
		}
	}
	return v.packagesOf(ctx, ws, r, pkg)
}
