package worker

import (
	"fmt"

	"e3/internal/queue"
	"e3/internal/record"
)

// A turn is what a job gets that lacks cores or memory while others that come after it are taken: when record.MostPassed have passed it, nothing passes
// it any more, so that a large job is not kept waiting for ever by small ones. It is that of one worker: others count for themselves, and whoever
// claims the job ends it. The loop of the worker owns it.
type turn struct {
	job    *queue.Job // the first of those that wait; nil: none is known to
	passed int        // how many were taken that come after it; it counts on where another takes its place
}

// before tells whether a job is to be claimed before another one, as queues order them.
func before(a, b *queue.Job) bool {
	switch {
	case a.Orphaned() != b.Orphaned():
		return a.Orphaned()
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	}
	return a.Created.Before(b.Created)
}

func same(a, b *queue.Job) bool { return a.Queue == b.Queue && a.ID == b.ID }

// lacksRoom notes a job that would fit if the others of this worker had ended. It may not be there any more: that shows when it is its turn.
func (t *turn) lacksRoom(j *queue.Job) {
	if t.job == nil || before(j, t.job) {
		waits := *j
		t.job = &waits
	}
}

// come tells whether nothing may pass the job any more.
func (t *turn) come() bool { return t.job != nil && t.passed >= record.MostPassed }

// lets tells whether a job for which there is room may be claimed.
func (t *turn) lets(j *queue.Job) bool { return !t.come() || before(j, t.job) }

// took counts a job that was claimed.
func (t *turn) took(j *queue.Job) {
	switch {
	case t.job == nil:
		t.passed = 0
	case same(j, t.job):
		*t = turn{}
	case before(t.job, j):
		t.passed++
	}
}

// takes tells whether a job can be claimed now, and notes one that waits for room.
func (l *loop) takes(j *queue.Job) bool {
	w := l.w
	if !w.has(j.Labels) {
		return false
	}
	switch w.room.check(&j.Policy) {
	case fitsNow:
		return w.turn.lets(j)
	case noRoom:
		w.turn.lacksRoom(j)
	}
	return false
}

// takeTurn claims the job whose turn it is, once there is room. The turn ends when the job is claimed, here or elsewhere, or gone, when it cannot be had for
// other reasons than room, or when somebody has put it behind others. Where it has come to lack a named resource, the turn is that of the next that waits.
func (l *loop) takeTurn() error {
	w := l.w
	if !w.turn.come() {
		return nil
	}
	was := w.turn.job
	var how fit
	asked, waits := false, false
	lease, err := w.s.Queue.Only(l.held, was.Queue, was.ID, l.want(func(j *queue.Job) bool {
		if asked, waits = !l.isLeft(j, orphans{}), false; !asked {
			return false
		}
		how = w.room.check(&j.Policy)
		if waits = how == noRoom && !before(was, j); waits {
			now := *j
			w.turn.job = &now
		}
		return how == fitsNow
	}))
	switch {
	case isOver(err):
	case err != nil:
		return fmt.Errorf("claim what has waited for room: %w", err)
	case lease != nil:
		l.begin(lease, nil)
	case waits:
		return nil
	case asked && how == noResource:
		w.turn.job = nil
		return nil
	}
	w.turn = turn{}
	return nil
}
