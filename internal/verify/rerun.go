package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/workspace"
)

// Again is a task that was executed again.
type Again struct {
	Task      string        `json:"task"` // <workspace>.<task>
	Result    Result        `json:"result"`
	Before    string        `json:"was,omitempty"`       // of the workspace's dataset
	Execution string        `json:"execution,omitempty"` // the new execution
	WasOutput string        `json:"wasOutput,omitempty"`
	Output    string        `json:"output,omitempty"`
	WasTook   moment.Millis `json:"wasMs,omitempty"`
	Took      moment.Millis `json:"ms,omitempty"`
	ExitCode  int64         `json:"exitCode,omitempty"`
	Message   string        `json:"message,omitempty"`
	Changes   []Change      `json:"changes,omitempty"` // of the output, at most 1000
	More      int           `json:"moreChanges,omitempty"`

	Was *executions.Execution `json:"-"` // nil if nothing has made the dataset
	Is  executions.Result     `json:"-"` // zero if nothing could be executed
	Err error                 `json:"-"` // why nothing could be executed
}

// A Result compares an execution with an earlier success.
type Result string

// The results.
const (
	Same       Result = "same"
	Different  Result = "different"
	Failed     Result = "failed"
	InError    Result = "error"
	Impossible Result = "impossible" // nothing could be executed
)

// describe fills in the answer's fields about the outcome.
func (a *Again) describe() {
	a.Result = Impossible
	if a.Was != nil {
		a.Before, a.WasOutput, a.WasTook = a.Was.ExecutionID, a.Was.OutputHash, moment.Millis(a.Was.CompletedAt.Sub(a.Was.StartedAt))
	}
	if a.Err != nil {
		a.Message = a.Err.Error()
		return
	}
	a.Execution, a.Took, a.ExitCode, a.Message = a.Is.ExecutionID, moment.Millis(a.Is.Duration), a.Is.ExitCode, a.Is.Message
	if a.Is.State != record.Success {
		a.Result = Result(a.Is.State.String())
		return
	}
	a.Output, a.Result = a.Is.Output.String(), Same
	if a.Output != a.WasOutput {
		a.Result = Different
	}
}

// Sized is an object store with sizes.
type Sized interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Refreshed is an object store with sizes whose objects can be protected from collections.
type Refreshed interface {
	Sized
	objectstore.Refresher
}

// RerunStores are the stores for executing tasks again.
type RerunStores struct {
	Objects    Refreshed
	Sessions   refstore.Sessions
	Executor   *executions.Executor
	Workspaces *workspace.Workspaces
}

// Rerun executes once more the tasks of a workspace that match a pattern of * and ?. Each is executed like the
// execution that made its dataset, on the inputs recorded there, whatever the workspace holds now. done is called for
// each as it ends, one call at a time. No dataset changes, and a differing output never becomes a hit.
func Rerun(ctx context.Context, s RerunStores, ws, pattern string, done func(*Again)) error {
	state, err := s.Workspaces.State(ctx, ws)
	if err != nil {
		return err
	}
	rows, err := s.Workspaces.Datasets.Names(ctx, ws)
	if err != nil {
		return err
	}
	pkg, err := s.Workspaces.Packages.Load(ctx, state.PackageHash)
	if errors.Is(err, record.ErrType) {
		return fmt.Errorf("package %s@%s cannot be run here: it was made by the TypeScript e3 and holds East code", state.PackageName, state.PackageVersion)
	}
	if err != nil {
		return err
	}
	r := &rerun{RerunStores: s, ws: ws, room: semaphore.NewWeighted(1000 * int64(runtime.NumCPU()))}
	tasks := make(map[string]*record.PackageTask, len(pkg.Tasks))
	unknown := &workspace.UnknownError{What: "task", Name: pattern}
	for i := range pkg.Tasks {
		tasks[pkg.Tasks[i].Name] = &pkg.Tasks[i]
		unknown.Known = append(unknown.Known, pkg.Tasks[i].Name)
	}
	var chosen []workspace.DatasetRow
	for _, row := range rows {
		if row.Output && tasks[row.Name] != nil && events.Match(pattern, row.Name) {
			chosen = append(chosen, row)
		}
	}
	if len(chosen) == 0 {
		return unknown
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	ended := make(chan *Again)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for a := range ended {
			a.describe()
			done(a)
		}
	}()
	for _, row := range chosen {
		g.Go(func() error {
			a, err := r.task(ctx, tasks[row.Name], row.Leaf)
			if err == nil {
				ended <- a
			}
			return err
		})
	}
	err = g.Wait()
	close(ended)
	<-told
	return err
}

type rerun struct {
	RerunStores
	ws   string
	room *semaphore.Weighted // thousandths of cores
}

// task executes one task again. An error is a fault of the stores.
func (r *rerun) task(ctx context.Context, t *record.PackageTask, leaf record.Leaf) (*Again, error) {
	a := &Again{Task: r.ws + "." + t.Name}
	var err error
	if a.Was, err = r.origin(ctx, t, leaf); err != nil || a.Was == nil {
		a.Err = errors.New("no execution of the task, as it is now, has made its output; start the workspace first")
		if leaf.Kind == record.LeafUnassigned {
			a.Err = errors.New("it has no output yet")
		}
		return a, err
	}
	req, spec, release, err := r.request(ctx, t, a.Was)
	if errors.Is(err, objectstore.ErrNotFound) {
		a.Err = err
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	was, err := objectstore.ParseHash(a.Was.OutputHash)
	if err != nil {
		return nil, err
	}
	cores := t.Policy.CPU
	if cores == 0 {
		cores = 1
	}
	n := int64(math.Min(1000*cores, float64(1000*runtime.NumCPU())))
	if err := r.room.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	a.Is, err = r.Executor.Rerun(ctx, req, &executions.Hit{ExecutionID: a.Was.ExecutionID, Output: was, Status: &a.Was.Status})
	r.room.Release(n)
	if errors.Is(err, objectstore.ErrNotFound) && ctx.Err() == nil {
		a.Err = err
		return a, nil
	}
	if err != nil || a.Is.State != record.Success || a.Is.Output == was {
		return a, err
	}
	d := differ{ctx: ctx, objects: r.Objects, again: a}
	if spec.Output.IsDir() {
		return a, d.trees(was, a.Is.Output)
	}
	return a, d.file(was, a.Is.Output)
}

// origin finds the execution that made a dataset: the execution of the task in the latest run, or else the latest
// success of the task with that output; nil if there is none.
func (r *rerun) origin(ctx context.Context, t *record.PackageTask, leaf record.Leaf) (*executions.Execution, error) {
	fits := func(e *executions.Execution) bool { return e.State == record.Success && e.OutputHash == leaf.Hash }
	var found *executions.Execution
	te, err := r.Workspaces.Runs.TaskExecutions(ctx, r.ws, t.Name)
	if err == nil {
		for _, e := range te.Known {
			if !fits(e) {
				continue
			}
			if te.Task != nil && te.Task.ExecutionID == e.ExecutionID {
				return e, nil
			}
			if found == nil {
				found = e
			}
		}
	} else if !errors.Is(err, executions.ErrNotFound) {
		return nil, err
	}
	if found != nil {
		return found, nil
	}
	task, err := objectstore.ParseHash(t.Task)
	if err != nil {
		return nil, err
	}
	for inputs, err := range r.Executor.Inputs(ctx, task) {
		if err != nil {
			return nil, err
		}
		for e, err := range r.Executor.List(ctx, executions.Key{Task: task, Inputs: inputs}) {
			if err == nil && fits(e) && (found == nil || e.ExecutionID > found.ExecutionID) {
				found = e
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	return found, nil
}

// request makes an earlier execution's request again. Nothing may refer to its inputs any more, so they are protected
// from collections until release.
func (r *rerun) request(ctx context.Context, t *record.PackageTask, e *executions.Execution) (*executions.Request, *record.Task, func(), error) {
	load := func(ctx context.Context) (*record.Task, error) {
		return executions.LoadTask(ctx, r.Objects, e.Key.Task)
	}
	spec, err := load(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(spec.Inputs) != len(e.InputHashes) {
		return nil, nil, nil, fmt.Errorf("execution %s has %d inputs, and its task %d", e.ExecutionID, len(e.InputHashes), len(spec.Inputs))
	}
	req := &executions.Request{
		Task: e.Key.Task, Load: load, Inputs: make([]objectstore.Hash, len(e.InputHashes)), Policy: &t.Policy,
		Attempt: 1, Workspace: r.ws, Name: t.Name,
	}
	if e.Detail != nil {
		req.InputBytes = e.Detail.BytesIn
	}
	names := []string{reach.Ref{Kind: reach.Task, Hash: e.Key.Task}.String()}
	for i, text := range e.InputHashes {
		if req.Inputs[i], err = objectstore.ParseHash(text); err != nil {
			return nil, nil, nil, fmt.Errorf("execution %s: %w", e.ExecutionID, err)
		}
		kind := reach.File
		if spec.Inputs[i].Kind == record.KindDir {
			kind = reach.Dir
		}
		names = append(names, reach.Ref{Kind: kind, Hash: req.Inputs[i]}.String())
	}
	release, err := r.Sessions.Protect(ctx, names)
	if err != nil {
		return nil, nil, nil, err
	}
	// The inputs may have no reference any more, and a running collection may have read the protected names already.
	for i, in := range spec.Inputs {
		refresh := r.Objects.Refresh
		if in.Kind == record.KindDir {
			refresh = func(ctx context.Context, h objectstore.Hash) (bool, error) {
				return tree.Refresh(ctx, r.Objects, h, objectstore.Hash{})
			}
		}
		there, err := refresh(ctx, req.Inputs[i])
		if err == nil && !there {
			err = fmt.Errorf("the content of input %s is not here any more: %w", in.Name, objectstore.ErrNotFound)
		}
		if err != nil {
			release()
			return nil, nil, nil, err
		}
	}
	return req, spec, release, nil
}
