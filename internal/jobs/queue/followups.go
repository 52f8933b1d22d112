package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"e3/refstore"
)

// followUps writes what follows from transitions of jobs, many records in one request, on a store where each request
// costs. What is written is derived, so it may come late or not at all: Repair mends it. The zero value without a
// store does not write; its users write at once. It is safe for concurrent use.
//
// A job that has ended is put among the finished ones in one request, and removed from the others in a later one: in
// between a reader may find it twice, but never not at all.
type followUps struct {
	store refstore.Batcher // nil: writes are made one by one

	mu      sync.Mutex
	waiting []*followUp                // in the order of their due times, almost
	all     map[refstore.Key]*followUp // those that wait, and those under way
	sending int                        // requests under way
	sent    time.Time                  // when the last one began
	timer   *time.Timer                // fires when the first is due; nil: none waits
	idle    chan struct{}              // closed when nothing waits or is under way; nil: no caller asks
}

// followUp is a record to be put, or deleted.
type followUp struct {
	rec   refstore.Record
	gone  bool
	early time.Time     // it is not written before
	due   time.Time     // it is written then, or before with others
	then  *followUp     // what comes once this is written, after removalWait
	done  chan struct{} // closed when it was written, or could not be
	err   error
}

// How long follow-ups wait for others.
const (
	// entryWait is how long the entry of a job that was claimed, and the place of one that has ended, may wait. Other
	// workers see the entry meanwhile; the run sees the end in the job itself.
	entryWait = 20 * time.Millisecond
	// removalWait is the least time that a finished job stays among the others: the run reads its end there, which
	// saves it a read.
	removalWait = 300 * time.Millisecond
	// gatherWait is how long an entry waits that makes a job claimable, if others were written just before.
	gatherWait = 4 * time.Millisecond
	// maxFollowUp is the largest value that is written with others.
	maxFollowUp = 16 << 10
	// mostSending is how many requests are under way at a time.
	mostSending = 8
)

// batches tells whether a record of this size is written with others.
func (f *followUps) batches(size int) bool { return f.store != nil && size <= maxFollowUp }

// later has a record put, or deleted, within a time.
func (f *followUps) later(u *followUp, within time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(u, 0, within)
}

// add is later for a caller that holds the lock.
func (f *followUps) add(u *followUp, early, within time.Duration) {
	if f.all == nil {
		f.all = make(map[refstore.Key]*followUp)
	}
	now := time.Now()
	u.early, u.due, u.done = now.Add(early), now.Add(within), make(chan struct{})
	f.waiting = append(f.waiting, u)
	f.all[u.rec.Key] = u
	f.schedule()
}

// now puts a record soon, and returns when it is written. If none was written lately it is written at once.
func (f *followUps) now(ctx context.Context, rec refstore.Record) error {
	u := &followUp{rec: rec}
	f.mu.Lock()
	within := gatherWait
	if time.Since(f.sent) > 4*gatherWait && len(f.waiting) == 0 {
		within = 0
	}
	f.add(u, 0, within)
	f.mu.Unlock()
	select {
	case <-u.done:
		return u.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle returns when nothing is about to be written at a key any more. A deletion that waits is dropped.
func (f *followUps) settle(ctx context.Context, key refstore.Key) error {
	if f.store == nil {
		return nil
	}
	f.mu.Lock()
	u := f.all[key]
	if i := slices.Index(f.waiting, u); u != nil && i >= 0 && u.gone {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		f.finish(u, nil)
		u = nil
	}
	f.mu.Unlock()
	if u == nil {
		return nil
	}
	select {
	case <-u.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush returns when everything is written, or could not be.
func (f *followUps) flush(ctx context.Context) {
	for {
		f.mu.Lock()
		if len(f.waiting)+f.sending == 0 {
			f.mu.Unlock()
			return
		}
		for _, u := range f.waiting {
			u.early, u.due = time.Time{}, time.Time{}
		}
		f.schedule()
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		idle := f.idle
		f.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// schedule sends what fills a request or is due, and sets the timer for the rest. The caller holds the lock.
func (f *followUps) schedule() {
	for len(f.waiting) > 0 && f.sending < mostSending {
		now := time.Now()
		first, ripe := f.waiting[0].due, 0
		for _, u := range f.waiting {
			if u.due.Before(first) {
				first = u.due
			}
			if !u.early.After(now) {
				ripe++
			}
		}
		if wait := first.Sub(now); wait > 0 && ripe < refstore.MaxBatch {
			if f.timer != nil {
				f.timer.Stop()
			}
			f.timer = time.AfterFunc(wait, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.schedule()
			})
			return
		}
		f.sending++
		f.sent = time.Now()
		go f.send(f.take(now))
	}
	if len(f.waiting)+f.sending == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// take removes the follow-ups of the next request, no key twice.
func (f *followUps) take(now time.Time) []*followUp {
	var batch, rest []*followUp
	keys := make(map[refstore.Key]bool)
	for _, u := range f.waiting {
		if len(batch) == refstore.MaxBatch || keys[u.rec.Key] || u.early.After(now) {
			rest = append(rest, u)
			continue
		}
		keys[u.rec.Key] = true
		batch = append(batch, u)
	}
	f.waiting = rest
	return batch
}

// sendTime bounds a request with all its tries. The session of this process may have ended meanwhile: what is written
// follows from what is on record.
const sendTime = time.Minute

func (f *followUps) send(batch []*followUp) {
	var puts []refstore.Record
	var gone []refstore.Key
	for _, u := range batch {
		if u.gone {
			gone = append(gone, u.rec.Key)
		} else {
			puts = append(puts, u.rec)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	err := f.store.WriteBatch(ctx, puts, gone)
	if errors.Is(err, errors.ErrUnsupported) {
		err = errors.Join(err, refstore.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sending--
	for _, u := range batch {
		f.finish(u, err)
		if err == nil && u.then != nil {
			f.add(u.then, removalWait, 2*removalWait)
		}
	}
	f.schedule()
}

// finish tells that a follow-up is over. The caller holds the lock.
func (f *followUps) finish(u *followUp, err error) {
	u.err = err
	close(u.done)
	if f.all[u.rec.Key] == u {
		delete(f.all, u.rec.Key)
	}
}

// ended writes what follows from the end of a job, later; false if it is to be written at once. The job of a dead one
// may be made anew when a person retries it, and then an unconditional deletion could hit that.
func (f *followUps) ended(s stored) bool {
	if !f.batches(len(s.value)) || s.isDead() {
		return false
	}
	f.later(&followUp{
		rec:  refstore.Record{Key: finishedKey(s.Queue, s.ID), Value: s.value},
		then: &followUp{rec: refstore.Record{Key: jobKey(s.Queue, s.ID)}, gone: true},
	}, entryWait)
	return true
}
