package workspace

import (
	"maps"
	"slices"
	"sync"
	"time"

	"e3/dataflow/graph"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// A freshnessMemory keeps how fresh the outputs of workspaces were found to be, for a process that asks again and again, as
// the pages of a repository do. Finding it looks at each task.
type freshnessMemory struct {
	mu sync.Mutex
	of map[string]*knownFreshness // by workspace
}

// knownFreshness is an answer with what it follows from, but for two things: another workspace or an import may bring a later
// success of the same key, and a person may remove records and objects by hand.
type knownFreshness struct {
	of         freshnessOf
	generation string    // of the executions' removals and rejections
	tasks      string    // the outputs' object
	run        string    // the workspace's latest run, as far as it has come
	found      time.Time // when it was asked for
	took       time.Duration

	outputs outputs
	pkg     *record.Package // with the items that became known; nil: the preview's own
	graph   *graph.Graph
	failed  map[string]error
	faults  []error
}

// freshnessOf is the next start's package and inputs.
type freshnessOf struct{ pkg, inputs string }

// Bounds of what is remembered.
const (
	longestMemory  = time.Minute // by then, what others have brought or removed is seen
	mostRemembered = 120_000     // outputs of all workspaces; the latest answer may have more
	liveShare      = 20          // of a live run, the outputs change with each task: at most a twentieth of the time is spent on them
)

// Remembering returns a planner whose Status does not look at the tasks of a workspace again while nothing of it has
// changed, for at most a minute. While a run of the workspace is at work, at most a twentieth of the time goes into that, and
// the freshness of outputs lags behind. It may be used by several goroutines.
func (w *Planner) Remembering() *Planner {
	planner := *w
	planner.memory = &freshnessMemory{of: map[string]*knownFreshness{}}
	return &planner
}

// progress is a latest run as far as it has come.
func progress(run *runview.Report) string {
	if run == nil {
		return ""
	}
	return run.RunID + " " + run.Status()
}

// recall returns what is known of a workspace, nil if that no longer holds.
func (m *freshnessMemory) recall(ws string, now time.Time, want *knownFreshness, live bool) *knownFreshness {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.of[ws]
	if have == nil || have.of != want.of || now.Before(have.found) {
		return nil
	}
	age := now.Sub(have.found)
	if live && age < liveShare*have.took {
		return have
	}
	if have.generation == want.generation && have.tasks == want.tasks && have.run == want.run && age < longestMemory {
		return have
	}
	return nil
}

// keep replaces what is known of a workspace, and forgets the oldest answers beyond the bound.
func (m *freshnessMemory) keep(ws string, k *knownFreshness) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[ws] = k
	latest := slices.SortedFunc(maps.Keys(m.of), func(a, b string) int { return m.of[b].found.Compare(m.of[a].found) })
	sum := 0
	for _, name := range latest {
		if sum += len(m.of[name].outputs.of); sum > mostRemembered && name != ws {
			delete(m.of, name)
		}
	}
}

// learned is the answer on a preview, which had a package and so many faults before.
func (k *knownFreshness) learned(next *preview, outputs outputs, before *record.Package, faults int, now time.Time) *knownFreshness {
	k.outputs, k.graph, k.failed, k.faults = outputs, next.graph, next.failed, slices.Clone(next.faults[faults:])
	if next.pkg != before {
		k.pkg = next.pkg
	}
	k.took = now.Sub(k.found)
	return k
}

// tell gives a preview what finding the answer would give it.
func (k *knownFreshness) tell(next *preview) outputs {
	if k.pkg != nil {
		next.pkg = k.pkg
	}
	next.graph, next.failed = k.graph, k.failed
	next.faults = append(next.faults, k.faults...)
	return k.outputs
}
