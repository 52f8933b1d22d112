package ui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/explain"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// A model is a run as it was last read. Its refresh reads on from there, so that a page of a run of 10,000 tasks that
// is shown each second reads only the new events.
type model struct {
	mu     sync.Mutex
	ws, id string
	report *runview.Report // with its tasks
	fold   *runview.Fold
	at     events.Positioned // the last event in the fold
	damage error
	spans  runview.Spans
	index  map[string]int // task → its place in the report; nil: not asked for yet

	graph   *graph.Graph   // of the package, while the run is at work; nil: none
	wired   string         // the hash of that package
	ahead   *remaining.Run // how a run at work goes on; nil: it is not at work, or has no graph
	spent   *runview.Spent // after the event spentAt; of a live run also by the time
	spentAt int64          // -1: not looked for

	failures   *explain.FailureReader  // nil: not asked for yet
	highlights *report.HighlightReader // nil: not asked for yet, or the run has ended
	results    *results                // of the report resultsOf
	resultsOf  *runview.Report

	hold  bool                          // keep the package when the run has ended
	whole map[string]runview.TaskReport // by execution: completed tasks, which do not change any more
	used  time.Time                     // of the model's last use
	size  atomic.Int64                  // tasks
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
		r = &model{ws: ws, id: head.RunID, spentAt: -1}
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
	if first || r.fold != nil && head.PackageHash != r.wired {
		if err := r.wire(ctx, s); err != nil {
			return err
		}
	}
	if head.State != record.RunRunning && !r.hold { // everything is read: sum up now, and drop the rest
		r.where(time.Time{})
		r.graph, r.ahead, r.fold, r.whole = nil, nil, nil, nil
	}
	return nil
}

// begin makes a model that has read no event yet.
func (r *model) begin() {
	r.fold, r.whole = runview.NewFold(), map[string]runview.TaskReport{}
	r.at, r.damage, r.spans, r.spentAt = events.Positioned{}, nil, runview.Spans{}, -1
}

// wire reads what the tasks read from each other; nothing if the package is gone.
func (r *model) wire(ctx context.Context, s *Stores) error {
	r.graph, r.ahead, r.wired = nil, nil, r.report.PackageHash
	pkg, err := r.pkg(ctx, s)
	if err != nil || pkg == nil {
		return err
	}
	g, err := graph.New(pkg)
	if err != nil {
		return nil
	}
	if r.graph = g; r.report.Live {
		r.ahead = remaining.OfReport(g, r.report, s.Runs.Workspaces.Expected(ctx, r.ws))
	}
	return nil
}

// where says where the time went, by the events so far; tasks at work count until now.
func (r *model) where(now time.Time) *runview.Spent {
	if r.spentAt != r.at.Seq || r.report.Live {
		r.spent, r.spentAt = runview.SpentOf(r.graph, &r.spans, r.report, now), r.at.Seq
	}
	return r.spent
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
		r.spans.Add(&e.Event, r.fold)
	}
	return nil
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
