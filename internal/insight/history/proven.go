package history

import (
	"context"
	"maps"
	"slices"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// proven handles runs in which one event stands for many tasks that a baseline proves, among them selected tasks. In
// such a run a task has the same execution as in the baseline. It follows this in both directions: from the run that
// executed the task to later runs, and from the latest run, whose record names the execution, to earlier ones.
func (f *finder) proven() error {
	var bulk []*runFacts // latest first: a baseline is earlier than the runs that it proves
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(f.runs))) {
		if r := f.runs[id]; r.as != "" {
			bulk = append(bulk, r)
		}
	}
	if len(bulk) == 0 {
		return nil
	}
	silent := map[*taskFinder][]*runFacts{} // runs of bulk without an event about the task
	for _, r := range bulk {
		covered, err := f.covered(r)
		if err != nil {
			return err
		}
		for _, t := range covered {
			silent[t] = append(silent[t], r)
		}
	}
	run, answers, err := f.shown()
	if err != nil {
		return err
	}
	for t, runs := range silent {
		if id := answers[t.name]; id != "" && slices.ContainsFunc(runs, func(r *runFacts) bool { return r.id == run }) {
			t.answers[run] = id
		}
		t.spread(runs)
		for run, id := range t.answers {
			if id != "" && f.runs[run] != nil {
				f.attempt(t, id).partOf(run)
			}
		}
	}
	return nil
}

// spread determines the executions of a task in the runs that have no event about it. silent is ordered latest first.
func (t *taskFinder) spread(silent []*runFacts) {
	for _, r := range silent {
		if _, known := t.answers[r.as]; !known && t.answers[r.id] != "" {
			t.answers[r.as] = t.answers[r.id]
		}
	}
	for _, r := range slices.Backward(silent) {
		if t.answers[r.id] == "" {
			t.answers[r.id] = t.answers[r.as]
		}
	}
}

// shown returns the run that the workspace shows and the executions that its record names for the selected tasks. A
// missing or unreadable record names none.
func (f *finder) shown() (id string, answers map[string]string, err error) {
	run, err := f.s.Runs.Run(f.ctx, f.q.Workspace, "")
	if f.ctx.Err() != nil {
		return "", nil, context.Cause(f.ctx)
	}
	if err != nil {
		return "", nil, nil // e3 run and e3 verify say what is wrong
	}
	answers = map[string]string{}
	for e := range run.Tasks.All() {
		if f.tasks[e.Task] != nil {
			answers[e.Task] = e.ExecutionID
		}
	}
	return run.RunID, answers, nil
}

// covered returns the tasks that a run's baseline proves and that no event of the run names.
func (f *finder) covered(r *runFacts) ([]*taskFinder, error) {
	pkg, err := f.packageOf(r.id)
	if err != nil || pkg.wired() == nil {
		return nil, err
	}
	selected, n := pkg.selects(r.filter)
	if r.proven != int64(n)-r.created {
		return nil, nil // an event is missing, or does not belong to this package
	}
	var covered []*taskFinder
	for _, t := range f.tasks {
		if _, told := t.answers[r.id]; told {
			continue
		}
		if i, ok := pkg.graph.Find(t.name); ok && (selected == nil || selected[i]) {
			covered = append(covered, t)
		}
	}
	if r.created == 0 || len(covered) == 0 {
		return covered, nil
	}
	// Tasks without an event may also be among the announced tasks that had no turn, unless all announced tasks had
	// one.
	end, err := events.End(f.ctx, f.s.Records, f.q.Workspace, r.id)
	if err != nil || end == nil || end.Data == nil || end.Data.Summary == nil {
		return nil, err
	}
	if s := end.Data.Summary; s.Total != s.Completed+s.Failed+s.Skipped {
		return nil, nil
	}
	return covered, nil
}

// packagesKept is the number of packages in memory at a time. Consecutive runs mostly have the same package.
const packagesKept = 8

// packageFacts holds the facts about a package.
type packageFacts struct {
	tasks   map[string]*record.PackageTask
	pkg     *record.Package // nil if it is gone or cannot be read, and after wired
	graph   *graph.Graph    // of wired
	filters map[string]selection
}

// hash returns the hash of a task.
func (p *packageFacts) hash(task string) (objectstore.Hash, bool) {
	t, ok := p.tasks[task]
	if !ok {
		return objectstore.Hash{}, false
	}
	h, err := objectstore.ParseHash(t.Task)
	return h, err == nil
}

// wired returns the graph of the package; nil: none. Most questions do not need it.
func (p *packageFacts) wired() *graph.Graph {
	if p.pkg != nil {
		if g, err := graph.New(p.pkg); err == nil {
			p.graph = g
		}
		p.pkg = nil
	}
	return p.graph
}

// selection is the set of a package's tasks that a filter selects, and their number.
type selection struct {
	tasks []bool // nil is all
	n     int
}

// selects returns the tasks that a filter selects (nil means all) and their number.
func (p *packageFacts) selects(filter string) ([]bool, int) {
	if filter == "" {
		return nil, p.graph.Len()
	}
	s, ok := p.filters[filter]
	if !ok {
		_, s.tasks = p.graph.Select(filter)
		for _, yes := range s.tasks {
			if yes {
				s.n++
			}
		}
		p.filters[filter] = s
	}
	return s.tasks, s.n
}

// packageOf returns the package of a run. If its events name none, or it cannot be read, the result has no tasks and
// changes nothing.
func (f *finder) packageOf(run string) (*packageFacts, error) {
	r, ok := f.runs[run]
	if !ok || r.pkg == "" {
		return &packageFacts{}, nil
	}
	if known, ok := f.packages[r.pkg]; ok {
		return known, nil
	}
	p := &packageFacts{filters: map[string]selection{}}
	pkg, err := f.s.Runs.Packages.Load(f.ctx, r.pkg)
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	if err == nil {
		p.pkg = pkg
		if p.tasks, err = f.s.Runs.Packages.Tasks(f.ctx, r.pkg); err != nil {
			return nil, err
		}
	}
	if len(f.packages) == packagesKept {
		clear(f.packages)
	}
	f.packages[r.pkg] = p
	return p, nil
}
