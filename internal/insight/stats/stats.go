// Package stats adds up what the runs of a repository were answered, executed and saved, from their events alone.
package stats

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"e3/internal/events"
	"e3/refstore"
)

// Options select runs.
type Options struct {
	Workspace string // "": all, also removed ones
	// Since and Until: runs that began at or after the one, and before the other.
	Since, Until time.Time
}

// Stats are what some runs add up to.
type Stats struct {
	Total      Sums
	Workspaces []Group // by name
	Users      []Group // by name; of runs of which no event tells it, ""
	// Damaged are the errors of logs that could not be read whole: what they lack is not counted.
	Damaged []error
}

// A Group is the runs of a workspace or user.
type Group struct {
	Name string `json:"name"`
	Sums
}

// Sums of runs. Durations are those of commands, in milliseconds; a command that ran beside others counts whole.
type Sums struct {
	Runs       int64 `json:"runs"`
	Completed  int64 `json:"completed"` // of the runs
	Hits       int64 `json:"hits"`      // tasks that an earlier execution answered
	Executed   int64 `json:"executed"`  // attempts at tasks that ran
	Failures   int64 `json:"failures"`  // of these
	SavedMs    int64 `json:"savedMs"`   // durations of the executions that answered
	Untimed    int64 `json:"untimed"`   // hits whose duration no event tells any more: what they saved is not in SavedMs
	ExecutedMs int64 `json:"executedMs"`
	Bytes      int64 `json:"bytes"` // that successes have stored as their outputs; of a directory, its listing
	// Requests of the processes of runs, where they are counted: to DynamoDB and S3, by an e3 that records them.
	Requests events.Traffic `json:"requests"`
}

// HitRate is the share of answers that were hits, in all that were hits or executed: 0 to 1, 0 where there are none.
func (s *Sums) HitRate() float64 {
	if s.Hits+s.Executed == 0 {
		return 0
	}
	return float64(s.Hits) / float64(s.Hits+s.Executed)
}

func (s *Sums) add(o *Sums) {
	s.Runs, s.Completed = s.Runs+o.Runs, s.Completed+o.Completed
	s.Hits, s.Executed, s.Failures = s.Hits+o.Hits, s.Executed+o.Executed, s.Failures+o.Failures
	s.SavedMs, s.Untimed, s.ExecutedMs, s.Bytes = s.SavedMs+o.SavedMs, s.Untimed+o.Untimed, s.ExecutedMs+o.ExecutedMs, s.Bytes+o.Bytes
	s.Requests.Add(&o.Requests)
}

// Read adds up the runs of a repository. It reads the events of all runs once, also of those before Since: they tell how long the executions took
// that answer later. Memory is that of the names of tasks.
func Read(ctx context.Context, streams refstore.Streams, o Options) (*Stats, error) {
	f := &folder{o: o, workspaces: map[string]*memory{}, runs: map[string]*memory{}, byWorkspace: map[string]*Sums{}, byUser: map[string]*Sums{}}
	filter := events.Filter{Types: []events.Type{
		events.RunStarted, events.TaskCached, events.TaskCompleted, events.TaskFailed, events.RunCompleted, events.RunFailed, events.RunCancelled,
	}}
	for e, err := range events.Query(ctx, streams, filter) {
		var damaged *events.DamagedError
		switch {
		case errors.As(err, &damaged):
			f.damaged = append(f.damaged, err)
		case err != nil:
			return nil, err
		default:
			f.take(&e)
		}
	}
	f.close()
	s := &Stats{Workspaces: groups(f.byWorkspace), Users: groups(f.byUser), Damaged: f.damaged}
	for i := range s.Workspaces {
		s.Total.add(&s.Workspaces[i].Sums)
	}
	return s, nil
}

func groups(sums map[string]*Sums) []Group {
	list := make([]Group, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, Group{name, *sums[name]})
	}
	return list
}

// folder takes the events of all runs, run by run.
type folder struct {
	o           Options
	workspaces  map[string]*memory
	runs        map[string]*memory // by run, that of its workspace
	byWorkspace map[string]*Sums
	byUser      map[string]*Sums
	damaged     []error

	// The run whose events come now.
	run    string
	ws     string
	user   string
	counts bool // it is selected
	sums   Sums
	bulk   []provenTasks
	here   *memory
	named  map[string]bool // tasks with an event in this run
	failed map[string]bool // executions whose failure was told
}

// provenTasks are tasks that share an event.
type provenTasks struct {
	tasks int64
	as    string // the run
}

// memory is what is known of the latest answers of a workspace.
type memory struct {
	answers map[string]answer
	ms      int64 // of all of them
}

// answer is an execution that answered a task.
type answer struct {
	execution string
	ms        int64
}

func (m *memory) set(task string, a answer) {
	m.ms += a.ms - m.answers[task].ms
	m.answers[task] = a
}

func (f *folder) take(e *events.Event) {
	if e.Run != f.run || e.Workspace != f.ws {
		f.close()
		f.begin(e)
	}
	d := e.Data
	if d == nil {
		d = &events.Data{}
	}
	ms := events.Milliseconds(d.Duration).Milliseconds()
	switch e.Type {
	case events.RunStarted:
		f.counts = f.selected(e)
		if p := d.Process; p != nil {
			f.user = cmp.Or(p.User, p.Host)
		}
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		if e.Type == events.RunCompleted {
			f.sums.Completed++
		}
		if d.Requests != nil {
			f.sums.Requests.Add(d.Requests)
		}
	case events.TaskCached:
		f.cached(e, d, ms)
	case events.TaskCompleted:
		f.sums.Executed++
		f.sums.ExecutedMs += ms
		f.sums.Bytes += max(d.Bytes, 0)
		f.remember(e.Task, answer{e.Execution, ms})
	case events.TaskFailed:
		if e.Execution == "" || d.Block != "" || d.Shared || f.failed[e.Execution] { // nothing ran, or it had ended before, or elsewhere
			return
		}
		f.failed[e.Execution] = true
		f.sums.Executed++
		f.sums.Failures++
		f.sums.ExecutedMs += ms
	}
}

func (f *folder) begin(e *events.Event) {
	f.run, f.ws, f.user, f.sums, f.bulk, f.named, f.failed = e.Run, e.Workspace, "", Sums{Runs: 1}, f.bulk[:0], map[string]bool{}, map[string]bool{}
	f.counts = f.selected(e)
	if f.here = f.workspaces[f.ws]; f.here == nil {
		f.here = &memory{answers: map[string]answer{}}
		f.workspaces[f.ws] = f.here
	}
}

// selected reports whether a run is asked for that began with an event.
func (f *folder) selected(e *events.Event) bool {
	return (f.o.Workspace == "" || f.o.Workspace == e.Workspace) && !e.Time.Before(f.o.Since) && (f.o.Until.IsZero() || e.Time.Before(f.o.Until))
}

// cached takes a hit. Only one that was looked up tells how long its execution took; one that was proven is known from the run that it
// was proven by.
func (f *folder) cached(e *events.Event, d *events.Data, ms int64) {
	if e.Task == "" {
		f.bulk = append(f.bulk, provenTasks{min(max(int64(d.Tasks), 0), maxTasks), d.As})
		return
	}
	f.sums.Hits++
	if d.Key == "" {
		known, ok := f.known(e.Task, e.Execution, d.As)
		if !ok {
			f.sums.Untimed++
			f.named[e.Task] = true
			return
		}
		ms = known
	}
	f.sums.SavedMs += ms
	f.remember(e.Task, answer{e.Execution, ms})
}

// maxTasks bounds what an event may say of a number of tasks, so that sums stay sums.
const maxTasks = 1 << 40

// known returns how long the execution took that answers a proven task: in this workspace, or in that of the run that proves it.
func (f *folder) known(task, execution, as string) (int64, bool) {
	if a, ok := f.here.answers[task]; ok && a.execution == execution {
		return a.ms, true
	}
	if m := f.runs[as]; m != nil && m != f.here {
		if a, ok := m.answers[task]; ok && a.execution == execution {
			return a.ms, true
		}
	}
	return 0, false
}

func (f *folder) remember(task string, a answer) {
	f.named[task] = true
	f.here.set(task, a)
}

// close ends the run whose events came last.
func (f *folder) close() {
	if f.run == "" {
		return
	}
	for _, b := range f.bulk {
		f.proven(b)
	}
	f.runs[f.run] = f.here
	if !f.counts {
		return
	}
	for _, group := range []struct {
		sums map[string]*Sums
		name string
	}{{f.byWorkspace, f.ws}, {f.byUser, f.user}} {
		if group.sums[group.name] == nil {
			group.sums[group.name] = &Sums{}
		}
		group.sums[group.name].add(&f.sums)
	}
}

// proven counts tasks that share an event: those answers of the run as that no event of this run names.
func (f *folder) proven(b provenTasks) {
	f.sums.Hits += b.tasks
	m := f.runs[b.as]
	if m == nil {
		f.sums.Untimed += b.tasks
		return
	}
	n, ms := int64(len(m.answers)), m.ms
	if m == f.here || len(f.named) > 0 {
		n, ms = 0, 0
		for task, a := range m.answers {
			if !f.named[task] {
				n, ms = n+1, ms+a.ms
			}
		}
	}
	if n > b.tasks && n > 0 { // of a task that was removed since, or that the run did not have
		ms = ms / n * b.tasks
	}
	f.sums.SavedMs += ms
	f.sums.Untimed += max(b.tasks-n, 0)
}
