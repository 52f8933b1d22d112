package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/refstore"
	"e3/refstore/lease"
)

// cut is a store that accepts no more writes of a lost worker.
type cut struct {
	refstore.Store
	off atomic.Bool
}

func (c *cut) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if c.off.Load() {
		return "", errors.New("cut off")
	}
	return c.Store.Put(ctx, r)
}

// A worker with Idle stays for the job of a possibly lost worker, until it is known whether that was lost; but not for
// a job that it could not take.
func TestIdleIsNotBeforeTheLostAreReplaced(t *testing.T) {
	for name, row := range map[string]struct {
		policy record.Policy
		lost   bool
		begun  int
	}{
		"lost":             {record.Policy{CPU: 1}, true, 1},
		"alive":            {record.Policy{CPU: 1}, false, 0},
		"lost, of another": {record.Policy{CPU: 1, Labels: []string{"gpu"}}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inHall(t, func(h *hall) {
				far := &cut{Store: h.store}
				start := time.Now()
				session := lease.New(far, lease.Options{
					TTL: 6 * time.Second, Owner: lease.Owner{Process: process.ID{PID: 99, StartTime: 1, Host: "far", BootID: "far"}, Words: "far"},
					Clock:   func(context.Context) (time.Time, error) { return time.Now(), nil },
					Elapsed: func() time.Duration { return time.Since(start) },
				})
				defer session.Close() // without effect, if it was lost
				h.enqueue("task", row.policy)
				theirs := queue.New(queue.Store{Store: far}, session, queue.Options{Now: time.Now})
				l, err := theirs.Claim(context.Background(), queue.Want{
					Queues: []string{queue.DefaultQueue}, Worker: "far", Host: "far", Fits: func(*queue.Job) bool { return true },
					NewExecution: func(string) (string, error) { return "01890000-0000-7000-8000-000000000001", nil },
				})
				if err != nil || l == nil {
					t.Fatalf("the other worker claims %v: %v", l, err)
				}
				far.off.Store(row.lost)
				ended := h.work("w", worker.Options{Idle: 10 * time.Second})
				select {
				case err := <-ended:
					if err != nil {
						t.Errorf("the worker ends with %v", err)
					}
				case <-time.After(5 * time.Minute):
					t.Error("the worker does not end")
				}
				if got := h.order(); len(got) != row.begun {
					t.Errorf("the worker has begun %q, want %d jobs", got, row.begun)
				}
			})
		})
	}
}
