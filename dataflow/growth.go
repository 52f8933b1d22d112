package dataflow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/internal/events"
	"e3/objectstore"
)

// Growth makes the graph of a run grow: it makes the package anew from the lists of items that tasks have made. It is
// called once at a time.
type Growth interface {
	// Grow reads the lists whose tasks have all ended. It returns the grown graph, in which nodes keep their indices
	// ([graph.Graph.Grow]); nil if g was made with the same lists. failed says, by the name of the pending family,
	// why a known list makes no tasks. Such a failure stops only what depends on that family.
	Grow(ctx context.Context, g *Graph, made []MadeList) (grown *Graph, failed map[string]error, err error)
}

// MadeList holds the outputs of the tasks that make a list.
type MadeList struct {
	Source  string   // the gate's
	Outputs []Change // in the graph's order
}

// ReasonItems is the reason of the failure of a family whose list of items cannot be used.
const ReasonItems = "items"

// growth is the state of a graph that grows. The scheduler's goroutine owns it.
type growth struct {
	Growth
	s      *scheduler
	ready  []int32 // gates whose lists can be read
	busy   bool    // lists are being read
	done   chan grownGraph
	again  map[int32]bool   // opened gates whose list was made again with another output
	failed map[string]error // as returned by Grow so far
}

// grownGraph is the result of reading lists.
type grownGraph struct {
	gates  []int32
	g      *Graph // nil: as before
	failed map[string]error
	view   *reader
	losses map[int32][]objectstore.Hash // lost objects of outputs that hold lists, by task
	err    error
}

func newGrowth(s *scheduler, g Growth) *growth {
	return &growth{Growth: g, s: s, done: make(chan grownGraph), again: map[int32]bool{}, failed: map[string]error{}}
}

func (w *growth) idle() bool { return !w.busy && (len(w.ready) == 0 || w.s.stopping) }

// open marks the list of a gate as ready to be read.
func (w *growth) open(i int32) { w.ready = append(w.ready, i) }

// begin begins to read all lists that are ready, at once, so that the graph is made anew as seldom as possible.
func (w *growth) begin() {
	s := w.s
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
	go func(v *reader) { w.done <- grow(v, w.Growth, gates) }(s.view())
}

// grow reads lists, and makes the graph that follows from them. It runs beside the scheduler.
func grow(r *reader, growth Growth, gates []int32) grownGraph {
	m := grownGraph{gates: gates, view: r}
	made := make([]MadeList, len(gates))
	for k, i := range gates {
		made[k] = madeList(r, i)
	}
	if m.g, m.failed, m.err = growth.Grow(r.ctx, r.g, made); m.err != nil {
		m.err = fmt.Errorf("items of %s: %w", gateNames(r.g, gates), m.err)
		if lost, _ := objectstore.IsLost(m.err); lost {
			listLosses(r, &m)
		}
	}
	return m
}

func gateNames(g *Graph, gates []int32) string {
	names := make([]string, len(gates))
	for k, i := range gates {
		names[k] = g.Name(i)
	}
	return strings.Join(names, ", ")
}

func madeList(r *reader, i int32) MadeList {
	made := MadeList{Source: r.g.GateOf(i)}
	for _, d := range r.g.Dependencies(i) {
		if r.g.IsGate(d) {
			continue
		}
		made.Outputs = append(made.Outputs, Change{Task: r.g.Name(d), Leaf: leafOf(r.g, d, r.results[d].Output, r.results[d].Size)})
	}
	return made
}

// listLosses finds the lost outputs that kept lists from being read.
func listLosses(r *reader, m *grownGraph) {
	discard := func(ctx context.Context, h objectstore.Hash) (bool, error) {
		return objectstore.Discard(ctx, r.objects, h)
	}
	for _, i := range m.gates {
		for _, d := range r.g.Dependencies(i) {
			if r.g.IsGate(d) {
				continue
			}
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

// taken takes the result of grow.
func (w *growth) taken(m grownGraph) {
	s := w.s
	w.busy = false
	switch {
	case m.err != nil && s.cancels(m.err):
		return
	case len(m.losses) > 0:
		w.heal(m)
		return
	case m.err != nil:
		s.fail(m.err)
		return
	}
	maps.Copy(w.failed, m.failed)
	again := slices.ContainsFunc(m.gates, func(i int32) bool { return w.again[i] })
	if again && (m.g != nil || len(m.failed) > 0) {
		s.fail(fmt.Errorf("the items of %s have changed during the run, since a lost output was made again: start once more", gateNames(s.g, m.gates)))
		return
	}
	for _, i := range m.gates {
		if !w.again[i] {
			s.results[i].State = Cached
		}
		delete(w.again, i)
	}
	if again || s.stopping {
		return
	}
	if m.g != nil {
		w.become(m.g)
	}
	s.join()
	w.renew()
}

// doubt finds the tasks below closed gates, which may turn out not to belong to the run. A closed gate that the
// baseline proves is opened, since its list is the baseline's list.
func (w *growth) doubt() {
	s := w.s
	gates := s.g.Gates()
	if len(gates) == 0 {
		return
	}
	var closed []int32
	for _, i := range gates {
		switch {
		case !s.wants(i) || s.results[i].State != Pending:
		case s.proven(i) && s.opts.Baseline.Package == s.g.Origin:
			s.results[i].State = Cached
		default:
			closed = append(closed, i)
		}
	}
	below := make([]bool, s.g.Len())
	s.g.MarkDownstream(closed, below)
	for i := range below {
		s.states[i].uncertain = below[i]
	}
}

// certain counts the tasks below a gate that will not open, as they were in the last run, unless they are below
// another closed gate.
func (w *growth) certain(gate int32) {
	s := w.s
	w.doubt()
	below := make([]bool, s.g.Len())
	s.g.MarkDownstream([]int32{gate}, below)
	n := 0
	for i := range below {
		if t := &s.states[i]; below[i] && s.wants(int32(i)) && !t.uncertain && !t.counted && !s.g.IsGate(int32(i)) {
			t.counted = true
			n++
		}
	}
	if n > 0 {
		s.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: n}})
	}
}

// count counts a task of the run once. A pending family counts as one task, since its number of tasks is not known.
func (w *growth) count(i int32) {
	s := w.s
	if !s.states[i].counted {
		s.states[i].counted = true
		s.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}})
	}
}

// unmade fails a family whose known lists make no tasks. Tasks that do not depend on it go on.
func (w *growth) unmade(i int32) {
	s := w.s
	name := s.g.Name(i)
	err := w.failed[name]
	if err == nil {
		s.fail(fmt.Errorf("task %s: its items are not known, and nothing makes them known", name))
		return
	}
	w.count(i)
	s.emit(events.Event{Type: events.TaskMarkedReady, Task: name})
	s.emit(events.Event{Type: events.TaskFailed, Task: name, Data: &events.Data{Reason: ReasonItems, Message: err.Error(), Attempt: 1}})
	s.failed(i, err.Error())
}

// heal runs the tasks again whose outputs hold the lists and are lost.
func (w *growth) heal(m grownGraph) {
	s := w.s
	for d, lost := range m.losses {
		for _, h := range lost {
			if s.unchangedSince(d, m.view) && s.heals.lost[d][h] {
				s.fail(fmt.Errorf("items of %s: %w", gateNames(s.g, m.gates), &LostAgainError{s.g.Name(d), h}))
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
			w.open(i)
		}
	}
}

// become replaces the graph by the grown one. Nodes keep their indices.
func (w *growth) become(g *Graph) {
	s := w.s
	more := g.Len() - s.g.Len()
	s.g = g
	s.results = append(slices.Clone(s.results), make([]TaskResult, more)...)
	s.states = append(s.states, make([]taskState, more)...)
	s.budget.capacities(g, s.opts)
	if l, ok := s.exec.(Lookup); ok && batches(g) {
		s.needLooks(l)
	}
	if waits(g) {
		s.needLooks(nil)
	}
	s.choose()
	s.order()
}

// renew counts anew, after gates have opened, what each waiting node waits for, and readies nodes that wait for
// nothing.
func (w *growth) renew() {
	s := w.s
	waits := func(i int32) bool {
		return s.wants(i) && s.results[i].State == Pending && !s.states[i].announced && !s.states[i].busy
	}
	for _, i := range s.g.Order() {
		if !waits(i) {
			continue
		}
		s.states[i].upstream = 0
		for _, d := range s.g.Dependencies(i) {
			if s.results[d].State == Pending {
				s.states[i].upstream++
			}
		}
	}
	for _, i := range s.g.Order() { // skipping a node counts down the nodes that tolerate it
		if !waits(i) {
			continue
		}
		switch d := broken(s.reader, i); {
		case d >= 0:
			s.skip(i, s.culprit(d))
		case s.states[i].upstream == 0:
			s.wake(i)
		}
	}
}

// incomplete tells whether some tasks of the graph are not known.
func (w *growth) incomplete() bool {
	s := w.s
	for i := range s.results {
		if i := int32(i); s.g.IsPending(i) || s.g.IsGate(i) && s.results[i].State != Cached {
			return true
		}
	}
	return false
}

// unnamed tells whether the graph has stopped growing and the filter names nothing in it.
func (w *growth) unnamed() bool {
	s := w.s
	if s.opts.Filter == "" || w.Growth == nil || s.stopping {
		return false
	}
	for i := range s.states {
		if i := int32(i); !s.g.IsGate(i) && !s.states[i].unnamed && s.wants(i) {
			return false
		}
	}
	return true
}
