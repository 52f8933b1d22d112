package ui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// A model is a run as it was last read. Its refresh reads on from there, so that a page of a run of 10,000 tasks that
// is shown each second reads only the new events.
type model struct {
	mu       sync.Mutex
	ws, id   string
	report   *runview.Report // with its tasks
	fold     *runview.Fold
	at       events.Positioned // the last event in the fold
	damage   error
	last     time.Time // of the events
	bars     []span    // that have ended
	attempts runview.AttemptFold
	open     map[*runview.Attempt]span
	index    map[string]int // task → its place in the report; nil: not asked for yet

	graph  *graph.Graph   // of the package, while the run is at work; nil: none
	path   []criticalTask // the critical path after the event pathAt
	pathAt int64          // -1: not looked for

	hold  bool                          // keep the package when the run has ended
	whole map[string]runview.TaskReport // by execution: completed tasks, which do not change any more
	used  time.Time                     // of the model's last use
	size  atomic.Int64                  // tasks
}

// span is an attempt in the run.
type span struct {
	task, worker string
	attempt      int64
	state        runview.TaskState
	start, end   time.Time
}

// models keeps the runs that pages have shown last.
type models struct {
	s   *Stores
	now func() time.Time
	// hold keeps the packages of ended runs, and reads a run once: an export asks for all tasks of one moment, whereas a
	// page asks for one, as it is now.
	hold bool

	mu   sync.Mutex
	runs map[[2]string]*model
}

// Bounds of what models keep.
const (
	maxModels = 4
	maxKept   = 120_000 // tasks of all models; the model in use may be larger
)

// run returns the run of a workspace by the beginning of its id, as it is now. The caller unlocks it.
func (m *models) run(ctx context.Context, ws, prefix string) (*model, error) {
	if r := m.held(ws, prefix); r != nil {
		return r, nil
	}
	head, err := m.s.Runs.Find(ctx, ws, prefix)
	if err != nil {
		return nil, err
	}
	key := [2]string{ws, head.RunID}
	m.mu.Lock()
	r := m.runs[key]
	if r == nil {
		r = &model{ws: ws, id: head.RunID, pathAt: -1}
		m.runs[key] = r
	}
	r.used = m.now()
	m.shrink(r)
	m.mu.Unlock()
	r.mu.Lock()
	r.hold = m.hold
	if err := r.refresh(ctx, m.s, head); err != nil {
		r.mu.Unlock()
		m.mu.Lock()
		delete(m.runs, key)
		m.mu.Unlock()
		return nil, err
	}
	return r, nil
}

// held returns the run of an export by its id, nil if it was not read yet. The caller unlocks it.
func (m *models) held(ws, id string) *model {
	m.mu.Lock()
	r := m.runs[[2]string{ws, id}]
	m.mu.Unlock()
	if !m.hold || r == nil {
		return nil
	}
	r.mu.Lock()
	if r.report == nil {
		r.mu.Unlock()
		return nil
	}
	return r
}

// shrink drops the runs that were not used for longest.
func (m *models) shrink(keep *model) {
	list := make([]*model, 0, len(m.runs))
	for _, r := range m.runs {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *model) int { return b.used.Compare(a.used) })
	tasks := 0
	for i, r := range list {
		tasks += int(r.size.Load())
		if r != keep && (i >= maxModels || tasks > maxKept) {
			delete(m.runs, [2]string{r.ws, r.id})
		}
	}
}

// refresh reads what has happened since.
func (r *model) refresh(ctx context.Context, s *Stores, head *runview.Report) error {
	old := r.report
	if old != nil && old.State != record.RunRunning && head.State == old.State && head.Crashed() == old.Crashed() {
		return nil
	}
	first := r.report == nil
	if r.fold == nil {
		r.begin()
	}
	seq := r.at.Seq
	if r.damage == nil {
		if err := r.read(ctx, s); err != nil {
			return err
		}
	}
	if !first && r.at.Seq == seq && !head.Live && !old.Live && head.State == old.State {
		return nil // interrupted, and nothing has closed it
	}
	if err := s.Runs.Tasks(ctx, head, r.fold, r.damage); err != nil {
		return err
	}
	r.report, r.index = head, nil
	r.size.Store(int64(len(head.Tasks)))
	if first {
		if err := r.wire(ctx, s); err != nil {
			return err
		}
	}
	if head.State != record.RunRunning && !r.hold { // everything is read: find the path now, and drop the rest
		r.critical(time.Time{})
		r.graph, r.fold, r.whole = nil, nil, nil
	}
	return nil
}

// begin makes a model that has read no event yet.
func (r *model) begin() {
	r.fold, r.open, r.whole = runview.NewFold(), map[*runview.Attempt]span{}, map[string]runview.TaskReport{}
	r.at, r.damage, r.bars, r.attempts, r.pathAt = events.Positioned{}, nil, nil, runview.AttemptFold{}, -1
}

// wire reads what the tasks read from each other; nothing if the package is gone.
func (r *model) wire(ctx context.Context, s *Stores) error {
	pkg, err := r.pkg(ctx, s)
	if err != nil || pkg == nil {
		return err
	}
	if g, err := graph.New(pkg); err == nil {
		r.graph = g
	}
	return nil
}

// pkg reads the package of the run; nil: it is gone, or in no form that can be read.
func (r *model) pkg(ctx context.Context, s *Stores) (*record.Package, error) {
	if r.graph != nil {
		return r.graph.Package, nil
	}
	pkg, _, err := s.Runs.PackageOf(ctx, r.report)
	return pkg, err
}

// find returns a task of the report, nil if the run has not come to it.
func (r *model) find(task string) *runview.TaskReport {
	if r.index == nil {
		r.index = make(map[string]int, len(r.report.Tasks))
		for i := range r.report.Tasks {
			r.index[r.report.Tasks[i].Task] = i
		}
	}
	if i, ok := r.index[task]; ok {
		return &r.report.Tasks[i]
	}
	return nil
}

// read adds the events after those that were read.
func (r *model) read(ctx context.Context, s *Stores) error {
	for e, err := range events.ReadAfter(ctx, s.Records, r.ws, r.id, r.at) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, new(*events.DamagedError)):
			r.damage = err
			return nil
		case err != nil:
			return err
		}
		r.at = e
		r.fold.Add(&e.Event)
		r.draw(&e.Event)
	}
	return nil
}

// draw notes when attempts begin and end.
func (r *model) draw(e *events.Event) {
	if e.Time.After(r.last) {
		r.last = e.Time
	}
	a, first := r.attempts.Add(e)
	if first && a.State == "" {
		t := r.fold.Find(e.Task) // Find sees the names of all attempts
		r.open[a] = span{task: t.Task, worker: t.Worker, attempt: a.Number, start: a.StartedAt}
	}
	if at, ok := r.open[a]; ok && a.State != "" {
		delete(r.open, a)
		at.state, at.end = a.State, a.EndedAt
		if at.end.Before(at.start) { // a clock went back
			at.end = at.start
		}
		r.bars = append(r.bars, at)
	}
}

// spans are the attempts of the run, those that are at work up to now.
func (r *model) spans(now time.Time) []span {
	list := slices.Clone(r.bars)
	for _, at := range r.open {
		at.state, at.end = runview.TaskInterrupted, r.last
		if r.report.Live {
			at.state, at.end = runview.TaskRunning, now
		}
		if at.end.Before(at.start) {
			at.end = at.start
		}
		list = append(list, at)
	}
	if len(list) == 0 { // an imported run may come without its events
		list = r.imported()
	}
	return list
}

func (r *model) imported() []span {
	var list []span
	for i := range r.report.Tasks {
		t := &r.report.Tasks[i]
		if t.State == runview.TaskCached || t.ExecutionID == "" || t.StartedAt.IsZero() || t.StartedAt.Before(r.report.StartedAt) ||
			!r.report.CompletedAt.IsZero() && t.StartedAt.After(r.report.CompletedAt) {
			continue
		}
		list = append(list, span{task: t.Task, attempt: t.Attempt, state: t.State, start: t.StartedAt.Time, end: t.StartedAt.Add(t.Duration.Duration())})
	}
	return list
}

// complete sets the fields of tasks in the report that only their executions hold. While a run is at work, its page
// asks again and again, so ended tasks are remembered. After the run they are not, since a task may be rejected.
func (r *model) complete(ctx context.Context, s *Stores, tasks []runview.TaskReport) error {
	var open []int
	for i := range tasks {
		t := &tasks[i]
		if known, ok := r.whole[t.ExecutionID]; ok && r.report.Live && t.ExecutionID != "" && (t.State == known.State || known.Task == t.Task && t.Key == "") {
			state := t.State
			*t = known
			if t.State != runview.TaskFailed && t.State != runview.TaskError {
				t.State = state
			}
		} else if t.ExecutionID != "" {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	part := make([]runview.TaskReport, len(open))
	for k, i := range open {
		part[k] = tasks[i]
	}
	if err := s.Runs.Complete(ctx, r.report, part); err != nil {
		return err
	}
	for k, i := range open {
		tasks[i] = part[k]
		switch part[k].State {
		case runview.TaskSuccess, runview.TaskCached, runview.TaskFailed, runview.TaskError:
			if len(r.whole) < maxKept && r.report.Live {
				r.whole[part[k].ExecutionID] = part[k]
			}
		}
	}
	return nil
}
