package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// sleeper is the session of a process that is suspended now and then.
type sleeper struct {
	store refstore.Store
	began time.Time
	slept atomic.Int64 // ns

	mu  sync.Mutex
	now *lease.Leases
}

func newSleeper(store refstore.Store) *sleeper {
	s := &sleeper{store: store, began: time.Now()}
	s.now = s.begin()
	return s
}

func (s *sleeper) begin() *lease.Leases {
	return lease.New(s.store, lease.Options{Owner: lease.Owner{Words: "run"}, Elapsed: func() time.Duration {
		return time.Since(s.began) + time.Duration(s.slept.Load())
	}})
}

// sleep suspends the process for longer than a lease, and returns when others, and the process, can know that.
func (s *sleeper) sleep(t *testing.T) {
	t.Helper()
	was := s.leases()
	if _, err := was.Session(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.slept.Add(int64(time.Minute))
	<-was.Lost()
}

func (s *sleeper) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.now.Held(), refstore.ErrLost) {
		s.now.Close()
		s.now = s.begin()
	}
}

func (s *sleeper) leases() *lease.Leases {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *sleeper) Session(ctx context.Context) (string, error) { return s.leases().Session(ctx) }

func (s *sleeper) Ended(ctx context.Context, id string) (bool, time.Duration, error) {
	return s.leases().Ended(ctx, id)
}

func (s *sleeper) Heard(ctx context.Context, id string) (refstore.Heard, error) {
	return s.leases().Heard(ctx, id)
}

func (s *sleeper) Lost() <-chan struct{} { return s.leases().Lost() }

func (s *sleeper) Confirm(ctx context.Context) error { return s.leases().Confirm(ctx) }

// newSleepingRig has a dispatcher whose process can be suspended.
func newSleepingRig(t *testing.T, store refstore.Store, settles dispatch.Settler, o dispatch.Options) (*rig, *sleeper) {
	r := &rig{T: t, settler: &settler{results: map[string]executions.Result{}}, store: store}
	r.q, _ = r.open("worker")
	s := newSleeper(store)
	if settles == nil {
		settles = r.settler
	}
	o.Now, o.By, o.Host = time.Now, "me@host", "here"
	if o.Fault == nil {
		o.Fault = func(err error) { t.Errorf("fault: %v", err) }
	}
	r.d = dispatch.New(queue.New(queue.Store{Store: store}, s, queue.Options{Now: time.Now, Pace: 5 * time.Millisecond, MostPace: 20 * time.Millisecond}), settles, o)
	t.Cleanup(func() {
		r.d.Close()
		s.leases().Close()
	})
	return r, s
}

// renewing returns options of a process that begins another session.
func renewing(o dispatch.Options, s **sleeper) dispatch.Options {
	o.Renew = func() { (*s).renew() }
	return o
}

// The cluster's report about an ended worker decides how the job has ended, even if the run's process was suspended for
// a lease before.
func TestGoneAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var s *sleeper
		var r *rig
		r, s = newSleepingRig(t, mem.New(), nil, renewing(dispatch.Options{Submitter: c, Queue: "slurm"}, &s))
		for _, name := range []string{"once", "twice"} {
			a := r.ask(t.Context(), func(req *executions.Request) { req.Name = name })
			c.wait(t)
			synctest.Wait()
			s.sleep(t)
			c.report(dispatch.Gone{ID: c.submitted[len(c.submitted)-1], Reason: "timeout", Message: "slurm job 12: timeout"})
			select {
			case <-a.done:
			case <-time.After(time.Minute):
				j, err := r.q.Job(t.Context(), "slurm", c.submitted[len(c.submitted)-1])
				t.Fatalf("%s: the run still waits; the job is %s, locked by %q, %v", name, j.Status, j.LockedBy, err)
			}
			if a.err != nil || a.res.Reason != executions.ReasonTimeout {
				t.Errorf("%s: got %+v, %v; want a timeout", name, a.res, a.err)
			}
		}
		r.d.Close()
	})
}

// halting is a settler that can be blocked.
type halting struct {
	settler
	reached, resume chan struct{}
}

func (h *halting) Settle(ctx context.Context, k executions.Key, in []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error) {
	h.reached <- struct{}{}
	<-h.resume
	return h.settler.Settle(ctx, k, in, id, reason, message)
}

// The same if the process is suspended while it settles the job, which becomes an orphan meanwhile.
func TestLapseWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		h := &halting{settler{results: map[string]executions.Result{}}, make(chan struct{}, 10), make(chan struct{})}
		var s *sleeper
		var r *rig
		r, s = newSleepingRig(t, mem.New(), h, renewing(dispatch.Options{Submitter: c, Queue: "slurm"}, &s))
		a := r.ask(t.Context(), nil)
		c.wait(t)
		c.report(dispatch.Gone{ID: c.submitted[0], Reason: "oom", Message: "slurm job 12: oom"})
		<-h.reached
		s.sleep(t)
		time.Sleep(10 * time.Second)
		if j, err := r.q.Job(t.Context(), "slurm", c.submitted[0]); err != nil || !j.Orphaned() {
			t.Errorf("the job is %s, locked by %q, %v; want an orphan", j.Status, j.LockedBy, err)
		}
		close(h.resume)
		select {
		case <-a.done:
		case <-time.After(time.Minute):
			j, err := r.q.Job(t.Context(), "slurm", c.submitted[0])
			t.Fatalf("the run still waits; the job is %s, locked by %q, %v", j.Status, j.LockedBy, err)
		}
		if a.err != nil || a.res.Reason != executions.ReasonOOM {
			t.Errorf("got %+v, %v; want oom", a.res, a.err)
		}
		r.d.Close()
	})
}

// A run that was suspended tends its queue again: a job whose worker is gone ends when it is cancelled, and no request
// waits for the worker.
func TestTendsAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *sleeper
		var r *rig
		r, s = newSleepingRig(t, mem.New(), nil, renewing(dispatch.Options{}, &s))
		ctx, cancel := context.WithCancelCause(t.Context())
		a := r.ask(ctx, nil)
		q, die := r.open("another worker")
		r.q = q
		r.claim()
		s.sleep(t)
		time.Sleep(time.Second)
		die()
		time.Sleep(10 * time.Second)
		word := errors.New("that is enough")
		cancel(word)
		began := time.Now()
		<-a.done
		if took := time.Since(began); a.err != nil && !errors.Is(a.err, word) || a.err != nil && strings.Contains(a.err.Error(), "was told to end") || took > 5*time.Second {
			t.Errorf("got %+v, %v after %v; want it to be cancelled at once", a.res, a.err, took)
		}
		r.d.Close()
	})
}

// A dispatcher that cannot begin another session ends the waiting requests, because nothing tends the queue, and starts
// no new ones.
func TestLapseForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newSleepingRig(t, mem.New(), nil, dispatch.Options{})
		a := r.ask(t.Context(), nil)
		b := r.ask(t.Context(), func(req *executions.Request) { req.Name = "beside" })
		synctest.Wait()
		s.sleep(t)
		for _, waits := range []*asked{a, b} {
			select {
			case <-waits.done:
			case <-time.After(time.Minute):
				t.Fatal("it still waits")
			}
			if !errors.Is(waits.err, refstore.ErrLost) {
				t.Errorf("got %+v, %v; want ErrLost", waits.res, waits.err)
			}
		}
		late := r.ask(t.Context(), func(req *executions.Request) { req.Name = "late" })
		if <-late.done; !errors.Is(late.err, refstore.ErrLost) {
			t.Errorf("asked later: got %+v, %v; want ErrLost", late.res, late.err)
		}
		r.d.Close()
	})
}

// blind is a store that at first refuses to notify of cancellations.
type blind struct {
	*mem.Store
	fails atomic.Int32 // how many more times
}

func (b *blind) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	if strings.HasSuffix(partition, "/cancel") && b.fails.Add(-1) >= 0 {
		return nil, errors.New("too many watches")
	}
	return b.Store.Watch(ctx, partition)
}

// A failure to tend a queue is reported and retried.
func TestTendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &blind{Store: mem.New()}
		store.fails.Store(3)
		var mu sync.Mutex
		var faults []string
		r, _ := newSleepingRig(t, store, nil, dispatch.Options{Fault: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, err.Error())
		}})
		r.ask(t.Context(), nil)
		q, die := r.open("another worker")
		r.q = q
		l := r.claim()
		die()
		time.Sleep(10 * time.Second)
		if j, err := r.q.Job(t.Context(), queue.DefaultQueue, l.Job().ID); err != nil || !j.Orphaned() {
			t.Errorf("the job of a worker that is gone is %s, locked by %q, %v; want an orphan", j.Status, j.LockedBy, err)
		}
		r.d.Close()
		if len(faults) != 3 || !strings.Contains(faults[0], "too many watches") {
			t.Errorf("faults: %q, want three", faults)
		}
	})
}
