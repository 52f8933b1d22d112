package executions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/refstore"
)

// A Curator changes records without running commands: it closes executions of dead processes, imports, rejects, pins
// and prunes. It is safe for concurrent use, by any number of processes on one repository.
//
// While it imports, prunes or pins an execution it holds that execution's claim, like the process of a running
// execution.
type Curator struct {
	*Store
	claims     refstore.Locker
	leased     refstore.Leased // claims, if they are leases; else nil
	lessee     refstore.Lessee // claims, or another lease that keeps what is stored; nil if nothing must be renewed
	generation *Generation
	now        func() time.Time
}

// NewCurator returns the curator of a store's executions.
func NewCurator(store *Store, locks refstore.Locker, now func() time.Time) *Curator {
	c := &Curator{Store: store, claims: locks, generation: NewGeneration(store.records, locks), now: now}
	c.leased, _ = locks.(refstore.Leased)
	c.lessee, _ = locks.(refstore.Lessee)
	return c
}

// Begin opens the generation for a batch of imports (Generation.Begin).
func (c *Curator) Begin(ctx context.Context) (end func(), err error) { return c.generation.Begin(ctx) }

// errAlive says that a live process or job is at work on the execution.
var errAlive = errors.New("it is running")

// hold takes the claim of an execution, waiting for another curator. It returns errAlive if the execution runs.
func (c *Curator) hold(ctx context.Context, k Key, id string) (refstore.Lock, error) {
	tries := 4 // a process that only checks whether the execution is alive holds the claim for an instant
	if c.leased != nil {
		tries = 2 // the next try is a fifth of a second away
	}
	pause := c.polling("which imports, pins or removes execution " + id)
	for try := 1; ; try++ {
		lock, err := c.claims.TryClaim(ctx, executionClaim(id), nil)
		if !errors.Is(err, refstore.ErrClaimed) {
			return lock, err
		}
		if try >= tries {
			here, err := c.onRecord(ctx, k, id)
			if err != nil {
				return nil, err
			}
			if here.running() {
				return nil, errAlive
			}
		}
		if err := pause.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// polling is the pace of retries for a lock or claim, since neither a kernel lock nor a lease notifies its waiters. The
// pause doubles each time, up to a bound. Where each poll is a request the pause is random, so that waiters for the
// same claim do not collide.
type polling struct {
	pause, most time.Duration
	jitter      bool
	began       time.Time
	tell        func() // called once, after waitingTold; nil: nothing is to be told any more
}

// polling waits for another process. which describes that process: "which prunes …"; if it is empty, the caller tells
// of the wait.
func (c *Curator) polling(which string) polling {
	_, leased := c.claims.(refstore.Leased)
	first, most := refstore.Pace(c.claims)
	b := polling{pause: max(first, 1), most: max(most, 1), jitter: leased, began: time.Now()}
	if which != "" && c.tell != nil {
		b.tell = func() { c.tell(fmt.Errorf("waiting for another process, %s; Ctrl-C ends that", which)) }
	}
	return b
}

// wait pauses. It returns the cause if the context ends.
func (b *polling) wait(ctx context.Context) error {
	if b.tell != nil && time.Since(b.began) >= waitingTold {
		b.tell()
		b.tell = nil
	}
	pause := b.pause
	if b.jitter {
		pause = 1 + rand.N(pause)
	}
	b.pause = min(2*b.pause, b.most)
	return backoff.Wait(ctx, pause)
}

// Alive tells whether a running execution is alive: its process holds its claim, or an unfinished job names it
// (Store.WithJobs).
func (c *Curator) Alive(ctx context.Context, k Key, id string) (bool, error) {
	lock, err := c.claims.TryClaim(ctx, executionClaim(id), nil)
	if errors.Is(err, refstore.ErrClaimed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	lock.Unlock()
	if c.working == nil {
		return false, nil
	}
	job, running, err := c.Job(ctx, k, id)
	if err != nil || !running {
		return false, err
	}
	return c.atWork(ctx, job, id)
}

// CloseIfDead closes a running execution as an error if its process is gone and no unfinished job names it. Its logs
// stay (seed 003, "Crash Handling"). It returns false if the execution is still alive, or has ended meanwhile.
func (c *Curator) CloseIfDead(ctx context.Context, key Key, id string) (bool, error) {
	lock, err := c.claims.TryClaim(ctx, executionClaim(id), nil)
	if errors.Is(err, refstore.ErrClaimed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	closed, err := c.closeStale(ctx, key, id)
	if errors.Is(err, errAlive) {
		err = nil
	}
	return closed, err
}

// closeStale is CloseIfDead for a caller that holds the execution's claim. It returns errAlive if a job keeps the execution
// alive.
func (c *Curator) closeStale(ctx context.Context, key Key, id string) (bool, error) {
	rec, err := c.records.Get(ctx, recordKey(key, id), fieldJob)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	e, err := decodeFound(key, rec, err)
	if err != nil {
		return false, err
	}
	if e.State != record.Running {
		return false, nil
	}
	works, err := c.atWork(ctx, jobField(rec), id)
	if err != nil {
		return false, err
	}
	if works {
		return false, errAlive
	}
	_, err = c.records.Put(ctx, refstore.Record{Key: recordKey(key, id), Value: c.stale(e.Status).Encode(), Version: e.version})
	if errors.Is(err, refstore.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("close stale execution %s: %w", id, err)
	}
	return true, nil
}

// staleText ends the message of a record whose process was gone. The reference writes the same.
const staleText = "no longer running (stale execution)"

// Stale tells by the message of an execution's record whether its process had died. Records have no other field for
// that.
func Stale(message string) bool { return strings.HasSuffix(message, staleText) }

// stale is the final status of a running execution whose process is gone.
func (c *Curator) stale(s record.Status) *record.Status {
	s.State = record.Error
	s.Message = fmt.Sprintf("Process %d %s", s.PID, staleText)
	s.CompletedAt = c.now()
	return &s
}

// waitingTold is how long a wait for another process lasts before it is told.
const waitingTold = time.Second

// A Wait is what a request waits for: an execution of its key that another process makes.
type Wait struct {
	Key Key
	Job string // the job of the execution (Request.Job); "" if a process executes it without a job
}

// waits has Options.Waiting called. The caller ends it with stop, which returns after Waiting has.
func (x *Executor) waits(ctx context.Context, req *Request, w Wait) (stop func()) {
	if req != nil {
		req.Place.Leave()
	}
	if x.opts.Waiting == nil || req == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		x.opts.Waiting(ctx, req, w)
	}()
	return func() {
		cancel()
		<-told
	}
}
