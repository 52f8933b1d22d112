package queue

import (
	"context"
	"errors"
	"strings"
	"time"

	"e3/refstore"
)

// claims are what a process knows of its claims, besides its leases. Queue.mu guards them.
type claims struct {
	session  string                      // under which it claims; "" before it does
	underWay map[string]int              // by Job.Ref
	doubtful map[string]refstore.Version // of which it does not know whether they lock the job, or will: the job's version before, by Job.Ref
}

// claiming says that a claim is under way.
func (q *Queue) claiming(session, ref string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims.session = session
	q.claims.underWay[ref]++
}

// claimed says what came of a claim: a lease, or nobody knows what.
func (q *Queue) claimed(ref string, l *Lease, over refstore.Version, doubtful bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.claims.underWay[ref]--; q.claims.underWay[ref] == 0 {
		delete(q.claims.underWay, ref)
	}
	switch {
	case l != nil:
		q.leases[ref] = l
		q.progress++
		delete(q.claims.doubtful, ref)
	case doubtful:
		q.claims.doubtful[ref] = over
	}
}

// astray tells whether a job is locked by this process's session though the process does not work on it: a claim of which it was not told. Others cannot
// know it, as the session lives. The job was read before: a claim under way then has ended in a lease since, or is still known to be under way.
func (q *Queue) astray(j *Job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ref := j.Ref()
	return j.LockedBy != "" && j.LockedBy == q.claims.session && q.claims.underWay[ref] == 0 && q.leases[ref] == nil
}

// resolve finds out what became of claims that nobody has answered, and makes orphans of the jobs that they have locked: whether an execution was begun, who
// adopts it finds out.
func (q *Queue) resolve(ctx context.Context, queue string) error {
	var errs []error
	for ref, over := range q.doubts(queue) {
		_, id, _ := strings.Cut(ref, "/")
		s, err := q.load(ctx, queue, id)
		switch {
		case err != nil:
		case q.astray(&s.Job):
			_, err = q.orphan(ctx, s)
		case s.version == over:
			continue // the claim may still arrive
		case s.Orphaned(): // perhaps by an earlier try of this
			_, err = q.mend(ctx, s)
		}
		if err == nil || isNotFound(err) || errors.Is(err, ErrMalformed) { // of which Repair tells
			q.mu.Lock()
			if q.claims.doubtful[ref] == over {
				delete(q.claims.doubtful, ref)
			}
			q.mu.Unlock()
		} else if !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// doubts returns the doubtful claims in a queue.
func (q *Queue) doubts(queue string) map[string]refstore.Version {
	q.mu.Lock()
	defer q.mu.Unlock()
	doubts := make(map[string]refstore.Version)
	for ref, over := range q.claims.doubtful {
		if of(ref) == queue {
			doubts[ref] = over
		}
	}
	return doubts
}

// of returns the queue that a Job.Ref names.
func of(ref string) string {
	queue, _, _ := strings.Cut(ref, "/")
	return queue
}

// leaving bounds how long a process that ends waits for its records to be removed.
const leaving = 5 * time.Second

// leave removes what says that this process's session has, or had, jobs, in each queue where it has none: nobody needs to look for them when it is over. Where
// that fails others do so. A deletion that arrives only after a later claim has found the record costs that Repair finds the job, and not Reap.
func (q *Queue) leave(ctx context.Context) {
	select {
	case <-q.members.Lost():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	q.entering.Lock() // who claims from now on waits, and puts it again
	defer q.entering.Unlock()
	for _, key := range q.quit() {
		if r, err := q.store.Get(ctx, key); err == nil {
			_ = q.drop(ctx, key, r.Version)
		}
	}
}

// quit forgets that this process is a holder in queues where it neither has jobs, nor is claiming any, nor may have claimed any, and returns its records there.
func (q *Queue) quit() []refstore.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := make(map[string]bool)
	for ref := range q.leases {
		busy[of(ref)] = true
	}
	for ref := range q.claims.underWay {
		busy[of(ref)] = true
	}
	for ref := range q.claims.doubtful {
		busy[of(ref)] = true
	}
	var keys []refstore.Key
	for key := range q.entered {
		if queue := strings.Split(key.Partition, "/")[1]; !busy[queue] && key == holderKey(queue, key.Sort) {
			delete(q.entered, key)
			keys = append(keys, key)
		}
	}
	return keys
}
