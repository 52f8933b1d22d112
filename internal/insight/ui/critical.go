package ui

import (
	"slices"
	"time"
)

// link is a task of the critical path: from its first attempt's begin to its last one's end.
type link struct {
	span
	waited time.Duration // since the end of the one before; since the run's begin for the first
}

// criticalPath is the chain of tasks that decided when the run ended: it ends with the task that ended last, and each task before is
// the one, among those that the next task reads, that ended last. Cached tasks took no time, and are not on it.
func criticalPath(m *model, spans []span) []link {
	g := m.graph
	if g == nil || len(spans) == 0 {
		return nil
	}
	if m.path != nil && m.pathAt == m.at.Seq {
		return m.path
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
	var path []link
	for n := 0; n <= g.Len(); n++ {
		at := whole[last]
		path = append(path, link{span: at})
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
	from := m.report.StartedAt
	for i := range path {
		path[i].waited = max(path[i].start.Sub(from), 0)
		from = path[i].end
	}
	m.path, m.pathAt = path, m.at.Seq
	return path
}

// longest are the n links that took longest, in their order.
func longest(path []link, n int) []link {
	sorted := slices.Clone(path)
	slices.SortStableFunc(sorted, func(a, b link) int { return int(b.end.Sub(b.start) - a.end.Sub(a.start)) })
	least := sorted[n-1].end.Sub(sorted[n-1].start)
	var keep []link
	for _, l := range path {
		if len(keep) < n && l.end.Sub(l.start) >= least {
			keep = append(keep, l)
		}
	}
	return keep
}
