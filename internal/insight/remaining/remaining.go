// Package remaining estimates how long a run still takes, from the durations on record and from what it sees of the
// run. An estimate that includes tasks without history is a lower bound, and says so.
package remaining

import (
	"slices"
	"strings"
	"sync"
	"time"

	"e3/dataflow/graph"
	"e3/internal/format/record"
)

// A Run follows the tasks of a run. It is safe for concurrent use. Its methods take constant time, except Left, which walks
// all tasks at most once a second and for at most one percent of the time.
type Run struct {
	pkg      *record.Package
	expected func(task string) time.Duration
	parallel int // commands at a time; 0: as many as run

	mu       sync.Mutex
	total    int64 // tasks that were announced
	done     int64 // announced tasks that have ended
	ended    map[string]bool
	running  map[string]time.Time
	families map[string]*average // durations in this run, by the name of a matrix
	below    map[string]time.Duration
	last     Estimate
	at       time.Time // time of the last estimate
	fresh    time.Duration
}

type average struct {
	sum time.Duration
	n   int
}

// An Estimate is the time that a run still takes.
type Estimate struct {
	Left    time.Duration
	Known   bool // anything is known; else Left means nothing
	AtLeast bool // some tasks have no history: it takes at least Left
}

// Of returns an estimator for a run of a package, before its first task. expected returns 0 for a task without history.
func Of(pkg *record.Package, expected func(task string) time.Duration, parallel int) *Run {
	return &Run{
		pkg: pkg, expected: expected, parallel: parallel,
		ended: map[string]bool{}, running: map[string]time.Time{}, families: map[string]*average{},
	}
}

// Announce adds tasks that are to be done.
func (r *Run) Announce(n int64) { r.locked(func() { r.total += n }) }

// Start tells that the command of a task runs.
func (r *Run) Start(task string, at time.Time) { r.locked(func() { r.running[task] = at }) }

// Again tells that a task that had ended is to do after all.
func (r *Run) Again(task string) {
	r.locked(func() {
		if r.ended[task] {
			delete(r.ended, task)
			r.done--
		}
	})
}

// End tells that a task has ended, and how long its command took; 0: none ran.
func (r *Run) End(task string, took time.Duration) {
	r.locked(func() {
		delete(r.running, task)
		if !r.ended[task] {
			r.ended[task] = true
			r.done++
		}
		if took > 0 {
			f := r.families[family(task)]
			if f == nil {
				f = &average{}
				r.families[family(task)] = f
			}
			f.sum += took
			f.n++
		}
	})
}

func (r *Run) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// family is the name of the matrix that a task is an item of, or its own.
func family(task string) string {
	name, _, _ := strings.Cut(task, "[")
	return name
}

// own is the expected duration of a task: of its latest execution, else the average of its matrix in this run; 0:
// unknown.
func (r *Run) own(task string) time.Duration {
	if d := r.expected(task); d > 0 {
		return d
	}
	if f := r.families[family(task)]; f != nil {
		return f.sum / time.Duration(f.n)
	}
	return 0
}

// An estimate is reused, less the time that has passed, for a second and for a hundred times the time that it took to
// compute.
const (
	fresh = time.Second
	share = 100
)

// Left estimates how long the run still takes.
func (r *Run) Left(now time.Time) Estimate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if passed := now.Sub(r.at); !r.at.IsZero() && passed >= 0 && passed < r.fresh {
		e := r.last
		e.Left = max(e.Left-passed, 0)
		return e
	}
	began := time.Now()
	r.last, r.at = r.left(now), now
	r.fresh = max(fresh, share*time.Since(began))
	return r.last
}

// left takes the greater of two bounds: the remaining work, shared by all cores, and the longest path.
func (r *Run) left(now time.Time) Estimate {
	if r.below == nil {
		r.below = paths(r.pkg, r.expected)
	}
	var e Estimate
	var work, longest, unseen time.Duration
	known, names := 0, 0 // of tasks that neither run nor have ended
	for task, since := range r.running {
		own := r.own(task)
		if own == 0 {
			e.AtLeast = true
			continue
		}
		e.Known = true
		elapsed := now.Sub(since)
		work += max(own-elapsed, 0)
		longest = max(longest, own+r.below[task]-elapsed, r.below[task])
	}
	for i := range r.pkg.Tasks {
		task := r.pkg.Tasks[i].Name
		if _, runs := r.running[task]; runs || r.ended[task] {
			continue
		}
		names++
		if own := r.own(task); own > 0 {
			known++
			unseen += own
		}
	}
	// Where an event has counted proven tasks without naming them, more names are left than tasks.
	switch waiting := int(r.total-r.done) - len(r.running); {
	case waiting <= 0:
	case waiting == names:
		work += unseen
		e.Known, e.AtLeast = e.Known || known > 0, e.AtLeast || known < names
		for i := range r.pkg.Tasks {
			if task := r.pkg.Tasks[i].Name; !r.ended[task] {
				if _, runs := r.running[task]; !runs {
					longest = max(longest, r.own(task)+r.below[task])
				}
			}
		}
	default:
		e.AtLeast = true
		if known > 0 {
			e.Known = true
			work += unseen / time.Duration(names) * time.Duration(min(waiting, names))
		}
	}
	parallel := r.parallel
	if parallel == 0 {
		parallel = max(len(r.running), 1)
	}
	e.Left = max(work/time.Duration(parallel), longest)
	return e
}

// paths returns the longest expected path below each task.
func paths(pkg *record.Package, expected func(string) time.Duration) map[string]time.Duration {
	below := make(map[string]time.Duration, len(pkg.Tasks))
	g, err := graph.New(pkg)
	if err != nil {
		return below // the run says why
	}
	for _, i := range slices.Backward(g.Order()) {
		var most time.Duration
		for _, d := range g.Dependents(i) {
			name := g.Name(d)
			most = max(most, expected(name)+below[name])
		}
		if most > 0 {
			below[g.Name(i)] = most
		}
	}
	return below
}
