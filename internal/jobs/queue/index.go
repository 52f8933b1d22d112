package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// index changes jobs together with the entries that make them claimable, and caches listed entries (page.go).
type index struct {
	*records
	held *held

	work news // when there was a sign of something to claim

	mu      sync.Mutex
	pages   map[string]*page
	orphans map[string]time.Time              // when an orphan was first seen, by Job.Ref and token
	offers  uint64                            // counts entries that this process has put
	flows   map[string]flow                   // of jobs that this process enqueues, by queue
	marks   map[refstore.Key]time.Time        // when this process has begun to put marks of shards
	taken   map[refstore.Key]refstore.Version // versions of jobs that were claimed, as this process knows, by their entries, which may still be listed
}

// cancelNow ends a job that is not running. If the job's worker was lost, the command may run on.
func (x *index) cancelNow(ctx context.Context, s stored, rec cancelRecord) (Job, error) {
	message := "cancelled"
	if rec.By != "" {
		message += " by " + rec.By
	}
	if rec.Why != "" {
		message += ": " + rec.Why
	}
	j := s.Job
	o := Outcome{State: Cancelled, ExecutionID: s.Execution, Reason: ReasonCancelled}
	if s.Orphaned() {
		o.Left = j.Maker
		message += "; the command may run on under " + j.Maker + ", which was lost"
	}
	o.Message = Truncate(message)
	j.end(o, x.now())
	ended, err := x.swap(ctx, s.version, &j)
	if err != nil {
		return Job{}, err
	}
	return ended.Job, errors.Join(x.remove(ctx, s), x.move(ctx, ended), x.dropCancel(ctx, s.Queue, s.ID))
}

// confirm compares an entry with its job, and removes or replaces it if they differ. It returns the valid entry; nil
// if there is none.
func (x *index) confirm(ctx context.Context, c *candidate) (*candidate, error) {
	queue := strings.Split(c.key.Partition, "/")[1]
	id, ok := indexed(c.key)
	if !ok {
		return nil, nil
	}
	s, err := x.load(ctx, queue, id)
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if err == nil {
		if now, ok := s.indexKey(); ok && now == c.key {
			if s.version == c.entry.version {
				return c, nil
			}
			return x.put(ctx, s)
		}
		if s.Status == Running && s.LockedBy != "" { // its holder may have died before it announced itself
			if s, err = x.expire(ctx, s); err != nil {
				return nil, err
			}
		}
		if _, err := x.mend(ctx, s); err != nil {
			return nil, err
		}
	}
	return nil, x.drop(ctx, c.key, c.version)
}

// put puts the entry of a claimable job, and returns it; nil if this version has one already, or the job is no longer
// claimable.
func (x *index) put(ctx context.Context, s stored) (*candidate, error) {
	const tries = 5
	var over refstore.Version
	for try := 0; ; try++ {
		key, ok := s.indexKey()
		if !ok {
			return nil, nil
		}
		if x.unmarked(&s.Job, key) {
			if err := x.mark(ctx, s.Queue, s.Shard); err != nil {
				return nil, err
			}
		}
		if err := x.batch.settle(ctx, key); err != nil { // else the removal of an earlier entry could remove it
			return nil, err
		}
		v, err := x.putEntry(ctx, key, &s, over)
		if err == nil {
			c := newCandidate(key, v, entry{s.Job, s.version})
			x.offer(c)
			return c, nil
		}
		if !errors.Is(err, refstore.ErrConflict) || try == tries {
			return nil, err
		}
		// An entry of this or of an earlier version of the job exists; the job itself is the latest.
		r, err := x.store.Get(ctx, key)
		if over = r.Version; err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return nil, err
		}
		if there, err := decodeEntry(r); err == nil && there.version == s.version {
			return nil, nil
		}
		if s, err = x.load(ctx, s.Queue, s.ID); isNotFound(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if now, ok := s.indexKey(); ok && now != key {
			over = refstore.Absent
		}
	}
}

// putFirst puts the entry of a new job.
func (x *index) putFirst(ctx context.Context, s stored) error {
	key, ok := s.indexKey()
	if !ok {
		return nil
	}
	e := entry{s.Job, s.version}
	value := e.encode(s.value)
	if !x.batch.batches(len(value)) {
		_, err := x.put(ctx, s)
		return err
	}
	entry := refstore.Record{Key: key, Value: value}
	if !x.unmarked(&s.Job, key) {
		return x.batch.now(ctx, entry)
	}
	mark, at := markKey(s.Queue, s.Shard), x.o.Now()
	x.marked(mark, at) // at once, so that entries put at the same time come without it
	err := x.batch.now(ctx, refstore.Record{Key: mark, Value: markValue(at)}, entry)
	if err != nil {
		x.marked(mark, time.Time{})
	}
	return err
}

// claimed removes the entry of a job that was claimed.
func (x *index) claimed(ctx context.Context, c *candidate, l *Lease) {
	if l.unlisted {
		return
	}
	if x.batch.batches(0) {
		x.mu.Lock()
		x.take(c.key, c.entry.version)
		x.mu.Unlock()
		x.batch.later(&followUp{rec: refstore.Record{Key: c.key}, gone: true}, entryWait)
		return
	}
	if x.files == nil {
		_ = x.drop(ctx, c.key, c.version) // a reader of the outdated entry compares it with the job
		return
	}
	_ = x.remove(ctx, stored{Job: c.job, version: c.entry.version})
}

// take remembers that the version of a job in an entry was claimed. The caller holds x.mu.
func (x *index) take(key refstore.Key, v refstore.Version) {
	if len(x.taken) >= maxRemembered {
		clear(x.taken)
	}
	x.taken[key] = v
}

// isTaken tells whether this process knows that the version of a job in an entry was claimed.
func (x *index) isTaken(key refstore.Key, e *entry) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.taken[key] == e.version
}

// remove removes the entry of a job in its state before a change.
func (x *index) remove(ctx context.Context, was stored) error {
	key, ok := was.indexKey()
	if !ok {
		return nil
	}
	x.withdraw(key)
	r, err := x.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if e, err := decodeEntry(r); err == nil && e.version != was.version {
		return nil // it can be claimed again
	}
	return x.drop(ctx, key, r.Version)
}

// mend completes a change of a job after a crash: its entry, or its move to the finished ones. It tells whether the job
// can be claimed.
func (x *index) mend(ctx context.Context, s stored) (claimable bool, err error) {
	if s.Status.Terminal() {
		return false, x.move(ctx, s)
	}
	key, ok := s.indexKey()
	if !ok {
		return false, nil
	}
	// An existing entry is presumed right: a claim notices if it is not.
	if _, err := x.store.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
		return true, err
	}
	// The caller, which enqueues a finished job, removes the entry again unless it dies.
	before, err := x.loadFinished(ctx, s.Queue, s.ID)
	switch {
	case err == nil && before.Retried >= s.Retried:
		return false, x.drop(ctx, jobKey(s.Queue, s.ID), s.version)
	case err == nil:
		if err := x.forget(ctx, before); err != nil {
			return false, err
		}
	case !isNotFound(err):
		return false, err
	}
	_, err = x.put(ctx, s)
	return true, err
}

// orphan clears the lock of a job whose worker was lost.
func (x *index) orphan(ctx context.Context, s stored) (stored, error) {
	if x.files != nil { // its worker may have died while it moved the job
		before, err := x.loadFinished(ctx, s.Queue, s.ID)
		if err == nil && before.Retried >= s.Retried {
			return before, x.drop(ctx, jobKey(s.Queue, s.ID), s.version)
		}
		if err != nil && !isNotFound(err) {
			return s, err
		}
	}
	j := s.Job
	j.LockedBy = ""
	s, err := x.swap(ctx, s.version, &j)
	if err != nil {
		return s, err
	}
	_, err = x.put(ctx, s)
	return s, err
}

// expire makes the job an orphan if its worker was lost, or if this process holds it through a claim without a
// response. Otherwise it returns the job unchanged.
func (x *index) expire(ctx context.Context, s stored) (stored, error) {
	if !x.held.astray(&s.Job) {
		ended, _, err := x.held.members.Ended(ctx, s.LockedBy)
		if err != nil || !ended {
			return s, err
		}
	}
	orphan, err := x.orphan(ctx, s)
	if errors.Is(err, refstore.ErrConflict) { // another process was faster, or the job has ended
		if now, err := x.find(ctx, s.Queue, s.ID); err == nil || !isNotFound(err) {
			return now, err
		}
		return s, nil
	}
	return orphan, err
}
