package runview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
)

// A Fold computes the state of a run from its events, added one after the other. It is the only code that does so,
// whether the run is live, ended or dead; [Attempt.Tell] alone folds the outcome of an attempt. Other code that names
// many types of events emits them, or turns each event into words, marks or counts without keeping a state. A log may
// come from anywhere: whatever it says, memory is bounded by the names in it, and later events win.
type Fold struct {
	started *events.Event // nil before run.started
	end     *events.Event // nil before the end
	grown   string        // hash of the last package that the graph has grown into
	alive   time.Time     // of the last event of the run's own process
	tasks   []*FoldedTask // in the order in which they are first named
	slab    []FoldedTask  // memory for the next tasks, so that no growth of the list copies them
	index   map[string]int
	workers map[string]string // names that many tasks share
	bulk    []Proven
	created int64 // announced by task.created
	named   int64 // proven tasks with their own event
	proven  int64 // proven tasks without an event of their own
	gone    int64 // abandoned tasks
	lost    int64 // damaged events that were removed
	seq     int64 // of the last event
}

// Started is the event that began the run; nil: not known.
func (f *Fold) Started() *events.Event { return f.started }

// End is the event that ended the run; nil: not known.
func (f *Fold) End() *events.Event { return f.end }

// Alive is the time of the last sign of life: an event of the run's own process, or the end of a command of it.
func (f *Fold) Alive() time.Time { return f.alive }

// Named is the number of tasks that the events have named.
func (f *Fold) Named() int { return len(f.tasks) }

// Find returns a task, nil if no event names it. Later events of the task change it.
func (f *Fold) Find(task string) *FoldedTask {
	if i, ok := f.index[task]; ok {
		return f.tasks[i]
	}
	return nil
}

// All returns the tasks that events name. During the iteration, events may be added that name no new task.
func (f *Fold) All() iter.Seq[*FoldedTask] {
	return func(yield func(*FoldedTask) bool) {
		for i := range f.tasks {
			if !yield(f.tasks[i]) {
				return
			}
		}
	}
}

// Counted reports whether an event has counted tasks that it does not name.
func (f *Fold) Counted() bool { return f.created > 0 || f.proven > 0 }

// Announced is the number of tasks that were announced.
func (f *Fold) Announced() int64 { return f.created }

// Bulk reports whether an event stands for many cached tasks without naming them: see Runs.Expand.
func (f *Fold) Bulk() bool { return len(f.bulk) > 0 }

// Proven returns the tasks for which bulk events stand. e3 writes at most one such event in a run.
func (f *Fold) Proven() []Proven { return f.bulk }

// FoldedTask is a task that an event names.
type FoldedTask struct {
	TaskReport
	own     bool   // announced, not proven
	shared  bool   // proven by an event about many tasks, and decided again since
	Ended   string // the recorded execution that ended last, or the cached one
	Adopted bool   // another worker continues its execution
}

// Proven are tasks that share an event: the run As has their executions.
type Proven struct {
	Tasks int64
	As    string
}

// ProvenBy returns the tasks that an event proves without naming them.
func ProvenBy(e *events.Event) (p Proven, ok bool) {
	if e.Type != events.TaskCached || e.Task != "" {
		return Proven{}, false
	}
	return Proven{e.Facts().TaskCount(), e.Facts().As}, true
}

// Bounds of what a fold makes at a time, and of the names that it remembers.
const (
	maxSlab    = 512
	maxWorkers = 4096
)

// NewFold returns a Fold without events.
func NewFold() *Fold { return &Fold{index: map[string]int{}} }

// Add adds the next event.
func (f *Fold) Add(e *events.Event) {
	d := e.Facts()
	f.seq = e.Seq
	// The event of a lost worker's attempt has the time at which another process has given the attempt up.
	ofRun := d.Reason != events.ReasonCrashed && d.Reason != string(executions.ReasonLost)
	if (ofRun || ended(e, d)) && e.Time.After(f.alive) {
		f.alive = e.Time
	}
	tasks := d.TaskCount()
	switch e.Type {
	case events.EventLost:
		f.lost++
	case events.RunStarted:
		f.started = e
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		f.end = e
		if d.Reason != events.ReasonCrashed {
			f.endRetries()
		}
	case events.GraphGrown:
		f.grown = d.PackageHash
	case events.TaskCreated:
		f.created += max(tasks, 1)
	case events.TaskAbandoned:
		f.gone += max(tasks, 1)
		if d.Reason != events.ReasonCrashed { // the run itself says so, as it ends
			f.endRetries()
		}
	case events.TaskCached:
		if p, ok := ProvenBy(e); ok {
			f.proven += p.Tasks
			f.bulk = append(f.bulk, p)
			return
		}
		fallthrough
	default:
		if e.Task == "" {
			return
		}
		if _, known := f.index[e.Task]; e.Type == events.TaskReopened && !known && len(f.bulk) > 0 && f.bulk[len(f.bulk)-1].Tasks > 0 {
			f.task(e.Task).shared = true
			f.proven, f.created = f.proven-1, f.created+1
			f.bulk[len(f.bulk)-1].Tasks--
		}
		f.transition(f.task(e.Task), e, d)
	}
}

// endRetries settles the tasks that waited for another attempt when the run was ending: they have failed like their
// last attempt, which the log already tells.
func (f *Fold) endRetries() {
	for i := range f.tasks {
		if t := f.tasks[i]; t.State == TaskRetrying {
			t.State, t.Attempt = failure(t.Message), max(t.Attempt-1, 1)
		}
	}
}

// worker returns a name of a worker that all tasks of that worker share.
func (f *Fold) worker(name string) string {
	if known, ok := f.workers[name]; ok {
		return known
	}
	name = strings.Clone(name)
	if f.workers == nil || len(f.workers) == maxWorkers {
		f.workers = map[string]string{}
	}
	f.workers[name] = name
	return name
}

func (f *Fold) task(name string) *FoldedTask {
	i, ok := f.index[name]
	if !ok {
		name = strings.Clone(name) // the event's line need not stay in memory
		i = len(f.tasks)
		f.index[name] = i
		if len(f.slab) == 0 {
			f.slab = make([]FoldedTask, min(max(i, 8), maxSlab))
		}
		f.tasks, f.slab = append(f.tasks, &f.slab[0]), f.slab[1:]
		f.tasks[i].Task = name
	}
	return f.tasks[i]
}

// transition applies an event to the state of its task.
func (f *Fold) transition(t *FoldedTask, e *events.Event, d *events.Data) {
	if e.Type == events.TaskCached && d.As != "" && t.State == "" {
		f.named++
		t.Proven = true
	} else {
		t.own, t.Proven = true, false
	}
	if e.Execution != "" && (e.Execution != t.ExecutionID || d.Key != "" && d.Key != t.Key) {
		t.ExecutionID, t.Key = e.Execution, d.Key
	}
	switch e.Type {
	case events.TaskMarkedReady:
		t.State, t.Gathered = TaskReady, d.Gathered
		return
	case events.TaskLeftOut:
		t.LeftOut = d.Because
		return
	case events.TaskClaimed:
		t.State, t.StartedAt, t.Attempt, t.Duration, t.Worker = TaskClaimed, moment.At(e.Time), d.Attempt, 0, f.worker(e.Worker)
		return
	case events.TaskReleased: // its execution never began
		t.State, t.ExecutionID, t.Key, t.Worker = TaskReady, "", "", ""
		return
	case events.TaskStarted:
		t.State, t.StartedAt, t.Attempt, t.Duration, t.Worker, t.Adopted = TaskRunning, moment.At(e.Time), d.Attempt, 0, f.worker(e.Worker), false
		t.Batch = batchOf(d)
		return
	case events.TaskOrphaned:
		return
	case events.TaskAdopted:
		t.Worker, t.Adopted = f.worker(e.Worker), true
		return
	case events.TaskDeferred:
		t.State, t.Since = TaskDeferred, moment.At(e.Time)
	case events.TaskResumed:
		at, _ := time.Parse(time.RFC3339, d.At) // zero: not known
		t.State, t.Approved = TaskReady, &Approval{By: d.By, At: moment.At(at), Note: d.Message}
		return
	case events.TaskReopened:
		t.State, t.Ended = "", ""
		return
	case events.TaskRetryScheduled:
		if t.State, t.Attempt = TaskRetrying, d.Attempt; t.Reason == string(executions.ReasonBatch) {
			t.State = TaskReady // its own attempts are still to come
		}
		return
	case events.TaskSkipped:
		t.State, t.Because, t.Gathered = TaskSkipped, d.Because, d.Gathered
		return
	case events.TaskCached:
		t.State = TaskCached
	case events.TaskCompleted:
		t.State, t.Batch = TaskSuccess, batchOf(d)
	case events.TaskFailed:
		t.Batch = batchOf(d)
		t.ExitCode, t.Reason, t.Message, t.MayFail = d.ExitCode, d.Reason, d.Message, d.MayFail
		t.State = failure(d.Message)
		if d.Attempt > 0 {
			t.Attempt = d.Attempt
		}
	default:
		return // the event says nothing about the state
	}
	if e.Execution != "" {
		if !d.NoRecord {
			t.Ended = t.ExecutionID
		}
		if e.Type != events.TaskFailed || d.Block == "" { // a rejected task had ended before
			t.Duration = moment.Millis(events.Milliseconds(d.Duration))
		}
	}
}

// batchOf is the batch that an event of an attempt names.
func batchOf(d *events.Data) Batch {
	if d.Batch == "" {
		return Batch{}
	}
	return Batch{Execution: d.Batch, Items: d.Items}
}

// Summary counts the states of the tasks. After the end of a run with a complete log it counts every task.
func (f *Fold) Summary() record.Summary {
	s := record.Summary{Total: f.created + f.named + f.proven, Completed: f.proven, Cached: f.proven, Skipped: f.gone}
	for i := range f.tasks {
		switch f.tasks[i].State {
		case TaskCached:
			s.Cached++
			s.Completed++
		case TaskSuccess:
			s.Completed++
		case TaskFailed, TaskError:
			s.Failed++
		case TaskSkipped:
			s.Skipped++
		}
	}
	return s
}

// Unnamed is the number of announced tasks that no event has named.
func (f *Fold) Unnamed() int64 {
	n := f.created
	for i := range f.tasks {
		if f.tasks[i].own {
			n--
		}
	}
	return n
}

// Waiting is the number of tasks that have not ended and are not running: their inputs are not known, they had no turn
// yet, or they wait for approval.
func (f *Fold) Waiting() int64 {
	s := f.Summary()
	n := s.Total - s.Completed - s.Failed - s.Skipped
	for i := range f.tasks {
		if st := f.tasks[i].State; st == TaskRunning || st == TaskClaimed || st == TaskRetrying {
			n--
		}
	}
	return max(n, 0)
}

// Abandons reports whether the log says which tasks have no other turn, because the run ends.
func (f *Fold) Abandons() bool { return f.gone > 0 }

// ended reports whether an event says when a command ended by itself, also if the process that closes a dead run has written
// it. An execution that was closed as dead ended before it was found.
func ended(e *events.Event, d *events.Data) bool {
	return e.Type == events.TaskCompleted || e.Type == events.TaskFailed && d.ExitCode != 0
}

// State is the state of the run.
func (f *Fold) State() record.RunState {
	if f.end == nil {
		return record.RunRunning
	}
	return StateAfter(f.end)
}

// StateAfter is the state of a run that an event has ended.
func StateAfter(end *events.Event) record.RunState {
	switch end.Type {
	case events.RunCompleted:
		return record.RunCompleted
	case events.RunCancelled:
		return record.RunCancelled
	}
	return record.RunFailed
}

// Executions are the executions for the run's record, without tasks that no event names: see Expand.
func (f *Fold) Executions() record.RunTasks {
	return record.NewRunTasks(func(yield func(record.TaskExecution) bool) {
		for i := range f.tasks {
			t := f.tasks[i]
			if t.Ended != "" && !yield(record.TaskExecution{Task: t.Task, ExecutionID: t.Ended, Cached: t.State == TaskCached}) {
				return
			}
		}
	})
}

// sort puts the tasks in the order of the package; tasks that the package lacks keep their order and come last.
func (f *Fold) sort(g *graph.Graph) {
	if g == nil {
		return
	}
	place := func(t *FoldedTask) int {
		if i, ok := g.Find(t.Task); ok {
			return int(i)
		}
		return g.Len()
	}
	slices.SortStableFunc(f.tasks, func(a, b *FoldedTask) int { return place(a) - place(b) })
	for i := range f.tasks {
		f.index[f.tasks[i].Task] = i
	}
}

// PackageHash is the hash of the run's package object, of the last one if the graph has grown; "" if no event names
// it.
func (f *Fold) PackageHash() string {
	if f.grown != "" {
		return hashOrNone(f.grown)
	}
	if f.started == nil || f.started.Data == nil {
		return ""
	}
	return hashOrNone(f.started.Data.PackageHash)
}

// Grown is the hash of the last package that the run's graph has grown into; "" if it has not grown.
func (f *Fold) Grown() string { return hashOrNone(f.grown) }

// Fold folds the events of a run up to the first damaged line, which damage describes. Of later events only the end of
// the run counts.
func (v *Runs) Fold(ctx context.Context, ws, run string) (f *Fold, damage, err error) {
	f = NewFold()
	for e, err := range events.Read(ctx, v.Records, ws, run) {
		if errors.As(err, new(*events.DamagedError)) {
			damage = err
			break
		}
		if err != nil {
			return nil, nil, err
		}
		f.Add(&e.Event)
	}
	if damage != nil {
		if err := v.endOf(ctx, ws, run, f); err != nil {
			return nil, nil, err
		}
	}
	if damage == nil && f.lost > 0 {
		damage = fmt.Errorf("events of run %s: %d of them were damaged, and are lost", run, f.lost)
	}
	return f, damage, nil
}

// endOf adds the last event of a run to a fold that damage has cut short, if that event is the run's end.
func (v *Runs) endOf(ctx context.Context, ws, run string, f *Fold) error {
	if f.end != nil {
		return nil
	}
	end, err := events.End(ctx, v.Records, ws, run)
	if end != nil {
		f.Add(end)
	}
	return err
}

// End makes the last event of a run from its record, in which times are whole milliseconds.
func End(run *record.Run) events.Event {
	took := run.CompletedAt.Truncate(time.Millisecond).Sub(run.StartedAt.Truncate(time.Millisecond))
	counted := events.Summary(run.Summary)
	e := events.Event{Type: events.RunCompleted, Data: &events.Data{
		Duration: took.Milliseconds(), Summary: &counted, Outputs: run.OutputSnapshot}}
	switch run.State {
	case record.RunFailed:
		e.Type, e.Task, e.Data.Message = events.RunFailed, run.FailedTask, run.Error
	case record.RunCancelled:
		e.Type = events.RunCancelled
	}
	return e
}
