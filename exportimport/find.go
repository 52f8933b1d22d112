package exportimport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// taken is an execution that is exported.
type taken struct {
	key    executions.Key
	id     string
	task   string // the name of its task; "" if unknown
	state  record.State
	output objectstore.Hash // of a success
	steps  string           // the bytes of its provenance; "" if it was made here
	inputs []string         // its input hashes, for an execution in a zip
}

func compareTaken(a, b *taken) int {
	return cmp.Or(a.key.Task.Compare(b.key.Task), a.key.Inputs.Compare(b.key.Inputs), strings.Compare(a.id, b.id))
}

// A finder finds the executions to export.
type finder struct {
	repo *Repository

	mu    sync.Mutex
	found map[string]*taken // by key and id
	notes []string
}

func newFinder(repo *Repository) *finder { return &finder{repo: repo, found: map[string]*taken{}} }

// add adds an execution, unless it runs or its output cannot be read.
func (f *finder) add(e *executions.Execution) {
	t := &taken{key: e.Key, id: e.ExecutionID, state: e.State}
	if e.Detail != nil {
		t.task = e.Detail.Task
	}
	if e.Provenance != nil {
		t.steps = string(e.Provenance.Encode())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case e.State == record.Running:
		f.notes = append(f.notes, fmt.Sprintf("execution %s has not ended and is left out", e.ExecutionID))
		return
	case e.State == record.Success:
		h, err := objectstore.ParseHash(e.OutputHash)
		if err != nil {
			f.notes = append(f.notes, fmt.Sprintf("execution %s is left out: its record names the output %q", e.ExecutionID, shorten(e.OutputHash)))
			return
		}
		t.output = h
		if e.Rejected() {
			f.notes = append(f.notes, fmt.Sprintf("execution %s was rejected by %s and is no answer, neither here nor there", e.ExecutionID, e.Rejection.By))
		}
	}
	f.found[e.Key.String()+"/"+e.ExecutionID] = t
}

func (f *finder) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// sorted returns the found executions in the order of the zip.
func (f *finder) sorted() []*taken {
	list := make([]*taken, 0, len(f.found))
	for _, t := range f.found {
		list = append(list, t)
	}
	slices.SortFunc(list, compareTaken)
	slices.Sort(f.notes)
	f.notes = slices.Compact(f.notes) // several searches may add the same note
	return list
}

// run finds the executions of a run. The run's package and inputs give the keys. If these are gone, or the execution
// is not under its key, it searches all keys of the task, then all executions.
func (f *finder) run(ctx context.Context, ws string, run *record.Run, deployed string) error {
	wanted := make(map[string]string, run.Tasks.Len()) // task → execution
	for e := range run.Tasks.All() {
		wanted[e.Task] = e.ExecutionID
	}
	var mu sync.Mutex
	take := func(task string, e *executions.Execution) {
		f.add(e)
		mu.Lock()
		defer mu.Unlock()
		delete(wanted, task)
	}
	graph, inputs, err := f.graph(ctx, ws, run, deployed)
	if err != nil {
		return err
	}
	if graph != nil {
		err := dataflow.Keys(ctx, graph, f.repo.Objects, inputs, f.repo.Workspaces.Lookups, func(i int32, key *executions.Key) (*dataflow.Produced, error) {
			task := graph.Name(i)
			mu.Lock()
			id, ok := wanted[task]
			mu.Unlock()
			if !ok {
				return nil, nil
			}
			e, err := f.lookFor(ctx, id, graph.Hashes[i], key)
			if e == nil || err != nil {
				return nil, err
			}
			take(task, e)
			return f.produced(ctx, e)
		})
		if err != nil {
			return err
		}
	}
	return f.search(ctx, wanted)
}

// graph returns the graph of the run's package and the inputs of the run; nil if they are gone or made by the
// reference.
func (f *finder) graph(ctx context.Context, ws string, run *record.Run, deployed string) (*dataflow.Graph, record.Node, error) {
	for e, err := range events.Read(ctx, f.repo.Records, ws, run.RunID) {
		if err != nil {
			break // the search works without readable events
		}
		d := e.Facts()
		if d.PackageHash != "" && (e.Type == events.RunStarted || e.Type == events.GraphGrown) {
			deployed = d.PackageHash
		}
		if e.Type == events.RunStarted && !d.Grows {
			break
		}
	}
	pkg, err := f.repo.Workspaces.Packages.Load(ctx, deployed)
	if err != nil {
		return nil, nil, context.Cause(ctx)
	}
	graph, err := graph.New(pkg)
	if err != nil {
		return nil, nil, nil
	}
	x := exporter{repo: f.repo}
	root, err := x.readNode(ctx, run.InputSnapshot)
	if err != nil {
		return graph, nil, context.Cause(ctx)
	}
	leaf, _ := root.Get("inputs")
	inputs, err := x.readNode(ctx, leaf.Hash)
	if err != nil {
		return graph, nil, context.Cause(ctx)
	}
	return graph, inputs, nil
}

// lookFor returns an execution of a task by its id; nil if there is none.
func (f *finder) lookFor(ctx context.Context, id string, task objectstore.Hash, key *executions.Key) (*executions.Execution, error) {
	if key != nil {
		e, err := f.get(ctx, *key, id)
		if e != nil || err != nil {
			return e, err
		}
	}
	for inputs, err := range f.repo.Executions.Inputs(ctx, task) {
		if err != nil {
			return nil, err
		}
		e, err := f.get(ctx, executions.Key{Task: task, Inputs: inputs}, id)
		if e != nil || err != nil {
			return e, err
		}
	}
	return nil, nil
}

// get reads an execution. It returns nil if the execution does not exist, or cannot be read, which it notes.
func (f *finder) get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error) {
	e, err := f.repo.Executions.Get(ctx, key, id)
	switch {
	case errors.Is(err, executions.ErrNotFound):
		return nil, nil
	case errors.Is(err, executions.ErrMalformed):
		f.note("%v; it is left out", err)
		return nil, nil
	}
	return e, err
}

// produced returns the output of a success; nil if it is unknown or gone.
func (f *finder) produced(ctx context.Context, e *executions.Execution) (*dataflow.Produced, error) {
	h, err := objectstore.ParseHash(e.OutputHash)
	if e.State != record.Success || err != nil {
		return nil, nil
	}
	size, err := f.repo.Objects.Stat(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	return &dataflow.Produced{Output: h, Size: size}, err
}

// search looks for executions under every key.
func (f *finder) search(ctx context.Context, wanted map[string]string) error {
	if len(wanted) == 0 {
		return nil
	}
	tasks := make(map[string]string, len(wanted))
	for task, id := range wanted {
		tasks[id] = task
	}
	for e, err := range f.repo.Executions.LocateAll(ctx, slices.Collect(maps.Keys(tasks))) {
		if err != nil {
			if errors.Is(err, executions.ErrMalformed) {
				continue
			}
			return err
		}
		if _, ok := tasks[e.ExecutionID]; ok {
			f.add(e)
			delete(tasks, e.ExecutionID)
		}
	}
	for id, task := range tasks {
		f.note("execution %s of task %s is gone and is left out", id, task)
	}
	return nil
}

// history finds every execution of tasks.
func (f *finder) history(ctx context.Context, tasks []objectstore.Hash) error {
	slices.SortFunc(tasks, func(a, b objectstore.Hash) int { return bytes.Compare(a[:], b[:]) })
	for _, task := range slices.Compact(tasks) {
		for inputs, err := range f.repo.Executions.Inputs(ctx, task) {
			if err != nil {
				return err
			}
			for e, err := range f.repo.Executions.List(ctx, executions.Key{Task: task, Inputs: inputs}) {
				switch {
				case errors.Is(err, executions.ErrMalformed):
					f.note("%v; it is left out", err)
				case err != nil:
					return err
				default:
					f.add(e)
				}
			}
		}
	}
	return nil
}
