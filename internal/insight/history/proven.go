package history

import (
	"context"
	"maps"
	"slices"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/objectstore"
)

// proven adds the runs in which one event stands for many tasks that a baseline proves, the asked-for ones among them: the same
// execution answers a task there and in the baseline. Both ways lead on: from the run that executed it to later ones, and from
// the latest, whose record names it, to earlier ones.
func (f *finder) proven() error {
	var bulk []*runFacts // latest first: a baseline is earlier than what it proves
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(f.runs))) {
		if r := f.runs[id]; r.as != "" {
			bulk = append(bulk, r)
		}
	}
	if len(bulk) == 0 {
		return nil
	}
	silent := map[*taskFinder][]*runFacts{} // of the runs those that say nothing of the task itself
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

// spread settles what answers a task in the runs that are silent about it, which are given the latest first.
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

// shown returns the run that the workspace shows and the executions that its record names for the tasks that are asked for. What
// has no record that can be read names none.
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

// covered returns the tasks about which a run says nothing, and which are among those that its baseline proves.
func (f *finder) covered(r *runFacts) ([]*taskFinder, error) {
	pkg, err := f.packageOf(r.id)
	if err != nil || pkg.graph == nil {
		return nil, err
	}
	selected, n := pkg.selects(r.filter)
	if r.proven != n-r.created {
		return nil, nil // an event is missing, or is of another
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
	// They are of the others, and never had their turn, unless all of these had.
	end, err := events.End(f.ctx, f.s.Records, f.q.Workspace, r.id)
	if err != nil || end == nil || end.Data == nil || end.Data.Summary == nil {
		return nil, err
	}
	if s := end.Data.Summary; s.Total != s.Completed+s.Failed+s.Skipped {
		return nil, nil
	}
	return covered, nil
}

// packagesKept is how many packages are held at a time: runs that follow each other mostly have the same one.
const packagesKept = 8

// packageFacts is what is asked of a package.
type packageFacts struct {
	hashes  map[string]objectstore.Hash // of its tasks
	graph   *graph.Graph                // nil where it is gone or cannot be read
	filters map[string]selection
}

// selection is which tasks of a package a filter leaves, and how many.
type selection struct {
	tasks []bool // nil is all
	n     int
}

// selects tells which of the tasks a run with a filter has, and how many; nil is all.
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

// packageOf returns the package of a run. What its events do not name, or cannot be read, has no tasks: it tells nothing,
// and takes nothing from the rest.
func (f *finder) packageOf(run string) (*packageFacts, error) {
	r, ok := f.runs[run]
	if !ok || r.pkg == "" {
		return &packageFacts{}, nil
	}
	if known, ok := f.packages[r.pkg]; ok {
		return known, nil
	}
	p := &packageFacts{hashes: map[string]objectstore.Hash{}, filters: map[string]selection{}}
	pkg, err := f.s.Runs.Packages.Load(f.ctx, r.pkg)
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	if err == nil {
		for i := range pkg.Tasks {
			if h, err := objectstore.ParseHash(pkg.Tasks[i].Task); err == nil {
				p.hashes[pkg.Tasks[i].Name] = h
			}
		}
		if g, err := graph.New(pkg); err == nil {
			p.graph = g
		}
	}
	if len(f.packages) == packagesKept {
		clear(f.packages)
	}
	f.packages[r.pkg] = p
	return p, nil
}
