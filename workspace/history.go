package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
)

// RunReport is a run as people look at it: its record, completed by its events where the
// record says nothing yet.
type RunReport struct {
	*record.Run
	// Live says that the run's process is at work. A run on record as running that is not
	// live was interrupted: the next start closes it.
	Live  bool
	Done  int64 // tasks that have come to an end
	Total int64 // tasks of the run, as far as is known
	Tasks []TaskReport
}

// Status is the run's state in a word.
func (r *RunReport) Status() string {
	if r.State == record.RunRunning && !r.Live {
		return "interrupted"
	}
	return r.State.String()
}

// TaskState is how far a task has come in a run.
type TaskState string

// The states of tasks.
const (
	TaskCached      TaskState = "cached"
	TaskSuccess     TaskState = "success"
	TaskFailed      TaskState = "failed"      // the command's own non-zero exit
	TaskError       TaskState = "error"       // it did not get that far: signal, timeout, cancelled, bad output
	TaskSkipped     TaskState = "skipped"     // something upstream failed
	TaskRunning     TaskState = "running"     // now
	TaskRetrying    TaskState = "retrying"    // waits for its next attempt
	TaskInterrupted TaskState = "interrupted" // its run died while it was running
)

// TaskReport is a task in a run.
type TaskReport struct {
	Task        string
	State       TaskState
	ExecutionID string // "" where nothing was executed
	Key         string // of the execution; "" where only a look at the executions tells
	StartedAt   time.Time
	Duration    time.Duration // of the execution, whenever it was; of a running one, until now
	Attempt     int64         // 0 where nothing was executed in this run
	ExitCode    int64
	Reason      string
	Message     string
	Because     string // the task whose failure made it be skipped
}

// RunSummary is Report of the latest run without its tasks.
func (w *Workspaces) RunSummary(ctx context.Context, ws string) (*RunReport, error) {
	for {
		run, err := w.Run(ctx, ws, "")
		if err != nil {
			return nil, err
		}
		r := &RunReport{Run: run}
		if run.State != record.RunRunning {
			return r, nil
		}
		busy, err := w.Busy(ctx, ws)
		if err != nil {
			return nil, err
		}
		// The lock is taken before a run begins: a holder since later is another one.
		if r.Live = busy != nil && (busy.Holder == "" || busy.Operation == record.Dataflow && !busy.Since.After(run.StartedAt)); r.Live {
			return r, nil
		}
		// It may have ended between the two looks.
		if again, err := w.Run(ctx, ws, ""); err != nil || again.RunID == run.RunID && again.State == run.State {
			return r, err
		}
	}
}

// Report tells the latest run of a workspace.
func (w *Workspaces) Report(ctx context.Context, ws string) (*RunReport, error) {
	if _, err := w.State(ctx, ws); err != nil {
		return nil, err
	}
	r, err := w.RunSummary(ctx, ws)
	if err != nil {
		return nil, err
	}
	h, err := w.history(ctx, ws, r.RunID)
	if err != nil {
		return nil, err
	}
	if r.State == record.RunRunning {
		h.now(w.Now(), r.Live)
	} else {
		h.record(r.Run)
	}
	r.Tasks = h.tasks
	if r.Done, r.Total = h.done, h.total; r.State != record.RunRunning {
		r.Done, r.Total = r.Summary.Completed+r.Summary.Failed, r.Summary.Total
	}
	return r, w.complete(ctx, ws, h)
}

// history is the events of a run, folded into one report for each task.
type history struct {
	pkg         string // hash of the package object, "" where the events do not tell
	tasks       []TaskReport
	index       map[string]int
	done, total int64
}

func (w *Workspaces) history(ctx context.Context, ws, run string) (*history, error) {
	h := &history{index: map[string]int{}}
	for e, err := range events.Read(ctx, w.Records, ws, run) {
		if err != nil {
			return nil, err
		}
		h.add(&e.Event)
	}
	return h, nil
}

func (h *history) task(name string) *TaskReport {
	i, ok := h.index[name]
	if !ok {
		i = len(h.tasks)
		h.index[name] = i
		h.tasks = append(h.tasks, TaskReport{Task: name})
	}
	return &h.tasks[i]
}

// add takes in the next event.
func (h *history) add(e *events.Event) {
	d := e.Data
	if d == nil {
		d = &events.Data{}
	}
	switch {
	case e.Type == events.RunStarted:
		h.pkg = d.PackageHash
	case e.Type == events.TaskCreated:
		h.total += int64(max(d.Tasks, 1))
	case e.Type == events.TaskCached && e.Task == "":
		h.done += int64(d.Tasks)
		h.total += int64(d.Tasks)
	case e.Task != "" && e.Type != events.TaskMarkedReady && e.Type != events.RunFailed:
		h.transition(h.task(e.Task), e, d)
	}
}

// transition moves a task on.
func (h *history) transition(t *TaskReport, e *events.Event, d *events.Data) {
	if e.Execution != "" {
		t.ExecutionID, t.Key = e.Execution, d.Key
	}
	t.Duration = time.Duration(d.Duration) * time.Millisecond
	switch e.Type {
	case events.TaskStarted:
		t.State, t.StartedAt, t.Attempt = TaskRunning, e.Time, d.Attempt
		return
	case events.TaskRetryScheduled:
		t.State, t.Attempt = TaskRetrying, d.Attempt
		h.done--
		return
	case events.TaskCached:
		t.State = TaskCached
		if d.As != "" { // proven, so not among the tasks that were announced
			h.total++
		}
	case events.TaskCompleted:
		t.State = TaskSuccess
	case events.TaskFailed:
		t.State, t.ExitCode, t.Reason, t.Message, t.Attempt = TaskFailed, d.ExitCode, d.Reason, d.Message, d.Attempt
		if d.Message != "" {
			t.State = TaskError
		}
	case events.TaskSkipped:
		t.State, t.Because = TaskSkipped, d.Because
	}
	h.done++
}

// now completes the report of a run that has not ended.
func (h *history) now(now time.Time, live bool) {
	for i := range h.tasks {
		t := &h.tasks[i]
		switch {
		case !live && (t.State == TaskRunning || t.State == TaskRetrying):
			t.State = TaskInterrupted
		case t.State == TaskRunning:
			t.Duration = now.Sub(t.StartedAt)
		}
	}
}

// record adds the tasks that only the record names, the proven ones, and puts all in its
// order: that of the package.
func (h *history) record(run *record.Run) {
	list := make([]TaskReport, 0, max(len(h.tasks), run.Tasks.Len()))
	taken := make(map[string]bool, run.Tasks.Len())
	for e := range run.Tasks.All() {
		taken[e.Task] = true
		if i, ok := h.index[e.Task]; ok {
			list = append(list, h.tasks[i])
			continue
		}
		t := TaskReport{Task: e.Task, ExecutionID: e.ExecutionID, State: TaskSuccess}
		if e.Cached {
			t.State = TaskCached
		}
		list = append(list, t)
	}
	for i := range h.tasks {
		if !taken[h.tasks[i].Task] {
			list = append(list, h.tasks[i])
		}
	}
	h.tasks = list
}

// complete finds the executions whose duration no event tells: those that answer proven
// tasks. Where an execution cannot be found its duration stays unknown.
func (w *Workspaces) complete(ctx context.Context, ws string, h *history) error {
	var open []int
	for i := range h.tasks {
		if t := &h.tasks[i]; t.ExecutionID != "" && t.Key == "" && t.Duration == 0 {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	tasks, err := w.tasksOf(ctx, ws, h.pkg)
	if err != nil {
		return err
	}
	x := executions.NewStore(w.Records, w.Objects)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(open, 64) {
		g.Go(func() error {
			for _, i := range part {
				t := &h.tasks[i]
				task, ok := tasks[t.Task]
				if !ok {
					continue
				}
				e, err := findExecution(ctx, x, task.Task, t.ExecutionID)
				if errors.Is(err, executions.ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				t.Key, t.StartedAt, t.Duration = e.Key.String(), e.StartedAt, e.CompletedAt.Sub(e.StartedAt)
			}
			return nil
		})
	}
	return g.Wait()
}

// tasksOf returns the tasks of a package, by default the one that is deployed now. A package
// that is gone, or none of ours, has none.
func (w *Workspaces) tasksOf(ctx context.Context, ws, hash string) (map[string]*record.PackageTask, error) {
	if hash == "" {
		s, err := w.State(ctx, ws)
		if err != nil || !s.Deployed {
			return nil, err
		}
		hash = s.PackageHash
	}
	pkg, err := w.LoadPackage(ctx, hash)
	if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, record.ErrType) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tasks := make(map[string]*record.PackageTask, len(pkg.Tasks))
	for i := range pkg.Tasks {
		tasks[pkg.Tasks[i].Name] = &pkg.Tasks[i]
	}
	return tasks, nil
}

// findExecution looks for an execution by its id, or a prefix of it, among all that a task
// ever had, on whatever inputs.
func findExecution(ctx context.Context, x *executions.Store, hash, prefix string) (*executions.Execution, error) {
	task, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	var found *executions.Execution
	for inputs, err := range x.Inputs(ctx, task) {
		if err != nil {
			return nil, err
		}
		e, err := x.Find(ctx, executions.Key{Task: task, Inputs: inputs}, prefix)
		switch {
		case errors.Is(err, executions.ErrNotFound):
		case err != nil:
			return nil, err
		case e.ExecutionID == prefix:
			return e, nil
		case found != nil:
			return nil, fmt.Errorf("execution %s: %w", prefix, executions.ErrAmbiguous)
		default:
			found = e
		}
	}
	if found == nil {
		return nil, fmt.Errorf("execution %s: %w", prefix, executions.ErrNotFound)
	}
	return found, nil
}

// TaskExecutions are the executions of a task as seen from a workspace.
type TaskExecutions struct {
	Run     *RunReport  // the latest run, without its tasks; nil before the first
	Task    *TaskReport // the task in it; nil where it has no part in it yet
	Retries int64       // attempts that may follow the first
	// Known are the executions with the key that the task has in the run, latest first;
	// all of the task's where it has none.
	Known []*executions.Execution

	hash string // of the task object
}

// TaskExecutions finds the executions of a task.
func (w *Workspaces) TaskExecutions(ctx context.Context, ws, task string) (*TaskExecutions, error) {
	s, err := w.deployed(ctx, ws)
	if err != nil {
		return nil, err
	}
	te := &TaskExecutions{}
	if te.Run, err = w.RunSummary(ctx, ws); err != nil && !errors.Is(err, ErrNoRun) {
		return nil, err
	}
	h := &history{index: map[string]int{}}
	if te.Run != nil {
		if h, err = w.history(ctx, ws, te.Run.RunID); err != nil {
			return nil, err
		}
		if te.Run.State == record.RunRunning {
			h.now(w.Now(), te.Run.Live)
		} else {
			h.record(te.Run.Run)
		}
	}
	if i := slices.IndexFunc(h.tasks, func(t TaskReport) bool { return t.Task == task }); i >= 0 {
		te.Task = &h.tasks[i]
	}
	if err := w.declared(ctx, s, h.pkg, task, te); err != nil {
		return nil, err
	}
	te.Known, err = w.known(ctx, te)
	return te, err
}

// declared fills in what the package says of the task: that of the run, or the one that was
// deployed since.
func (w *Workspaces) declared(ctx context.Context, s *State, pkg, task string, te *TaskExecutions) error {
	known := map[string]bool{}
	for _, hash := range []string{pkg, s.PackageHash} {
		if hash == "" {
			continue
		}
		tasks, err := w.tasksOf(ctx, "", hash)
		if err != nil {
			return err
		}
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
	return &UnknownError{What: "task", Name: task, Known: slices.Sorted(maps.Keys(known))}
}

// known lists the executions with the key of the task in the run, or with the task's hash.
func (w *Workspaces) known(ctx context.Context, te *TaskExecutions) ([]*executions.Execution, error) {
	x := executions.NewStore(w.Records, w.Objects)
	var keys []executions.Key
	if t := te.Task; t != nil && t.ExecutionID != "" {
		key, ok := executions.ParseKey(t.Key)
		if !ok {
			e, err := findExecution(ctx, x, te.hash, t.ExecutionID)
			if err != nil {
				return nil, fmt.Errorf("task %s: %w", t.Task, err)
			}
			key, t.Key = e.Key, e.Key.String()
		}
		keys, te.hash = append(keys, key), key.Task.String()
	} else if hash, err := objectstore.ParseHash(te.hash); err == nil {
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
			if err == nil { // one that cannot be read has no logs to offer either
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b *executions.Execution) int { return strings.Compare(b.ExecutionID, a.ExecutionID) })
	return list, nil
}

// FindExecution finds an execution of a task by a prefix of its id, on whatever inputs.
func (w *Workspaces) FindExecution(ctx context.Context, te *TaskExecutions, prefix string) (*executions.Execution, error) {
	e, err := findExecution(ctx, executions.NewStore(w.Records, w.Objects), te.hash, prefix)
	if !errors.Is(err, executions.ErrNotFound) {
		return e, err
	}
	unknown := &UnknownError{What: "execution", Name: prefix}
	for _, e := range te.Known {
		unknown.Known = append(unknown.Known, e.ExecutionID)
	}
	return nil, unknown
}

// Changed returns a channel that receives after executions of a key were recorded, nil where the
// store cannot tell.
func (w *Workspaces) Changed(ctx context.Context, key executions.Key) <-chan struct{} {
	watcher, ok := w.Records.(refstore.Watcher)
	if !ok {
		return nil
	}
	c, err := watcher.Watch(ctx, "EXECUTION/"+key.String())
	if err != nil {
		return nil
	}
	return c
}
