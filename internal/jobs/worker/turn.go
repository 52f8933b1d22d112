package worker

import (
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
)

// A turn is what a job gets that lacks cores or memory while others that come after it are taken: when record.MostPassed have passed it, nothing passes
// it any more, so that a large job is not kept waiting for ever by small ones. It is that of one worker: others count for themselves, and whoever
// claims the job ends it. The loop of the worker owns it.
type turn struct {
	job    *queue.Job // the first of those that wait; nil: none is known to
	passed int        // how many were taken that come after it; it counts on where another takes its place
	// unreadable are jobs whose turn had come and whose records cannot be read, though their entries in the queue can: nobody waits for them.
	unreadable map[string]bool
}

// maxUnreadable bounds what is remembered of jobs that cannot be read.
const maxUnreadable = 1 << 12

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

// state names a job as it is now: what changes it makes another name of it.
func state(j *queue.Job) string {
	return fmt.Sprintf("%s#%d@%d", j.Ref(), j.Token, j.Updated.UnixNano())
}

func same(a, b *queue.Job) bool { return a.Queue == b.Queue && a.ID == b.ID }

// lacksRoom notes a job that would fit if the others of this worker had ended. It may not be there any more: that shows when it is its turn.
func (t *turn) lacksRoom(j *queue.Job) {
	if (t.job == nil || before(j, t.job)) && !t.unreadable[state(j)] {
		waits := *j
		t.job = &waits
	}
}

// come tells whether nothing may pass the job any more.
func (t *turn) come() bool { return t.job != nil && t.passed >= record.MostPassed }

// until is the last job that may be taken; nil: any may be.
func (t *turn) until() *queue.Job {
	if !t.come() {
		return nil
	}
	return t.job
}

// lets tells whether a job for which there is room may be claimed.
func (t *turn) lets(j *queue.Job) bool { return !t.come() || before(j, t.job) }

// took counts a job that was claimed.
func (t *turn) took(j *queue.Job) {
	switch {
	case t.job == nil:
		t.passed = 0
	case same(j, t.job):
		t.end()
	case before(t.job, j):
		t.passed++
	}
}

// end has whatever waits next be passed as often.
func (t *turn) end() { t.job, t.passed = nil, 0 }

// passOver leaves the turn of a job that cannot be read to the next that waits, and does not note it again as it is.
func (t *turn) passOver(j *queue.Job) {
	if t.unreadable == nil || len(t.unreadable) >= maxUnreadable {
		t.unreadable = map[string]bool{}
	}
	t.unreadable[state(j)] = true
	t.job = nil
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
// other reasons than room, or when somebody has put it behind others. Where it has come to lack a named resource, or cannot be read, the turn is that of the
// next that waits.
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
	case errors.Is(err, queue.ErrMalformed):
		w.turn.passOver(was)
		return nil
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
	w.turn.end()
	return nil
}
