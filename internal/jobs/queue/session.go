package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// held is what this process holds, or may hold: its leases, its claims in progress or in doubt, and the records that
// announce it as a holder.
type held struct {
	*records
	members Members

	entering sync.Mutex // one put of an announcing record at a time
	mu       sync.Mutex
	entered  map[refstore.Key]time.Time // when records that announce a queue, a run or this holder were put
	leases   map[string]*Lease          // by Job.Ref
	claims   claims
	making   map[string]int // jobs that this process is about to index, by Job.Ref
}

// claims is the knowledge of a process about its claims, besides its leases. held.mu guards them.
type claims struct {
	session  string                      // the session of its claims; "" before the first claim
	underWay map[string]int              // by Job.Ref
	doubtful map[string]refstore.Version // claims that may have locked the job, or may still do so: the job's earlier version, by Job.Ref
}

// claiming records that a claim is in progress.
func (h *held) claiming(session, ref string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims.session = session
	h.claims.underWay[ref]++
}

// claimed records the outcome of a claim: a lease, none, or doubt.
func (h *held) claimed(ref string, l *Lease, over refstore.Version, doubtful bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims.underWay[ref]--; h.claims.underWay[ref] == 0 {
		delete(h.claims.underWay, ref)
	}
	switch {
	case l != nil:
		h.leases[ref] = l
		delete(h.claims.doubtful, ref)
	case doubtful:
		h.claims.doubtful[ref] = over
	}
}

// astray tells whether this process's session has locked a job that the process does not work on, through a claim whose
// response was lost. Other processes cannot know it, as the session is alive. The job was read before the call, so a
// claim that was in progress then either became a lease or is still recorded as in progress.
func (h *held) astray(j *Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ref := j.Ref()
	return j.LockedBy != "" && j.LockedBy == h.claims.session && h.claims.underWay[ref] == 0 && h.leases[ref] == nil
}

// resolved ends the doubt about a claim of a version.
func (h *held) resolved(ref string, over refstore.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims.doubtful[ref] == over {
		delete(h.claims.doubtful, ref)
	}
}

// current returns this process's leases.
func (h *held) current() []*Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.leases))
}

// busy tells whether this process has jobs.
func (h *held) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.leases) > 0
}

// ended forgets a lease.
func (h *held) ended(ref string, l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases[ref] == l {
		delete(h.leases, ref)
	}
}

// doubts returns the doubtful claims in a queue.
func (h *held) doubts(queue string) map[string]refstore.Version {
	h.mu.Lock()
	defer h.mu.Unlock()
	doubts := make(map[string]refstore.Version)
	for ref, over := range h.claims.doubtful {
		if queueOf(ref) == queue {
			doubts[ref] = over
		}
	}
	return doubts
}

// queueOf returns the queue that a Job.Ref names.
func queueOf(ref string) string {
	queue, _, _ := strings.Cut(ref, "/")
	return queue
}

// leaveTime bounds how long an ending process waits for the removal of its records.
const leaveTime = 5 * time.Second

// leave removes the records that announce this process's session as a holder, in each queue where it has no jobs, so
// that other processes need not watch it end. If that fails, they do. If a deletion takes effect after a later claim
// has found the record, Repair finds the job instead of Reap.
func (h *held) leave(ctx context.Context) {
	last, done := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	h.batch.flush(last)
	done()
	select {
	case <-h.members.Lost():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	h.entering.Lock() // a later claim waits, and puts the record again
	defer h.entering.Unlock()
	for _, key := range h.quit() {
		if r, err := h.store.Get(ctx, key); err == nil {
			_ = h.drop(ctx, key, r.Version)
		}
	}
}

// quit forgets, and returns, this process's holder records in queues where it has no jobs and no claims in progress or
// in doubt.
func (h *held) quit() []refstore.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	busy := make(map[string]bool)
	for ref := range h.leases {
		busy[queueOf(ref)] = true
	}
	for ref := range h.claims.underWay {
		busy[queueOf(ref)] = true
	}
	for ref := range h.claims.doubtful {
		busy[queueOf(ref)] = true
	}
	var keys []refstore.Key
	for key := range h.entered {
		if queue := strings.Split(key.Partition, "/")[1]; !busy[queue] && key == holderKey(queue, key.Sort) {
			delete(h.entered, key)
			keys = append(keys, key)
		}
	}
	return keys
}

// tell notifies a lease of this process that its job was cancelled.
func (h *held) tell(ref string, rec cancelRecord) {
	h.mu.Lock()
	l := h.leases[ref]
	h.mu.Unlock()
	if l != nil {
		l.request(rec)
	}
}

func (h *held) holds(ref string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[ref] != nil
}

// enter puts an announcing record, unless it exists or this process has put it lately.
func (h *held) enter(ctx context.Context, key refstore.Key, value []byte) error {
	now := h.o.Now()
	known := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		at, ok := h.entered[key]
		return ok && now.Sub(at) < remembered
	}
	if known() {
		return nil
	}
	h.entering.Lock() // one of many concurrent callers puts it
	defer h.entering.Unlock()
	if known() {
		return nil
	}
	if _, err := h.store.Put(ctx, refstore.Record{Key: key, Value: value}); err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.entered) >= maxRemembered {
		clear(h.entered)
	}
	h.entered[key] = now
	return nil
}

// makes keeps this process's Repair away from a job until done is called.
func (h *held) makes(ref string) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.making[ref]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.making[ref]--; h.making[ref] == 0 {
			delete(h.making, ref)
		}
	}
}

func (h *held) isMaking(ref string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.making[ref] > 0
}

// lost returns the reason of the session's loss.
func (h *held) lost(ctx context.Context) error {
	_, err := h.members.Session(ctx)
	if err == nil || !errors.Is(err, refstore.ErrLost) {
		err = errors.Join(refstore.ErrLost, err)
	}
	return err
}
