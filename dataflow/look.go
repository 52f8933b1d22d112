package dataflow

import (
	"container/heap"
	"fmt"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/objectstore"
)

// looks are the lookups of a run whose records are far away. A lookup takes as long there as many do side by side, and needs nothing
// of what commands share. So what is ready is looked up first, the best before others; what has no answer is launched in the
// order of ready tasks. It is owned by the scheduler's goroutine.
type looks struct {
	Lookup
	most   int
	queue  ready
	flying map[int32]int // by task, the number of the lookup
	number int
	missed map[int32]*looked
}

// looked is what is known of a task that has to be looked up.
type looked struct {
	inputs []objectstore.Hash
	size   int64              // of the file inputs
	answer *executions.Answer // of a lookup that found no hit; nil: it was not looked up
	before int                // lookups with smaller numbers began before it was known that there is no answer
}

func (l *looks) idle() bool { return l == nil || len(l.flying) == 0 }

// take returns what a lookup has found, once: another attempt needs another look.
func (l *looks) take(i int32) *looked {
	if l == nil {
		return nil
	}
	found := l.missed[i]
	delete(l.missed, i)
	return found
}

// forget drops what was found.
func (l *looks) forget(i int32) {
	if l != nil {
		delete(l.missed, i)
	}
}

// better tells whether a task that may go before the best of the ready ones is being looked up. Only lookups count that were under
// way already when that one was known to have no answer: so it waits for no more than one.
func (l *looks) better(r *ready) bool {
	if l == nil || len(r.tasks) == 0 {
		return false
	}
	best := r.tasks[0]
	found := l.missed[best]
	if found == nil {
		return false
	}
	for i, number := range l.flying {
		if number < found.before && r.before(i, best) {
			return true
		}
	}
	return false
}

// look begins lookups.
func (s *scheduler) look() {
	l := s.looks
	if l == nil {
		return
	}
	for !s.stopping && len(l.flying) < l.most && len(l.queue.tasks) > 0 {
		i := heap.Pop(&l.queue).(int32)
		if s.results[i].State != Pending {
			continue
		}
		if s.states[i].upstream > 0 {
			s.hold(i)
			continue
		}
		s.states[i].busy = true
		l.flying[i] = l.number
		l.number++
		go func(v *reader) { s.done <- s.lookUp(v, i) }(s.view())
	}
}

// lookUp looks for the answer of a task. It runs beside the scheduler, as work does.
func (s *scheduler) lookUp(v *reader, i int32) completion {
	c := completion{task: i, unclaimed: true, view: v}
	l, err := s.know(v, i, "")
	switch {
	case err != nil:
		c.err = fmt.Errorf("task %s: %w", s.g.Name(i), err)
		s.findLosses(&c)
		return c
	case l == nil:
		c.result, c.proven = s.proof.answer(i), true
		return c
	}
	key := executions.NewKey(s.g.Hashes[i], l.inputs)
	c.key = key.String()
	a, err := s.looks.Lookup.Lookup(s.ctx, key)
	switch h := a.Hit; {
	case err != nil:
		c.err = fmt.Errorf("task %s: %w", s.g.Name(i), err)
	case h != nil:
		c.result = executions.Result{
			ExecutionID: h.ExecutionID, State: record.Success, Cached: true, Output: h.Output, Size: h.Size,
			Duration: h.Status.CompletedAt.Sub(h.Status.StartedAt),
		}
	default:
		l.answer = &a
		c.looked = l
	}
	return c
}

// lookedUp takes a task back that was looked up.
func (s *scheduler) lookedUp(c completion) {
	delete(s.looks.flying, c.task)
	if c.looked == nil {
		if c.err != nil && c.losses == nil {
			s.states[c.task].attempts = 1 // it was to be the first
		}
		s.complete(c)
		return
	}
	switch {
	case s.stopping:
	case s.asks(c.task): // what was found counts no more when somebody has approved
		s.stopStep(completion{task: c.task}, approval.Review)
	default:
		if s.outdated(&c) < 0 {
			c.looked.before = s.looks.number
			s.looks.missed[c.task] = c.looked
		}
		s.push(c.task)
	}
}
