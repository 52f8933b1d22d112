package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/refstore"
	"e3/refstore/lease"
)

const farLease = 6 * time.Second

// far is a queue as another machine sees it: processes of others are known only by their records. The end of its
// session may have no effect.
func (h *hall) far(store refstore.Store, host string) (*queue.Queue, *lease.Leases) {
	start := time.Now()
	l := lease.New(store, lease.Options{
		TTL: farLease, Owner: lease.Owner{Process: process.ID{PID: 99, StartTime: 1, Host: host, BootID: host}, Words: host},
		Clock:   func(context.Context) (time.Time, error) { return time.Now(), nil },
		Elapsed: func() time.Duration { return time.Since(start) },
		Alive:   func(process.ID) (alive, known bool) { return false, false },
	})
	h.stops = append(h.stops, func() { l.Close() })
	return queue.New(queue.Store{Store: store}, l, queue.Options{Now: time.Now}), l
}

// busy makes a machine claim a job that it does not finish.
func (h *hall) busy(store refstore.Store, i int) {
	h.Helper()
	host := fmt.Sprint("far-", i)
	h.enqueue(host, record.Policy{CPU: 1})
	q, _ := h.far(store, host)
	l, err := q.Claim(context.Background(), queue.Want{
		Queues: []string{queue.DefaultQueue}, Worker: host, Host: host, Fits: func(j *queue.Job) bool { return j.Task == host },
		NewExecution: func(string) (string, error) { return fmt.Sprintf("01890000-0000-7000-8000-%012d", i), nil },
	})
	if err != nil || l == nil {
		h.Fatalf("%s claims %v: %v", host, l, err)
	}
}

// workFar starts a worker that knows the others only by their records.
func (h *hall) workFar(store refstore.Store, o worker.Options) <-chan error {
	q, l := h.far(store, "w")
	o.Name, o.Host, o.Patience, o.Concurrency, o.Queues = "w", "w", 10*time.Second, 2, []string{queue.DefaultQueue}
	o.Report = func(e worker.Event) {
		if e.Type == worker.JobBegun {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.begun = append(h.begun, e.Job.Task)
		}
	}
	return h.run(q, l, o)
}

// An idle worker ends among any number of working ones elsewhere: it then reads most of them for the first time, and
// once more within a lease.
func TestIdleAmongManyAtWork(t *testing.T) {
	const idle = 10 * time.Minute
	for name, row := range map[string]struct {
		others int
		every  time.Duration // interval at which another one begins; 0: none does
	}{
		"few":           {others: 4},
		"many":          {others: 24},
		"more and more": {others: 16, every: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inHall(t, func(h *hall) {
				for i := range row.others {
					h.busy(h.store, i)
				}
				start, listed := time.Now(), int64(0)
				// It polls: it does not see a job that another worker enqueues and claims at once.
				ended := h.workFar(&cut{Store: h.store}, worker.Options{Idle: idle})
				time.Sleep(idle - time.Second)
				if row.every == 0 {
					listed = h.store.n.Load()
				}
				for i := row.others; ; i++ {
					wait := 2*farLease + time.Second
					if row.every > 0 {
						wait = row.every
					}
					select {
					case err := <-ended:
						if took := time.Since(start); err != nil || took < idle || took > idle+farLease {
							h.Errorf("ended with %v after %v, want nil after %v to %v", err, took, idle, idle+farLease)
						}
						if n := h.store.n.Load() - listed; row.every == 0 && n > 150 {
							h.Errorf("%d listings in the last seconds", n)
						}
						return
					case <-time.After(wait):
					}
					if row.every == 0 || time.Since(start) > idle+2*farLease {
						h.Fatalf("the worker has not ended after %v", time.Since(start))
					}
					h.busy(h.store, i)
				}
			})
		})
	}
}

// A lost worker among many is nevertheless replaced.
func TestIdleAmongManyOfWhomOneWasLost(t *testing.T) {
	inHall(t, func(h *hall) {
		const others = 16
		lostStore := &cut{Store: h.store}
		for i := range others {
			h.busy(h.store, i)
		}
		h.busy(lostStore, others)
		lostStore.off.Store(true)
		ended := h.workFar(h.store, worker.Options{Idle: time.Minute})
		select {
		case err := <-ended:
			if err != nil {
				h.Errorf("the worker ends with %v", err)
			}
		case <-time.After(12 * time.Hour): // the watched holders change every ten minutes
			h.Error("the worker does not end")
		}
		if got, want := h.order(), fmt.Sprint("far-", others); len(got) != 1 || got[0] != want {
			h.Errorf("the worker has begun %q, want %q", got, want)
		}
	})
}

// A worker that found work before it knew whether it may exit checks all sessions again once it is idle.
func TestIdleOnceMore(t *testing.T) {
	inHall(t, func(h *hall) {
		lostStore := &cut{Store: h.store}
		h.busy(h.store, 0)
		ended := h.workFar(h.store, worker.Options{Idle: time.Second})
		time.Sleep(1200 * time.Millisecond)
		h.enqueue("own", record.Policy{CPU: 2})
		time.Sleep(100 * time.Millisecond)
		h.busy(lostStore, 1) // there is no room for that here
		lostStore.off.Store(true)
		select {
		case err := <-ended:
			if err != nil {
				h.Errorf("the worker ends with %v", err)
			}
		case <-time.After(5 * time.Minute):
			h.Error("the worker does not end")
		}
		if got := h.order(); len(got) != 2 || got[1] != "far-1" {
			h.Errorf("the worker has begun %q, want its own and that of the lost one", got)
		}
	})
}

// A worker with Idle renews its session between two jobs; the idle time before its exit does not restart.
func TestRenewOfOneThatEndsWhenItIsIdle(t *testing.T) {
	const idle, renew = 10 * time.Minute, time.Hour
	for name, row := range map[string]struct {
		every    time.Duration // interval at which jobs are enqueued; 0: never
		renew    time.Duration
		want     error
		from, to time.Duration
	}{
		"jobs":    {5 * time.Minute, renew, worker.ErrRenew, renew, renew + 6*time.Minute},
		"no jobs": {0, time.Minute, nil, idle, idle + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inHall(t, func(h *hall) {
				start := time.Now()
				ended := h.workFar(h.store, worker.Options{Idle: idle, Renew: row.renew})
				for {
					wait := row.every
					if wait == 0 {
						wait = 2 * idle
					}
					select {
					case err := <-ended:
						if took := time.Since(start); !errors.Is(err, row.want) || took < row.from || took > row.to {
							h.Errorf("ended with %v after %v, want %v after %v to %v", err, took, row.want, row.from, row.to)
						}
						return
					case <-time.After(wait):
					}
					if time.Since(start) > 2*renew {
						h.Fatal("the worker has not ended")
					}
					if row.every > 0 {
						h.enqueue(fmt.Sprint("task-", time.Since(start)), record.Policy{CPU: 1})
					}
				}
			})
		})
	}
}
