package history

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// finder gathers attempts from events, packages and executions, in this order.
type finder struct {
	ctx     context.Context
	s       Stores
	q       Query
	tasks   map[string]*taskFinder
	runs    map[string]*runFacts
	damaged map[string]error // by run
	taking  sync.Mutex

	packages map[string]*packageFacts // by their hashes
	live     map[string]string        // by workspace the run in progress, or ""
}

// taskFinder holds the facts about one task.
type taskFinder struct {
	appeared *Appearance
	name     string
	byID     map[string]*Attempt
	lost     []*Attempt                // failures without an execution
	answers  map[string]string         // by run with events of the task: its final execution, "" if it has none
	hashes   map[objectstore.Hash]bool // hashes that it has, or had
}

// runFacts holds the facts about a run as a whole, from its events.
type runFacts struct {
	id      string
	by      string // user@host
	pkg     string // hash of the package object
	filter  string // of the run
	as      string // the run whose executions are the results of the proven tasks, if one event stands for them all
	proven  int64  // number of tasks that this event stands for
	created int64  // tasks that were announced without their names
}

func newTask(name string) *taskFinder {
	return &taskFinder{name: name, byID: map[string]*Attempt{}, answers: map[string]string{}, hashes: map[objectstore.Hash]bool{}}
}

// task returns the facts about a task, or nil if the query does not select it.
func (f *finder) task(name string) *taskFinder {
	t, ok := f.tasks[name]
	if !ok && f.q.Pattern != "" && events.Match(f.q.Pattern, name) {
		t = newTask(name)
		f.tasks[name] = t
	}
	return t
}

func (f *finder) attempt(t *taskFinder, id string) *Attempt {
	at, ok := t.byID[id]
	if !ok {
		at = attemptOf(f.q.Workspace, t.name, id)
		t.byID[id] = at
	}
	return at
}

func (t *taskFinder) key(at *Attempt, key executions.Key) {
	at.Key = key
	t.hashes[key.Task] = true
}

// partOf notes that an attempt was part of a run.
func (at *Attempt) partOf(run string) {
	if n := len(at.Runs); n == 0 || at.Runs[n-1] != run {
		at.Runs = append(at.Runs, run)
	}
}

// fromPackages adds the hashes that the tasks have in packages.
func (f *finder) fromPackages() error {
	var all map[string][]objectstore.Hash
	var err error
	if f.q.Pattern != "" {
		all, err = f.s.Runs.AllTaskHashes(f.ctx, f.q.Workspace)
	} else {
		all, err = f.s.Runs.TaskHashes(f.ctx, f.q.Workspace, maps.Keys(f.tasks))
	}
	if err != nil {
		return err
	}
	for name, hashes := range all {
		if t := f.task(name); t != nil {
			for _, h := range hashes {
				t.hashes[h] = true
			}
		}
	}
	for _, t := range f.tasks {
		for _, at := range t.byID {
			if at.Key != (executions.Key{}) {
				continue
			}
			// Only the packages of the runs that used its result can give its key.
			for _, run := range at.Runs {
				pkg, err := f.packageOf(run)
				if err != nil {
					return err
				}
				if h, ok := pkg.hash(t.name); ok {
					t.hashes[h] = true
				}
			}
		}
	}
	return nil
}

// fromExecutions adds the executions of the tasks, also executions that answered them without an event.
func (f *finder) fromExecutions() error {
	if f.q.Only != "" {
		return nil
	}
	of := map[objectstore.Hash][]*taskFinder{}
	for _, t := range f.tasks {
		for h := range t.hashes {
			of[h] = append(of[h], t)
		}
	}
	hashes := slices.Collect(maps.Keys(of))
	if f.q.Deep {
		hashes = hashes[:0]
		for h, err := range f.s.Executions.Tasks(f.ctx) {
			if err != nil {
				return err
			}
			hashes = append(hashes, h)
		}
	}
	g, ctx := errgroup.WithContext(f.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, h := range hashes {
		if f.q.From != "" {
			f.lookAfter(ctx, g, h, of[h])
			continue
		}
		var keys []executions.Key
		for inputs, err := range f.s.Executions.Inputs(ctx, h) {
			if err != nil {
				if fault := g.Wait(); fault != nil {
					return fault // the fault that ended the list
				}
				return err
			}
			if keys = append(keys, executions.Key{Task: h, Inputs: inputs}); len(keys) == together {
				f.look(ctx, g, keys, of[h])
				keys = nil
			}
		}
		f.look(ctx, g, keys, of[h])
	}
	return g.Wait()
}

// together is the number of keys that one goroutine looks up.
const together = 64

// look adds the executions of keys, in goroutines of the group.
func (f *finder) look(ctx context.Context, g *errgroup.Group, keys []executions.Key, tasks []*taskFinder) {
	if len(keys) == 0 {
		return
	}
	g.Go(func() error {
		for _, key := range keys {
			for e, err := range f.s.Executions.List(ctx, key) {
				if err := f.take(tasks, e, err); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// lookAfter adds the executions of a task hash that are later than the first run that is read.
func (f *finder) lookAfter(ctx context.Context, g *errgroup.Group, h objectstore.Hash, tasks []*taskFinder) {
	g.Go(func() error {
		for e, err := range f.s.Executions.After(ctx, h, f.q.From) {
			if err := f.take(tasks, e, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// take adds an execution to the tasks that it belongs to: tasks with its task hash, and in a deep query the task that
// its detail names.
func (f *finder) take(tasks []*taskFinder, e *executions.Execution, err error) error {
	var bad *executions.RecordError
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	f.taking.Lock()
	defer f.taking.Unlock()
	if f.q.Deep && e != nil && e.Detail != nil && e.Detail.Workspace == f.q.Workspace {
		if t := f.task(e.Detail.Task); t != nil && !slices.Contains(tasks, t) {
			tasks = append(slices.Clip(tasks), t)
		}
	}
	for _, t := range tasks {
		if bad != nil {
			at := f.attempt(t, bad.ExecutionID)
			at.Err = err
			t.key(at, bad.Key)
			continue
		}
		if d := e.Detail; t.byID[e.ExecutionID] == nil && d != nil && d.Task != "" && (d.Task != t.name || d.Workspace != f.q.Workspace) {
			continue // another task that computes the same
		}
		at := f.attempt(t, e.ExecutionID)
		at.Execution = e
		t.key(at, e.Key)
	}
	return nil
}

// read looks up the executions that only events name.
func (f *finder) read() error {
	g, ctx := errgroup.WithContext(f.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range f.tasks {
		for _, at := range t.byID {
			if at.Execution != nil || at.Err != nil {
				continue
			}
			if at.Key == (executions.Key{}) {
				at.Err = executions.ErrNotFound
				continue
			}
			g.Go(func() error {
				at.Execution, at.Err = f.s.Executions.Get(ctx, at.Key, at.ExecutionID)
				if err := at.Err; err != nil && !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed) {
					return err
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return f.pruned()
}

// pruned looks up the tombstones of missing executions.
func (f *finder) pruned() error {
	remembered := map[objectstore.Hash]map[string]*record.Tombstone{}
	for _, t := range f.tasks {
		for _, at := range t.byID {
			if !errors.Is(at.Err, executions.ErrNotFound) || at.Key == (executions.Key{}) {
				continue
			}
			byID, ok := remembered[at.Key.Task]
			if !ok {
				list, err := f.s.Executions.TaskTombstones(f.ctx, at.Key.Task)
				if err != nil {
					return err
				}
				byID = make(map[string]*record.Tombstone, len(list))
				for i := range list {
					byID[list[i].ExecutionID] = &list[i]
				}
				remembered[at.Key.Task] = byID
			}
			if tomb := byID[at.ExecutionID]; tomb != nil && tomb.InputsHash == at.Key.Inputs.String() {
				at.Err = &executions.PrunedError{Tombstone: *tomb, Now: f.s.Runs.Now()}
			}
		}
	}
	return nil
}

// settle determines the status of each attempt.
func (f *finder) settle() error {
	for _, t := range f.tasks {
		for _, at := range t.byID {
			slices.Sort(at.Runs)
			at.Runs = slices.Compact(at.Runs)
			if e := at.Execution; e != nil {
				at.recorded(e)
			} else {
				at.told()
			}
			if r := f.runs[at.MadeBy]; r != nil && at.Worker == "" {
				at.Worker = r.by
			}
			if at.Status != runview.TaskRunning {
				continue
			}
			if err := f.running(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// recorded fills in an attempt from its record.
func (at *Attempt) recorded(e *executions.Execution) {
	said := at.Message
	at.StartedAt, at.ExitCode, at.Message, at.Output = e.StartedAt, e.ExitCode, e.Message, e.OutputHash
	at.Timed = e.State != record.Running
	at.Status = runview.StateOf(e.State)
	if at.Timed {
		at.Duration = max(e.CompletedAt.Sub(e.StartedAt), 0)
	}
	if d := e.Detail; d != nil {
		at.Worker, at.Reason, at.Number = d.Worker, d.Reason, cmp.Or(d.Attempt, at.Number)
		if d.RunID != "" {
			at.MadeBy = d.RunID
		}
	}
	// The execution's record lacks the user who cancelled it and the reason; the run's record has both.
	if at.Reason == string(executions.ReasonCancelled) && strings.HasPrefix(said, at.Message) {
		at.Message = said
	}
}

// told fills in the outcome of an attempt from events if its record is gone.
func (at *Attempt) told() {
	switch {
	case at.State == runview.TaskDeferred: // its exit code defers it
		at.Status = runview.TaskFailed
	case at.State != "":
		at.Status = at.State
	case !at.StartedAt.IsZero():
		at.Status = runview.TaskRunning // running if its run is
	case len(at.Runs) > 0:
		at.Status = runview.TaskSuccess // it was cached
	default:
		at.Status = runview.TaskUnknown
	}
}

// running reports whether an attempt without an end still runs.
func (f *finder) running(at *Attempt) error {
	ws := at.Workspace
	if e := at.Execution; e != nil {
		if e.Provenance != nil {
			at.Status = runview.TaskUnfinished
			return nil
		}
		if d := e.Detail; d != nil && d.Workspace != "" {
			ws = d.Workspace
		}
	}
	live, ok := f.live[ws]
	if !ok {
		r, err := f.s.Runs.Summary(f.ctx, ws)
		if err != nil && !errors.Is(err, runview.ErrNoRun) && !errors.Is(err, human.ErrNotFound) {
			return err
		}
		if err == nil && r.Live {
			live = r.RunID
		}
		f.live[ws] = live
	}
	if at.MadeBy == "" || at.MadeBy != live {
		at.Status = runview.TaskInterrupted
		return nil
	}
	at.Duration = max(f.s.Runs.Now().Sub(at.StartedAt), 0)
	return nil
}

func (f *finder) found() *Found {
	found := &Found{}
	for _, run := range slices.Sorted(maps.Keys(f.damaged)) {
		found.Damaged = append(found.Damaged, f.damaged[run])
	}
	for _, name := range slices.Sorted(maps.Keys(f.tasks)) {
		t := f.tasks[name]
		list := make([]Attempt, 0, len(t.byID)+len(t.lost))
		for _, at := range t.byID {
			list = append(list, *at)
		}
		for _, at := range t.lost {
			list = append(list, *at)
		}
		slices.SortFunc(list, func(x, y Attempt) int {
			return cmp.Or(y.sortTime().Compare(x.sortTime()), strings.Compare(y.ExecutionID, x.ExecutionID))
		})
		found.Tasks = append(found.Tasks, Task{Name: name, Attempts: list, Appeared: t.appeared})
	}
	return found
}
