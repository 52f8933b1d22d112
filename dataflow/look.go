package dataflow

import (
	"container/heap"
	"fmt"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/objectstore"
)

// looks are the lookups of a run with remote records. There many lookups at once take no longer than one, and they
// need none of the resources of commands. So ready tasks are looked up before they are launched, in the order of
// ready tasks. Tasks without an answer are launched in the same order. The scheduler's goroutine owns it.
type looks struct {
	Lookup
	most     int
	queue    ready
	underWay map[int32]int // by task, the number of the lookup
	number   int
	missed   map[int32]*looked
	items    map[string]int // by task with batches: items that are queued or being looked up
}

// looked is what the lookup of a task needs and finds.
type looked struct {
	inputs []objectstore.Hash
	size   int64              // of the file inputs
	answer *executions.Answer // of a lookup without a hit; nil: there was no lookup
	before int                // lookups from this number on began after this miss was known
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

// better tells whether a task that precedes the best ready one is being looked up. Only lookups that began before the
// ready task's own lookup missed count, so that no later lookup can delay it.
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

// countLooked counts the items of a task with batches that are being looked up, or wait for their lookup.
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
		t := &turn{task: i, view: s.view(), attempt: attempt{step: s.states[i].history.step, after: s.states[i].history.after, force: s.forces(i)}}
		if s.waits(i) {
			s.deferral.making++
		}
		go func() { s.done <- turnEnd{t, s.lookUp(t)} }()
	}
}

// lookUp looks up the answer of a task. If there is none, it asks whether the task may run. It runs beside the
// scheduler, like work.
func (s *scheduler) lookUp(t *turn) ending {
	v, i := t.view, t.task
	l, err := v.know(i, t.after, t.force)
	if err != nil {
		return s.endOf(t, executions.Result{}, err)
	}
	if l == nil {
		return &answered{v.proof.answer(i)}
	}
	key := executions.NewKey(v.g.Hashes[i], l.inputs)
	t.key = key.String()
	var a executions.Answer
	if s.looks.Lookup != nil {
		if a, err = s.looks.Lookup.Lookup(s.ctx, key); err != nil {
			return &faulted{fmt.Errorf("task %s: %w", v.g.Name(i), err)}
		}
		a = a.Without(t.after)
	}
	if hit := a.Hit; hit != nil && !t.force {
		return &answered{executions.Result{
			ExecutionID: hit.ExecutionID, State: record.Success, Cached: true, Output: hit.Output, Size: hit.Size,
			Duration: hit.Status.CompletedAt.Sub(hit.Status.StartedAt),
		}}
	}
	if s.looks.Lookup != nil && a.Hit == nil {
		l.answer = &a
	}
	end := &missed{looked: l}
	if v.waits(i) {
		end.asked = s.ask(v, i, key, &a, t.force && t.step == "") // earlier decisions do not count for a forced task
	}
	return end
}

// lookedUp takes back a task that was looked up.
func (s *scheduler) lookedUp(e turnEnd) {
	delete(s.looks.underWay, e.task)
	s.countLooked(e.task, -1)
	var early []decidedBlock
	if s.waits(e.task) {
		early = s.deferral.isMade()
	}
	switch end := e.ending.(type) {
	case *missed:
		end.early = early
	case *faulted:
		s.states[e.task].attempts = 1 // a fault counts as the first attempt
	}
	s.conclude(e)
}

// take launches a task that has no answer, unless a person has to decide first.
func (e *missed) take(s *scheduler, t *turn) {
	i := t.task
	s.states[i].busy = true // it waits for a decision, or is pushed
	switch {
	case s.stopping:
		return
	case s.outdated(t) >= 0:
	case e.asked != nil && (e.asked.err != nil || e.asked.block.ID != ""):
		if e.asked.block.Status == approval.Approved {
			s.looks.keep(i, e.looked)
		}
		s.blockMade(madeBlock{turn: t, asked: *e.asked}, e.early)
		return
	default:
		s.states[i].history.cleared = t.key
		s.looks.keep(i, e.looked)
	}
	s.push(i)
}

// keep keeps the result of a lookup without a hit for the launch that follows.
func (l *looks) keep(i int32, found *looked) {
	found.before = l.number
	l.missed[i] = found
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
