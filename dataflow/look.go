package dataflow

import (
	"container/heap"
	"fmt"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/objectstore"
)

// looks are the lookups of a run with remote records. There a lookup takes as long as many at once, and needs none of
// the resources of commands. So ready tasks are looked up first, the best before others. Tasks without an answer are
// launched in the order of ready tasks. The scheduler's goroutine owns it.
type looks struct {
	Lookup
	most     int
	queue    ready
	underWay map[int32]int // by task, the number of the lookup
	number   int
	missed   map[int32]*looked
	items    map[string]int // by task with batches, how many of its items are queued or under way
}

// looked is what is known of a task for its lookup.
type looked struct {
	inputs []objectstore.Hash
	size   int64              // of the file inputs
	answer *executions.Answer // of a lookup without a hit; nil: there was no lookup
	before int                // lookups with smaller numbers began before this task was known to have no answer
}

func (l *looks) idle() bool { return l == nil || len(l.underWay) == 0 }

// take returns the result of a lookup, once: another attempt needs another lookup.
func (l *looks) take(i int32) *looked {
	if l == nil {
		return nil
	}
	found := l.missed[i]
	delete(l.missed, i)
	return found
}

// forget drops the result of a lookup.
func (l *looks) forget(i int32) {
	if l != nil {
		delete(l.missed, i)
	}
}

// better tells whether a task that precedes the best ready one is being looked up. Only lookups count that were under
// way when the ready one was known to have no answer, so that no later lookup can delay it.
func (l *looks) better(r *ready) bool {
	if l == nil || len(r.tasks) == 0 {
		return false
	}
	best := r.tasks[0]
	found := l.missed[best]
	if found == nil {
		return false
	}
	for i, number := range l.underWay {
		if number < found.before && r.before(i, best) {
			return true
		}
	}
	return false
}

// lookLater queues a task for its lookup.
func (s *scheduler) lookLater(i int32) {
	s.looks.queue.push(i)
	s.countLooked(i, 1)
}

// countLooked counts the items of a task with batches that are being looked up, or wait for that.
func (s *scheduler) countLooked(i int32, by int) {
	if s.g.Package.Tasks[i].Policy.Batch > 1 {
		s.looks.items[base(s.g, i)] += by
	}
}

// look begins lookups.
func (s *scheduler) look() {
	l := s.looks
	if l == nil {
		return
	}
	for !s.stopping && len(l.underWay) < l.most && len(l.queue.tasks) > 0 {
		i := heap.Pop(&l.queue).(int32)
		if s.results[i].State != Pending {
			s.countLooked(i, -1)
			continue
		}
		if s.states[i].upstream > 0 {
			s.countLooked(i, -1)
			s.hold(i)
			continue
		}
		s.states[i].busy = true
		l.underWay[i] = l.number
		l.number++
		h := s.states[i].history
		if s.waits(i) {
			s.deferral.making++
		}
		go func(v *reader, force bool) { s.done <- s.lookUp(v, i, h, force) }(s.view(), s.forces(i))
	}
}

// lookUp looks up the answer of a task, and asks whether it may run if there is none. It runs beside the scheduler, like
// work.
func (s *scheduler) lookUp(v *reader, i int32, h history, force bool) completion {
	c := completion{task: i, unclaimed: true, view: v}
	l, err := v.know(i, h.after, force)
	switch {
	case err != nil:
		c.err = fmt.Errorf("task %s: %w", v.g.Name(i), err)
		s.findLosses(&c)
		return c
	case l == nil:
		c.result, c.proven = v.proof.answer(i), true
		return c
	}
	key := executions.NewKey(v.g.Hashes[i], l.inputs)
	c.key = key.String()
	var a executions.Answer
	if s.looks.Lookup != nil {
		if a, err = s.looks.Lookup.Lookup(s.ctx, key); err != nil {
			c.err = fmt.Errorf("task %s: %w", v.g.Name(i), err)
			return c
		}
		a = a.Without(h.after)
	}
	if hit := a.Hit; hit != nil && !force {
		c.result = executions.Result{
			ExecutionID: hit.ExecutionID, State: record.Success, Cached: true, Output: hit.Output, Size: hit.Size,
			Duration: hit.Status.CompletedAt.Sub(hit.Status.StartedAt),
		}
		return c
	}
	if c.looked = l; s.looks.Lookup != nil && a.Hit == nil {
		l.answer = &a
	}
	if v.waits(i) {
		c.asked = s.ask(v, i, key, &a, force && h.step == "") // earlier decisions do not count for a forced task
	}
	return c
}

// lookedUp takes back a task that was looked up.
func (s *scheduler) lookedUp(c completion) {
	delete(s.looks.underWay, c.task)
	s.countLooked(c.task, -1)
	var early []decidedBlock
	if s.waits(c.task) {
		early = s.deferral.isMade()
	}
	if c.looked == nil {
		if c.err != nil && c.losses == nil {
			s.states[c.task].attempts = 1 // a fault counts as the first attempt
		}
		s.complete(c)
		return
	}
	switch {
	case s.stopping:
		return
	case s.outdated(&c) >= 0:
	case c.asked != nil && (c.asked.err != nil || c.asked.block.ID != ""):
		if c.asked.block.Status == approval.Approved {
			s.looks.keep(&c)
		}
		s.blockMade(madeBlock{completion{task: c.task, key: c.key}, *c.asked}, early)
		return
	default:
		s.states[c.task].history.cleared = c.key
		s.looks.keep(&c)
	}
	s.push(c.task)
}

// keep keeps the result of a lookup without a hit for the launch that follows.
func (l *looks) keep(c *completion) {
	c.looked.before = l.number
	l.missed[c.task] = c.looked
}

// lookAgain looks a task up once more, unless an input of it runs again.
func (s *scheduler) lookAgain(i int32) {
	s.states[i].busy = false
	switch {
	case s.stopping:
	case s.states[i].upstream > 0:
		s.hold(i)
	default:
		s.lookLater(i)
	}
}
