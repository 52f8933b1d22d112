package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/refstore"
)

// tardy is an executor whose commands take some time to end.
type tardy struct {
	*hall
	ends time.Duration
}

func (x tardy) Make(ctx context.Context, _ *executions.Request, id string) (executions.Result, error) {
	<-ctx.Done()
	time.Sleep(x.ends)
	return executions.Result{ExecutionID: id}, context.Cause(ctx)
}

// After the loss of its lease a worker waits for its commands to end, and does nothing else.
func TestAfterTheLossItWaits(t *testing.T) {
	inHall(t, func(h *hall) {
		const most = 1000
		store := &cut{Store: h.store}
		q, l := h.far(store, "w")
		h.enqueue("task", record.Policy{CPU: 1})
		var lost atomic.Bool
		var looks atomic.Int64
		begun := make(chan struct{}, 1)
		w := worker.New(worker.Stores{
			Queue: q, Executor: tardy{h, time.Minute}, Supervisor: noCommands{}, Session: l, Sweep: func(context.Context) error { return nil },
		}, worker.Options{
			Name: "w", Host: "w", Concurrency: 2, Queues: []string{queue.DefaultQueue},
			Now: func() time.Time {
				if lost.Load() && looks.Add(1) > most {
					time.Sleep(time.Millisecond) // time stands still in a bubble while any goroutine is busy
				}
				return time.Now()
			},
			Report: func(e worker.Event) {
				if e.Type == worker.JobBegun {
					begun <- struct{}{}
				}
			},
		})
		done := make(chan error, 1)
		go func() { done <- w.Run(context.Background(), nil) }()
		<-begun
		store.off.Store(true)
		<-l.Lost()
		lost.Store(true)
		if err := <-done; !errors.Is(err, refstore.ErrLost) {
			t.Errorf("ended with %v, want ErrLost", err)
		}
		if n := looks.Load(); n > most {
			t.Errorf("the worker has looked at the clock %d times in the minute that the command took to end", n)
		}
	})
}
