package worker

import (
	"errors"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
)

// A turn keeps a large job from waiting for ever while smaller later ones are taken: once record.MostPassed later
// jobs were taken before a job that lacks cores or memory, no later job is taken before it. Each worker counts its
// own turns; a claim of the job by any worker ends the turn. The worker's loop owns it.
type turn struct {
	job    *queue.Job // the first waiting job; nil: none is known
	passed int        // how many later jobs were taken; the count continues if another job becomes the first
	// unreadable are jobs whose turn had come and whose records, unlike their entries, are unreadable: no claim can
	// wait for them.
	unreadable map[string]bool
}

// maxUnreadable bounds the remembered unreadable jobs.
const maxUnreadable = 1 << 12

// before tells whether queues order job a before job b.
func before(a, b *queue.Job) bool {
	switch {
	case a.Orphaned() != b.Orphaned():
		return a.Orphaned()
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	}
	return a.Created < b.Created
}

// state identifies a job in its present state: any change gives another text.
func state(j *queue.Job) string {
	return fmt.Sprintf("%s#%d@%d", j.Ref(), j.Token, j.Updated)
}

func same(a, b *queue.Job) bool { return a.Queue == b.Queue && a.ID == b.ID }

// lacksRoom records a job that would fit an idle worker. Its turn will show if the job is gone.
func (t *turn) lacksRoom(j *queue.Job) {
	if (t.job == nil || before(j, t.job)) && !t.unreadable[state(j)] {
		waits := *j
		t.job = &waits
	}
}

// come tells whether no more jobs may pass this one.
func (t *turn) come() bool { return t.job != nil && t.passed >= record.MostPassed }

// until is the last job that may be taken; nil: any may.
func (t *turn) until() *queue.Job {
	if !t.come() {
		return nil
	}
	return t.job
}

// lets tells whether a fitting job may be claimed.
func (t *turn) lets(j *queue.Job) bool { return !t.come() || before(j, t.job) }

// claimed counts a claimed job.
func (t *turn) claimed(j *queue.Job) {
	switch {
	case t.job == nil:
		t.passed = 0
	case same(j, t.job):
		t.end()
	case before(t.job, j):
		t.passed++
	}
}

// end restarts the count for the next waiting job.
func (t *turn) end() { t.job, t.passed = nil, 0 }

// passOver gives an unreadable job's turn to the next waiting one, and ignores the job in its present state.
func (t *turn) passOver(j *queue.Job) {
	if t.unreadable == nil || len(t.unreadable) >= maxUnreadable {
		t.unreadable = map[string]bool{}
	}
	t.unreadable[state(j)] = true
	t.job = nil
}

// foreignFor is how long a worker leaves a job alone because its machine lacks what the job needs. That may be
// installed meanwhile.
const foreignFor = time.Minute

// isForeign reports whether the job was given back lately because this machine lacks what it needs.
func (l *loop) isForeign(j *queue.Job) bool {
	found, ok := l.w.foreign[j.Queue+"/"+j.ID]
	if ok && l.w.o.Now().Sub(found) >= foreignFor {
		delete(l.w.foreign, j.Queue+"/"+j.ID)
		return false
	}
	return ok
}

// takes tells whether a job can be claimed now, and records a job that waits for room.
func (l *loop) takes(j *queue.Job) bool {
	w := l.w
	if !w.has(j.Labels) || l.isForeign(j) {
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

// takeTurn claims the job whose turn it is, once there is room. The turn ends when the job is claimed by any worker, or
// gone, when something other than room prevents the claim, or when the job was moved behind others. If the job lacks a
// named resource, or is unreadable, the turn passes to the next waiting job.
func (l *loop) takeTurn() error {
	w := l.w
	if !w.turn.come() {
		return nil
	}
	was := w.turn.job
	var how fit
	asked, waits := false, false
	lease, err := w.s.Queue.Only(l.held, was.Queue, was.ID, l.want(func(j *queue.Job) bool {
		if asked, waits = !l.mustAdopt(j, orphans{}), false; !asked {
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
		return fmt.Errorf("claim the job that has waited for room: %w", err)
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
