package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// followUps writes the records that follow from transitions of jobs, many in one request, to a store where each request
// costs. They are derived, so they may be late or missing: Repair restores them. The zero value has no store and writes
// nothing; its users write at once. It is safe for concurrent use.
//
// An ended job is added to the finished jobs in one request, and removed from the unfinished jobs in a later request:
// in between a reader may find it twice, but never misses it.
type followUps struct {
	store    Batcher // nil: writes are made one by one
	notifies bool    // the store tells the run of finished jobs as soon as they are written

	mu      sync.Mutex
	waiting []*followUp                // in the order of their due times, almost
	all     map[refstore.Key]*followUp // waiting and being sent
	sending int                        // requests in progress
	sent    time.Time                  // when the last one began
	timer   *time.Timer                // fires when the first is due; nil: none waits
	idle    chan struct{}              // closed when none is waiting or being sent; nil: no caller waits for that
	news    map[refstore.Key]*message
}

// message is a record that tells a run which of its jobs this process has ended last. A reader may miss it, so it is
// not written again after an error.
type message struct {
	told    []string
	sent    time.Time
	waiting bool // it is a follow-up
	flying  bool // it is being written, and must not be overtaken
}

// toldRecord is a message in the store.
type toldRecord struct {
	Ended []string `json:"ended"` // the first digits of the hashes in the jobs' ids
}

const (
	maxTold    = 64 // jobs in a message, which so is one unit
	toldDigits = 8  // a reader ignores what it does not wait for
)

// followUp is a record to be put, or deleted.
type followUp struct {
	rec   refstore.Record
	gone  bool
	early time.Time     // not before this time
	due   time.Time     // at this time, or earlier with others
	tells *message      // what it says once it is sent
	then  *followUp     // the next follow-up, removalWait after this one was written
	done  chan struct{} // closed when it was written, or has failed
	err   error
}

// How long follow-ups wait for others.
const (
	// entryWait is how long the removal of a claimed job's entry, and the move of an ended job, may wait. Other workers
	// see the entry meanwhile; the run sees the end in the job itself. Where a move is told to the run, it waits as
	// gatherWait says, and takes along what waits.
	entryWait = 20 * time.Millisecond
	// removalWait is the least time that a finished job stays among the others, because the run reads its end there,
	// which saves a read.
	removalWait = 300 * time.Millisecond
	// gatherWait is how long a record that somebody waits for is gathered with others, if some were written just before.
	gatherWait = 4 * time.Millisecond
	// maxFollowUp is the largest value that is written with others.
	maxFollowUp = 16 << 10
	// mostSending is the limit of concurrent requests.
	mostSending = 8
)

// batches tells whether a record of this size is written with others.
func (f *followUps) batches(size int) bool { return f.store != nil && size <= maxFollowUp }

// later puts, or deletes, a record within a time.
func (f *followUps) later(u *followUp, within time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(u, 0, within)
}

// add is later for a caller that holds the lock.
func (f *followUps) add(u *followUp, early, within time.Duration) {
	f.enlist(u, early, within)
	f.schedule()
}

// enlist adds one of several follow-ups.
func (f *followUps) enlist(u *followUp, early, within time.Duration) {
	if f.all == nil {
		f.all = make(map[refstore.Key]*followUp)
	}
	now := time.Now()
	u.early, u.due, u.done = now.Add(early), now.Add(within), make(chan struct{})
	f.waiting = append(f.waiting, u)
	f.all[u.rec.Key] = u
}

// now puts records soon, and returns when they are written. If none was written lately they are written at once.
func (f *followUps) now(ctx context.Context, records ...refstore.Record) error {
	var wait []*followUp
	f.mu.Lock()
	within := f.soon()
	if len(f.waiting) > 0 {
		within = gatherWait
	}
	for _, rec := range records {
		u := &followUp{rec: rec}
		wait = append(wait, u)
		f.enlist(u, 0, within)
	}
	f.schedule()
	f.mu.Unlock()
	for _, u := range wait {
		select {
		case <-u.done:
			if u.err != nil {
				return u.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// soon is how long a record waits that somebody waits for. The caller holds the lock.
func (f *followUps) soon() time.Duration {
	if time.Since(f.sent) > 4*gatherWait {
		return 0
	}
	return gatherWait
}

// settle returns when nothing is about to be written to a key. It drops a waiting deletion.
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

// flush returns when everything was written, or has failed.
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

// schedule sends full or due requests, and sets the timer for the rest. The caller holds the lock.
func (f *followUps) schedule() {
	for len(f.waiting) > 0 && f.sending < mostSending {
		now := time.Now()
		var first time.Time
		some, ripe := false, 0
		for _, u := range f.waiting {
			if u.tells != nil && u.tells.flying {
				continue
			}
			if !some || u.due.Before(first) {
				some, first = true, u.due
			}
			if !u.early.After(now) {
				ripe++
			}
		}
		if !some {
			break // the end of a request goes on
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
		if len(batch) == refstore.MaxBatch || keys[u.rec.Key] || u.early.After(now) || u.tells != nil && u.tells.flying {
			rest = append(rest, u)
			continue
		}
		if n := u.tells; n != nil {
			n.sent, n.waiting, n.flying = now, false, true
			u.rec.Value = encode(toldRecord{n.told})
		}
		keys[u.rec.Key] = true
		batch = append(batch, u)
	}
	f.waiting = rest
	return batch
}

// sendTime bounds a request with all its tries. The session of this process may have ended meanwhile, which does no
// harm: the records follow from stored ones.
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
		if u.tells != nil {
			u.tells.flying = false
		}
		if err == nil && u.then != nil {
			f.add(u.then, removalWait, 2*removalWait)
		}
	}
	f.schedule()
}

// finish completes a follow-up. The caller holds the lock.
func (f *followUps) finish(u *followUp, err error) {
	u.err = err
	close(u.done)
	if f.all[u.rec.Key] == u {
		delete(f.all, u.rec.Key)
	}
}

// tell schedules a message that a job has ended, at least pace after the one before.
func (f *followUps) tell(key refstore.Key, id string, pace time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.news[key]
	if n == nil {
		if f.news == nil || len(f.news) >= maxRemembered {
			f.news = make(map[refstore.Key]*message)
		}
		n = new(message)
		f.news[key] = n
	}
	_, hash, _ := strings.Cut(id, ".")
	n.told = append(n.told[max(len(n.told)+1-maxTold, 0):], hash[:min(toldDigits, len(hash))])
	if !n.waiting {
		n.waiting = true
		early := max(pace-time.Since(n.sent), 0)
		f.add(&followUp{rec: refstore.Record{Key: key}, tells: n}, early, early+entryWait)
	}
}

// ended schedules the records that follow from the end of a job. It returns false if they must be written at once: a
// dead job may be retried, and a late unconditional deletion could then remove the new one.
func (f *followUps) ended(s stored) bool {
	if !f.batches(len(s.value)) || s.isDead() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	within := entryWait
	if f.notifies {
		within = f.soon()
	}
	f.add(&followUp{
		rec:  refstore.Record{Key: finishedKey(s.Queue, s.ID), Value: s.value},
		then: &followUp{rec: refstore.Record{Key: jobKey(s.Queue, s.ID)}, gone: true},
	}, 0, within)
	return true
}
