package dataflow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Growth makes the graph of a run grow: it knows which lists of items tasks make, and what the package becomes with them.
// One call at a time is made.
type Growth interface {
	// Growing returns what is not known of the package yet.
	Growing() *graph.Growing
	// Grow reads the lists of which all tasks have ended.
	Grow(ctx context.Context, made []MadeList) (Grown, error)
}

// MadeList is what the tasks of a list have left.
type MadeList struct {
	Source  string   // of the gate
	Outputs []Change // of the tasks that make the list, in the graph's order
}

// Grown is what a package has become. An error about a list stops only what the list decides.
type Grown struct {
	Package *record.Package // nil: the lists are those that the package was made with
	Growing *graph.Growing  // what is still not known
	Failed  map[string]error
}

// ReasonItems is the reason of the failure of a family whose list of items cannot be used.
const ReasonItems = "items"

// growth is the state of a graph that grows. The scheduler's goroutine owns it.
type growth struct {
	Growth
	ready []int32 // gates of which the list can be read
	busy  bool    // lists are being read
	done  chan grownGraph
	again map[int32]bool // gates that have opened, of which a task was made again with another output
}

// grownGraph is the result of reading lists.
type grownGraph struct {
	gates  []int32
	grown  Grown
	g      *Graph // nil: as before
	view   *reader
	losses map[int32][]objectstore.Hash // of outputs that hold the lists, by task
	err    error
}

func newGrowth(g Growth) growth {
	return growth{Growth: g, done: make(chan grownGraph), again: map[int32]bool{}}
}

func (w *growth) idle() bool { return !w.busy && len(w.ready) == 0 }

// open makes the list of a gate due.
func (w *growth) open(i int32) { w.ready = append(w.ready, i) }

// grow begins to read the lists that are due, all of them at once, so that the graph is made anew as seldom as possible.
func (s *scheduler) grow() {
	w := &s.growth
	if w.busy || s.stopping || len(w.ready) == 0 {
		return
	}
	w.busy = true
	isAgain := func(i int32) bool { return w.again[i] }
	gates := slices.DeleteFunc(slices.Clone(w.ready), isAgain)
	w.ready = slices.DeleteFunc(w.ready, func(i int32) bool { return !isAgain(i) })
	if len(gates) == 0 {
		gates, w.ready = w.ready, nil
	}
	go func(v *reader) { w.done <- v.grow(w.Growth, gates) }(s.view())
}

// grow reads lists, and makes the graph that follows from them. It runs beside the scheduler.
func (r *reader) grow(growth Growth, gates []int32) grownGraph {
	m := grownGraph{gates: gates, view: r}
	made := make([]MadeList, len(gates))
	for k, i := range gates {
		made[k] = r.madeList(i)
	}
	if m.grown, m.err = growth.Grow(r.ctx, made); m.err != nil {
		m.err = fmt.Errorf("items of %s: %w", r.gateNames(gates), m.err)
		if lost, _ := objectstore.IsLost(m.err); lost {
			r.listLosses(&m)
		}
		return m
	}
	if m.grown.Package != nil {
		m.g, m.err = r.g.Grow(m.grown.Package, m.grown.Growing)
	}
	return m
}

func (r *reader) gateNames(gates []int32) string {
	names := make([]string, len(gates))
	for k, i := range gates {
		names[k] = r.g.Name(i)
	}
	return strings.Join(names, ", ")
}

func (r *reader) madeList(i int32) MadeList {
	made := MadeList{Source: r.g.GateOf(i)}
	for _, d := range r.g.Dependencies(i) {
		made.Outputs = append(made.Outputs, Change{Task: r.g.Name(d), Leaf: leafOf(r.g, d, r.results[d].Output, r.results[d].Size)})
	}
	return made
}

// listLosses finds the lost outputs because of which lists could not be read.
func (r *reader) listLosses(m *grownGraph) {
	discard := func(ctx context.Context, h objectstore.Hash) (bool, error) {
		return objectstore.Discard(ctx, r.objects, h)
	}
	for _, i := range m.gates {
		for _, d := range r.g.Dependencies(i) {
			lost, err := r.lostOutput(r.ctx, d, discard)
			if err != nil {
				m.err = err
				return
			}
			if len(lost) == 0 {
				continue
			}
			if m.losses == nil {
				m.losses = map[int32][]objectstore.Hash{}
			}
			m.losses[d] = lost
		}
	}
}

// grown takes back lists that were read.
func (s *scheduler) grown(m grownGraph) {
	w := &s.growth
	w.busy = false
	switch {
	case m.err != nil && s.cancels(m.err):
		return
	case len(m.losses) > 0:
		s.healLists(m)
		return
	case m.err != nil:
		s.fail(m.err)
		return
	}
	again := slices.ContainsFunc(m.gates, func(i int32) bool { return w.again[i] })
	if again && (m.g != nil || len(m.grown.Failed) > 0) {
		s.fail(fmt.Errorf("the items of %s have changed during the run, since a lost output was made again: start once more", s.gateNames(m.gates)))
		return
	}
	var opened []int32
	for _, i := range m.gates {
		if m.grown.Failed[s.g.GateOf(i)] == nil && !w.again[i] {
			s.results[i].State = Cached
			opened = append(opened, i)
		}
		delete(w.again, i)
	}
	if m.g != nil && !s.stopping {
		s.become(m.g)
	} else {
		for _, i := range opened {
			s.wakeBelow(i)
		}
	}
	for _, i := range m.gates {
		if err := m.grown.Failed[s.g.GateOf(i)]; err != nil {
			s.listFailed(i, err)
		}
	}
}

// listFailed fails a family of which the list of items cannot be used. What does not depend on it goes on.
func (s *scheduler) listFailed(i int32, err error) {
	at := i
	if p, ok := s.g.Find(s.g.Name(i)); ok && s.g.IsPending(p) { // the family itself
		at, s.results[i].State = p, Skipped
	}
	s.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}})
	s.emit(events.Event{Type: events.TaskMarkedReady, Task: s.g.Name(at)})
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(at), Data: &events.Data{Reason: ReasonItems, Message: err.Error(), Attempt: 1}})
	s.failed(at, err.Error())
	if at != i {
		s.skipBelow(i, at)
	}
}

// healLists has the tasks run again whose output is lost, of which a list was to be read.
func (s *scheduler) healLists(m grownGraph) {
	for d, lost := range m.losses {
		for _, h := range lost {
			if s.unchangedSince(d, m.view) && s.heals.lost[d][h] {
				s.fail(fmt.Errorf("items of %s: %w", s.gateNames(m.gates), &LostAgainError{s.g.Name(d), h}))
				return
			}
		}
	}
	if s.stopping {
		return
	}
	for _, i := range m.gates {
		for _, d := range s.g.Dependencies(i) {
			if lost := m.losses[d]; len(lost) > 0 && s.unchangedSince(d, m.view) {
				s.lose(d, i, lost)
			}
		}
		if s.states[i].upstream == 0 { // its own list could be read
			s.growth.open(i)
		}
	}
}

// become continues with the graph that this one has grown into. Nodes keep their indices.
func (s *scheduler) become(g *Graph) {
	before := make([]bool, s.g.Len()) // the node was a task of the run
	for i := range before {
		before[i] = s.counts(int32(i))
	}
	more := g.Len() - s.g.Len()
	s.g = g
	s.results = append(slices.Clone(s.results), make([]TaskResult, more)...)
	s.states = append(s.states, make([]taskState, more)...)
	s.budget.capacities(g, s.opts)
	if waits(g) {
		s.needLooks(nil)
	}
	s.choose()
	s.order()
	s.join(func(i int32) bool { return int(i) >= len(before) || !before[i] })
	for _, i := range g.Order() {
		if !s.wants(i) || s.results[i].State != Pending || s.states[i].announced || s.states[i].busy {
			continue
		}
		s.states[i].upstream = 0
		for _, d := range g.Dependencies(i) {
			switch s.results[d].State {
			case Pending:
				s.states[i].upstream++
			case Failed, Skipped:
				s.skip(i, s.culprit(d))
			}
			if s.results[i].State != Pending {
				break
			}
		}
		if s.results[i].State == Pending && s.states[i].upstream == 0 {
			s.wake(i)
		}
	}
}

// incomplete tells whether some tasks of the graph are not known.
func (s *scheduler) incomplete() bool {
	for i := range s.results {
		if i := int32(i); s.g.IsPending(i) || s.g.IsGate(i) && s.results[i].State != Cached {
			return true
		}
	}
	return false
}

// counts tells whether a node is a task of the run.
func (s *scheduler) counts(i int32) bool { return s.wants(i) && s.g.IsTask(i) }

// unnamedFilter tells whether the filter names nothing, now that the graph does not grow any more.
func (s *scheduler) unnamedFilter() bool {
	if s.opts.Filter == "" || s.growth.Growth == nil || s.stopping {
		return false
	}
	return !slices.ContainsFunc(s.states, func(t taskState) bool { return !t.unnamed && !t.unselected })
}
