package workspace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/eastref"
	"e3/internal/events"
	"e3/internal/record"
	"e3/objectstore"
)

// RunReport is a run as people look at it: its record, completed by its events where the
// record says nothing yet.
type RunReport struct {
	*record.Run
	Provenance *record.Provenance // how it came here; nil where it was made here
	// Live says that the run's process is at work. A run on record as running that is not
	// live was interrupted: the next start closes it.
	Live  bool
	Done  int64 // tasks that have come to an end
	Total int64 // tasks of the run, as far as is known
	Tasks []TaskReport
}

// Status is the run's state in a word.
func (r *RunReport) Status() string {
	switch {
	case r.State != record.RunRunning || r.Live:
		return r.State.String()
	case r.Provenance != nil:
		return "unfinished" // when it was exported
	}
	return "interrupted"
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
	// ImportedFrom is the last step of the execution's way here; nil where it was made here, or is gone. Report tells it, and
	// Rejection.
	ImportedFrom *record.Step
	Rejection    *record.Rejection // what somebody thinks of the execution now; nil where nobody ever rejected it
}

// RunSummary is Report of the run that a workspace shows, without its tasks.
func (w *Workspaces) RunSummary(ctx context.Context, ws string) (*RunReport, error) {
	return w.summary(ctx, ws, "")
}

func (w *Workspaces) summary(ctx context.Context, ws, id string) (*RunReport, error) {
	for {
		run, err := w.run(ctx, ws, id)
		if err != nil {
			return nil, err
		}
		r := &RunReport{Run: run.Run, Provenance: run.provenance}
		if run.State != record.RunRunning || run.provenance != nil {
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
		if again, err := w.Run(ctx, ws, id); err != nil || again.RunID == run.RunID && again.State == run.State {
			return r, err
		}
	}
}

// Report tells a run of a workspace by a prefix of its id, "" the one that the workspace shows. Imported runs are told
// also of a workspace that is not here.
func (w *Workspaces) Report(ctx context.Context, ws, run string) (*RunReport, error) {
	_, missing := w.State(ctx, ws)
	if missing != nil && !errors.Is(missing, ErrNotFound) {
		return nil, missing
	}
	id, err := w.runID(ctx, ws, run)
	var unknown *UnknownError
	if missing != nil && err != nil && !errors.As(err, &unknown) && !errors.Is(err, executions.ErrAmbiguous) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	r, err := w.summary(ctx, ws, id)
	if missing != nil && (err != nil || r.Provenance == nil) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	h, err := w.history(ctx, ws, r)
	if err != nil {
		return nil, err
	}
	r.Tasks = h.tasks
	if r.Done, r.Total = h.done, h.total; r.State != record.RunRunning {
		r.Done, r.Total = r.Summary.Completed+r.Summary.Failed, r.Summary.Total
	}
	return r, w.complete(ctx, ws, r, h)
}

// history is the events of a run, folded into one report for each task.
type history struct {
	pkg         string // hash of the package object, "" where the events do not tell
	tasks       []TaskReport
	index       map[string]int
	done, total int64
}

func newHistory() *history { return &history{index: map[string]int{}} }

// history tells what became of the tasks of a run, as far as its events and its record say.
func (w *Workspaces) history(ctx context.Context, ws string, r *RunReport) (*history, error) {
	h := newHistory()
	for e, err := range events.Read(ctx, w.Records, ws, r.RunID) {
		if err != nil {
			return nil, err
		}
		h.add(&e.Event)
	}
	if r.State == record.RunRunning {
		h.now(w.Now(), r.Live)
	} else {
		h.record(r.Run)
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

// complete adds what only the executions tell: of those that no event describes, which answer proven tasks or are of an
// imported run, all; of the others, where they come from and whether they still stand. Of an execution that cannot be found
// no more is told than the run says.
func (w *Workspaces) complete(ctx context.Context, ws string, r *RunReport, h *history) error {
	var open, described []int
	for i := range h.tasks {
		switch t := &h.tasks[i]; {
		case t.ExecutionID == "":
		case t.Key != "":
			described = append(described, i)
		case t.Duration == 0:
			open = append(open, i)
		}
	}
	x := executions.NewStore(w.Records, w.Objects)
	err := parallel(ctx, len(described), func(ctx context.Context, k int) error {
		return h.tasks[described[k]].look(ctx, x)
	})
	if err != nil || len(open) == 0 {
		return err
	}
	packages, err := w.packagesOf(ctx, ws, r, h.pkg)
	if err != nil {
		return err
	}
	named := make([]bool, len(open)) // a package knows the task
	err = parallel(ctx, len(open), func(ctx context.Context, k int) error {
		t := &h.tasks[open[k]]
		e, known, err := packages.find(ctx, x, t.Task, t.ExecutionID)
		if named[k] = known; err != nil && !errors.Is(err, executions.ErrNotFound) {
			return err
		}
		t.found(e)
		return nil
	})
	if err != nil || r.Provenance == nil {
		return err
	}
	return seek(ctx, x, h, open, named)
}

// parallel calls do for 0 to n-1, from several goroutines, until one fails.
func parallel(ctx context.Context, n int, do func(ctx context.Context, k int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	const part = 64
	for from := 0; from < n; from += part {
		g.Go(func() error {
			for k := from; k < min(from+part, n); k++ {
				if err := do(ctx, k); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// look reads the execution of a task whose key is known. That it is gone, or cannot be read, takes nothing from the report.
func (t *TaskReport) look(ctx context.Context, x *executions.Store) error {
	key, ok := executions.ParseKey(t.Key)
	if !ok {
		return nil
	}
	e, err := x.Get(ctx, key, t.ExecutionID)
	switch {
	case err == nil:
		t.standing(e)
	case !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed):
		return err
	}
	return nil
}

// standing takes over where an execution comes from, and what is thought of it.
func (t *TaskReport) standing(e *executions.Execution) {
	if p := e.Provenance; p != nil {
		t.ImportedFrom = &record.Step{}
		if n := len(p.Steps); n > 0 {
			t.ImportedFrom = &p.Steps[n-1]
		}
	}
	t.Rejection = e.Rejection
}

// seek looks in the whole repository for executions of tasks that no package here knows by name.
func seek(ctx context.Context, x *executions.Store, h *history, open []int, named []bool) error {
	lost := map[string]*TaskReport{}
	for k, i := range open {
		if t := &h.tasks[i]; !named[k] {
			lost[t.ExecutionID] = t
		}
	}
	if len(lost) == 0 {
		return nil
	}
	for e, err := range x.All(ctx) {
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

// found takes over what the execution of a task tells that was known by the run's record only.
func (t *TaskReport) found(e *executions.Execution) {
	if e == nil {
		return
	}
	t.standing(e)
	t.Key, t.StartedAt = e.Key.String(), e.StartedAt
	switch e.State {
	case record.Running: // when it was exported
		return
	case record.Failed:
		t.State, t.ExitCode = TaskFailed, e.ExitCode
	case record.Error:
		t.State, t.Message = TaskError, e.Message
	}
	t.Duration = e.CompletedAt.Sub(e.StartedAt)
}

// packages are those that may say what the tasks of a run are, most likely first: their tasks by name.
type packages []map[string]*record.PackageTask

// packagesOf returns the package of a run, as its events tell it, and the one that is deployed now. An imported run may
// have neither here: then all those that are registered under the name of its package.
func (w *Workspaces) packagesOf(ctx context.Context, ws string, r *RunReport, pkg string) (packages, error) {
	var hashes []string
	add := func(hash string) {
		if hash != "" && !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	add(pkg)
	s, err := w.State(ctx, ws)
	switch {
	case err == nil:
		add(s.PackageHash)
	case !errors.Is(err, ErrNotFound):
		return nil, err
	}
	if r != nil && r.Provenance != nil {
		all, err := w.Packages(ctx)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(r.PackageRef, "@")
		for _, p := range all {
			if p.Name == name {
				add(p.Hash)
			}
		}
	}
	list := make(packages, 0, len(hashes))
	for _, hash := range hashes {
		tasks, err := w.tasksOf(ctx, hash)
		if err != nil {
			return nil, err
		}
		if tasks != nil {
			list = append(list, tasks)
		}
	}
	return list, nil
}

// find looks for an execution of a task by its id among those of every task of that name; named tells whether there is one.
func (p packages) find(ctx context.Context, x *executions.Store, task, id string) (e *executions.Execution, named bool, err error) {
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

// tasksOf returns the tasks of a package, whoever made it: those of the reference have nothing but a name and an object.
// nil says that the package is gone, or is none.
func (w *Workspaces) tasksOf(ctx context.Context, hash string) (map[string]*record.PackageTask, error) {
	pkg, err := w.LoadPackage(ctx, hash)
	if errors.Is(err, record.ErrType) {
		var east *eastref.Package
		if east, err = w.loadEast(ctx, hash); err == nil {
			pkg = &record.Package{Tasks: make([]record.PackageTask, len(east.Tasks))}
			for i, t := range east.Tasks {
				pkg.Tasks[i] = record.PackageTask{Name: t.Name, Task: t.Task.String()}
			}
		}
	}
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
