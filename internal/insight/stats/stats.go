// Package stats adds up the hits, executions and savings of a repository's runs, from their events alone.
package stats

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// Options select runs.
type Options struct {
	Workspace string // "": all, including removed ones
	// Since and Until select runs that began at or after Since, and before Until.
	Since, Until time.Time
}

// Stats are the sums of some runs.
type Stats struct {
	Since      moment.Time `json:"since"` // begin of the runs
	Until      moment.Time `json:"until"`
	Total      Group       `json:"total"`
	Workspaces []Group     `json:"workspaces"` // by name
	Users      []Group     `json:"users"`      // by name
	// Damaged are the errors of damaged logs, whose missing parts are not counted.
	Damaged []error `json:"-"`
}

// A Group is the sums of the runs of one workspace or user, or of all.
type Group struct {
	Name string `json:"name,omitempty"` // absent: all, or unknown
	Sums
	HitRate float64 `json:"hitRate"` // of hits and executions: 0 to 1
	Price   float64 `json:"price"`   // dollars
}

func groupOf(name string, s *Sums) Group {
	g := Group{Name: name, Sums: *s, Price: price(&s.Requests)}
	if n := s.Hits + s.Executed; n > 0 {
		g.HitRate = float64(s.Hits) / float64(n)
	}
	return g
}

// Prices in dollars for a million requests, as in doc/cost.md.
const (
	priceRead  = 0.125
	priceWrite = 0.625
	priceGet   = 0.40
	pricePut   = 5.0
)

// price is the price of requests in dollars, at one unit for each.
func price(t *events.Traffic) float64 {
	return (float64(t.Reads)*priceRead + float64(t.Writes)*priceWrite + float64(t.Gets)*priceGet + float64(t.Puts)*pricePut) / 1e6
}

// Sums of runs. Durations are those of commands, in milliseconds; concurrent commands count in full.
type Sums struct {
	Runs       int64          `json:"runs"`
	Completed  int64          `json:"completed"` // runs
	Hits       int64          `json:"hits"`      // tasks answered by earlier executions
	Executed   int64          `json:"executed"`  // attempts
	Failures   int64          `json:"failures"`  // attempts
	SavedMs    int64          `json:"savedMs"`   // by the hits
	Untimed    int64          `json:"untimed"`   // hits of unknown duration
	ExecutedMs int64          `json:"executedMs"`
	Bytes      int64          `json:"bytes"`    // of outputs; of a directory, its listing
	Requests   events.Traffic `json:"requests"` // as far as they were recorded
}

func (s *Sums) add(o *Sums) {
	s.Runs, s.Completed = s.Runs+o.Runs, s.Completed+o.Completed
	s.Hits, s.Executed, s.Failures = s.Hits+o.Hits, s.Executed+o.Executed, s.Failures+o.Failures
	s.SavedMs, s.Untimed, s.ExecutedMs, s.Bytes = s.SavedMs+o.SavedMs, s.Untimed+o.Untimed, s.ExecutedMs+o.ExecutedMs, s.Bytes+o.Bytes
	s.Requests.Add(&o.Requests)
}

// Read adds up the runs of a repository. It reads the events of all runs once, including those before Since, which tell
// the durations of executions behind later hits. Memory grows with the number of task names.
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
	s := &Stats{
		Since: moment.At(o.Since), Until: moment.At(o.Until),
		Workspaces: groups(f.byWorkspace), Users: groups(f.byUser), Damaged: f.damaged,
	}
	var total Sums
	for i := range s.Workspaces {
		total.add(&s.Workspaces[i].Sums)
	}
	s.Total = groupOf("", &total)
	return s, nil
}

func groups(sums map[string]*Sums) []Group {
	list := make([]Group, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, groupOf(name, sums[name]))
	}
	return list
}

// folder folds the events of all runs, run by run.
type folder struct {
	o           Options
	workspaces  map[string]*memory
	runs        map[string]*memory // by run, the memory of its workspace
	byWorkspace map[string]*Sums
	byUser      map[string]*Sums
	damaged     []error

	// The run of the present events.
	run    string
	ws     string
	user   string
	counts bool // the run is selected
	sums   Sums
	bulk   []runview.Proven
	here   *memory
	named  map[string]bool // tasks with an event in this run
	failed map[string]bool // executions whose failure was reported
}

// memory holds the latest answers of a workspace.
type memory struct {
	answers map[string]answer
	ms      int64 // the sum of their durations
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
	d := e.Facts()
	ms := events.Milliseconds(d.Duration).Milliseconds()
	switch e.Type {
	case events.RunStarted:
		f.counts = f.selected(e)
		if p := d.Process; p != nil {
			f.user = cmp.Or(p.User, p.Host)
		}
	case events.TaskCached:
		f.cached(e, d, ms)
	}
	if e.Type.Ends() {
		if runview.StateAfter(e) == record.RunCompleted {
			f.sums.Completed++
		}
		if d.Requests != nil {
			f.sums.Requests.Add(d.Requests)
		}
	}
	switch runview.Outcome(e) {
	case runview.TaskSuccess:
		f.sums.Executed++
		f.sums.ExecutedMs += ms
		f.sums.Bytes += max(d.Bytes, 0)
		f.remember(e.Task, answer{e.Execution, ms})
	case runview.TaskFailed, runview.TaskError:
		if e.Execution == "" || d.Shared || f.failed[e.Execution] { // nothing ran here, or it was counted before
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

// selected reports whether the options select the run that began with an event.
func (f *folder) selected(e *events.Event) bool {
	return (f.o.Workspace == "" || f.o.Workspace == e.Workspace) && !e.Time.Before(f.o.Since) && (f.o.Until.IsZero() || e.Time.Before(f.o.Until))
}

// cached counts a hit. Only the event of a lookup has the duration of its execution; the duration of a proven task is
// known from the run that proved it.
func (f *folder) cached(e *events.Event, d *events.Data, ms int64) {
	if p, ok := runview.ProvenBy(e); ok {
		f.bulk = append(f.bulk, p)
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

// known returns the duration of the execution that answers a proven task: from this workspace, or from the workspace
// of the run that proved it.
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

// close ends the present run.
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

// proven counts the tasks of a bulk event: tasks that the other run answered and that no event of this run names.
func (f *folder) proven(b runview.Proven) {
	f.sums.Hits += b.Tasks
	m := f.runs[b.As]
	if m == nil {
		f.sums.Untimed += b.Tasks
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
	if n > b.Tasks && n > 0 { // some tasks were removed since, or the run did not have them
		ms = ms / n * b.Tasks
	}
	f.sums.SavedMs += ms
	f.sums.Untimed += max(b.Tasks-n, 0)
}
