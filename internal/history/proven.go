package history

import (
	"context"
	"maps"
	"slices"

	"e3/dataflow"
	"e3/internal/events"
	"e3/internal/record"
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
	shown, err := f.shown()
	if err != nil {
		return err
	}
	silent := map[*taskFinder][]*runFacts{} // of the runs those that say nothing of the task itself
	for _, r := range bulk {
		for _, t := range f.tasks {
			if _, ok := t.answers[r.id]; ok {
				continue
			}
			covers, err := f.covers(r, t.name)
			if err != nil {
				return err
			}
			if covers {
				silent[t] = append(silent[t], r)
			}
		}
	}
	for t, runs := range silent {
		t.spread(runs, shown)
		for run, id := range t.answers {
			if id != "" && f.runs[run] != nil {
				f.attempt(t, id).partOf(run)
			}
		}
	}
	return nil
}

// spread settles what answers a task in the runs that are silent about it, which are given the latest first.
func (t *taskFinder) spread(silent []*runFacts, shown *record.Run) {
	if shown != nil && slices.ContainsFunc(silent, func(r *runFacts) bool { return r.id == shown.RunID }) {
		for e := range shown.Tasks.All() {
			if e.Task == t.name {
				t.answers[shown.RunID] = e.ExecutionID
			}
		}
	}
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

// shown is the record of the run that the workspace shows; nil where there is none that can be read.
func (f *finder) shown() (*record.Run, error) {
	run, err := f.s.Workspaces.Run(f.ctx, f.q.Workspace, "")
	if err == nil {
		return run, nil
	}
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	return nil, nil // e3 run and e3 verify say what is wrong
}

// covers tells whether a run had a task, about which it says nothing, among those that its baseline proves.
func (f *finder) covers(r *runFacts, task string) (bool, error) {
	pkg, err := f.packageOf(r.id)
	if err != nil || pkg.graph == nil {
		return false, err
	}
	i, ok := pkg.graph.Find(task)
	if !ok {
		return false, nil
	}
	n := pkg.graph.Len()
	if r.filter != "" {
		selected := pkg.selects(r.filter)
		if !selected[i] {
			return false, nil
		}
		n = 0
		for _, yes := range selected {
			if yes {
				n++
			}
		}
	}
	if r.proven != n-r.created {
		return false, nil // an event is missing, or is of another
	}
	if r.created == 0 {
		return true, nil
	}
	// It is one of the others, and never had its turn, unless all of these had.
	end, err := events.End(f.ctx, f.s.Records, f.q.Workspace, r.id)
	if err != nil || end == nil || end.Data == nil || end.Data.Summary == nil {
		return false, err
	}
	s := end.Data.Summary
	return s.Total == s.Completed+s.Failed+s.Skipped, nil
}

// packagesKept is how many packages are held at a time: runs that follow each other mostly have the same one.
const packagesKept = 8

// packageFacts is what is asked of a package.
type packageFacts struct {
	hashes  map[string]objectstore.Hash // of its tasks
	graph   *dataflow.Graph             // nil where it is gone or cannot be read
	filters map[string][]bool
}

// selects tells which of the tasks a run with a filter has.
func (p *packageFacts) selects(filter string) []bool {
	selected, ok := p.filters[filter]
	if !ok {
		_, selected = p.graph.Select(filter)
		p.filters[filter] = selected
	}
	return selected
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
	p := &packageFacts{hashes: map[string]objectstore.Hash{}, filters: map[string][]bool{}}
	pkg, err := f.s.Workspaces.LoadPackage(f.ctx, r.pkg)
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	if err == nil {
		for i := range pkg.Tasks {
			if h, err := objectstore.ParseHash(pkg.Tasks[i].Task); err == nil {
				p.hashes[pkg.Tasks[i].Name] = h
			}
		}
		if g, err := dataflow.NewGraph(pkg); err == nil {
			p.graph = g
		}
	}
	if len(f.packages) == packagesKept {
		clear(f.packages)
	}
	f.packages[r.pkg] = p
	return p, nil
}
