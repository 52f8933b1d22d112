package ui

import (
	"slices"
	"time"

	"e3/dataflow/graph"
)

// criticalTask is a task of the critical path: from its first attempt's begin to its last one's end.
type criticalTask struct {
	span
	waited time.Duration // since the end of the task before; for the first task since the run's begin
}

func (s *span) took() time.Duration { return s.end.Sub(s.start) }

// critical returns the critical path by the events so far; tasks at work count until now.
func (r *model) critical(now time.Time) []criticalTask {
	if r.pathAt != r.at.Seq {
		r.path, r.pathAt = nil, r.at.Seq
		if r.graph != nil {
			r.path = criticalPath(r.graph, r.spans(now), r.report.StartedAt)
		}
	}
	return r.path
}

// criticalPath is the chain of tasks that decided when the run ended. Its last task is the task that ended last;
// before each task comes the one of its dependencies that ended last. Cached tasks took no time, and are not on it.
func criticalPath(g *graph.Graph, spans []span, from time.Time) []criticalTask {
	if len(spans) == 0 {
		return nil
	}
	whole := make(map[string]span, len(spans))
	last := ""
	for _, at := range spans {
		w, ok := whole[at.task]
		if !ok {
			w = at
		}
		if at.start.Before(w.start) {
			w.start = at.start
		}
		if !at.end.Before(w.end) {
			w.end, w.state = at.end, at.state
		}
		whole[at.task] = w
		if l, ok := whole[last]; !ok || w.end.After(l.end) {
			last = at.task
		}
	}
	var path []criticalTask
	for n := 0; n <= g.Len(); n++ {
		at := whole[last]
		path = append(path, criticalTask{span: at})
		i, ok := g.Find(last)
		if !ok {
			break
		}
		before, found := "", false
		for _, d := range g.Dependencies(i) {
			name := g.Name(d)
			w, ran := whole[name]
			if ran && (!found || w.end.After(whole[before].end)) {
				before, found = name, true
			}
		}
		if !found {
			break
		}
		last = before
	}
	slices.Reverse(path)
	for i := range path {
		path[i].waited = max(path[i].start.Sub(from), 0)
		from = path[i].end
	}
	return path
}

// longest are the n tasks that took longest, in their order.
func longest(path []criticalTask, n int) []criticalTask {
	sorted := slices.Clone(path)
	slices.SortStableFunc(sorted, func(a, b criticalTask) int { return int(b.took() - a.took()) })
	least := sorted[n-1].took()
	var keep []criticalTask
	for _, l := range path {
		if len(keep) < n && l.took() >= least {
			keep = append(keep, l)
		}
	}
	return keep
}
