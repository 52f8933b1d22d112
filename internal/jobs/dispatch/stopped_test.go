package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/mem"
)

// A worker that its cluster's scheduler has stopped gives its job back, and another one begins it. The fate of the
// first execution is told as it is on record, whether the job says that there was one, or not, as after many others.
func TestStoppedAsOnRecord(t *testing.T) {
	for name, giveBack := range map[string]func(context.Context, *queue.Lease) error{
		"the job says so": func(ctx context.Context, l *queue.Lease) error { return l.Revoke(ctx, "ann@node was stopped") },
		"it does not":     func(ctx context.Context, l *queue.Lease) error { return l.Release(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, dispatch.Options{})
			var reasons []executions.Reason
			a := r.ask(t.Context(), func(req *executions.Request) {
				lost := req.Lost
				req.Lost = func(id string, reason executions.Reason, message string, at, again time.Time) {
					reasons = append(reasons, reason)
					lost(id, reason, message, at, again)
				}
			})
			l := r.claim()
			a.wait("claimed")
			r.settler.put(executions.Result{
				ExecutionID: l.Job().Execution, State: record.Error, Reason: executions.ReasonCancelled, Message: "ann@node was stopped by the cluster's scheduler",
				EndedAt: time.Now(),
			})
			r.must(giveBack(t.Context(), l))
			l = r.claim()
			r.must(l.Finish(t.Context(), success(l.Job().Execution)))
			a.end("claimed by worker", "lost: ann@node was stopped by the cluster's scheduler", "claimed by worker", "started")
			if len(reasons) != 1 || reasons[0] != executions.ReasonCancelled {
				t.Errorf("the reasons are %q, want that it was cancelled", reasons)
			}
		})
	}
}

// A cancelled run that waits no longer for a job knows which execution goes on, also if it learns only then of its claim.
func TestClaimSeenWhileCancelled(t *testing.T) {
	r := newRig(t, dispatch.Options{Patience: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	a := r.ask(ctx, nil)
	r.claim()
	cancel()
	a.end("claimed by worker")
}

// answering is a store that answers a write of a job only when it may, or when its caller waits no longer.
type answering struct {
	refstore.Store
	made   chan struct{} // closed when a job is written
	answer chan struct{}
}

func (s *answering) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	v, err := s.Store.Put(context.WithoutCancel(ctx), r)
	if !strings.HasSuffix(r.Key.Partition, "/jobs") {
		return v, err
	}
	select {
	case <-s.made:
		return v, err
	default:
		close(s.made)
	}
	select {
	case <-s.answer:
		return v, err
	case <-ctx.Done():
		return refstore.Absent, ctx.Err()
	}
}

// A run may be cancelled while the store is making its job: the job is cancelled, too.
func TestCancelledWhileEnqueuing(t *testing.T) { synctest.Test(t, cancelledWhileEnqueuing) }

func cancelledWhileEnqueuing(t *testing.T) {
	s := &answering{Store: mem.New(), made: make(chan struct{}), answer: make(chan struct{})}
	r := newRigOn(t, s, dispatch.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	a := r.ask(ctx, nil)
	<-s.made
	id := r.queued()
	cancel()
	synctest.Wait()
	close(s.answer)
	<-a.done
	if !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %+v, %v; want that it is cancelled", a.res, a.err)
	}
	if j, err := r.q.Job(t.Context(), queue.DefaultQueue, id); err != nil || j.Status != queue.Cancelled {
		t.Errorf("the job is %s, %v; want it cancelled", j.Status, err)
	}
}

// A worker that gives a job back before it has begun is told of, whether the run sees the job wait or only its next claim.
func TestReleased(t *testing.T) {
	for _, seen := range []bool{true, false} {
		r := newRig(t, dispatch.Options{})
		a := r.ask(t.Context(), func(req *executions.Request) {
			req.Released = func(string, time.Time) { req.Lost("", "", "released", time.Time{}, time.Time{}) }
		})
		l := r.claim()
		a.wait("claimed")
		r.must(l.Release(t.Context()))
		if seen {
			a.wait("lost: released")
		}
		l = r.claim()
		r.must(l.Finish(t.Context(), success(l.Job().Execution)))
		a.end("claimed by worker", "lost: released", "claimed by worker", "started")
	}
}

// A command that outlived its worker is told of in order, whether the run sees each change of the job or only the last one,
// and its start although its first worker died before that was on record.
func TestAdoptionInOrder(t *testing.T) {
	for _, seen := range []bool{true, false} {
		r := newRig(t, dispatch.Options{})
		first, die := r.open("first")
		a := r.ask(t.Context(), func(req *executions.Request) {
			claimed, started := req.Claimed, req.Started
			last := time.Time{}
			ordered := func(at time.Time) {
				if at.Before(last) {
					t.Errorf("told of %v after %v", at, last)
				}
				last = at
			}
			req.Claimed = func(id, worker string, at time.Time) { ordered(at); claimed(id, worker, at) }
			req.Started = func(id string, at time.Time) { ordered(at); started(id, at) }
			req.Adopted = func(id, worker string, at time.Time) { ordered(at); req.Lost(id, "", worker+" adopts it", at, at) }
		})
		id := r.queued()
		as := queue.Want{Worker: "first", NewExecution: executions.NewIDAfter}
		l, err := first.Only(t.Context(), queue.DefaultQueue, id, as)
		r.must(err)
		began := l.Job().Claimed
		if seen {
			a.wait("claimed by first")
		}
		die()
		as.Worker, as.Began = "second", began.Time()
		for l = nil; l == nil; { // until the first one is known to be lost
			l, err = r.q.Only(t.Context(), queue.DefaultQueue, id, as)
			r.must(err)
		}
		if seen {
			a.wait("lost: second adopts it")
		}
		r.must(l.Finish(t.Context(), success(l.Job().Execution)))
		a.end("claimed by first", "started", "lost: second adopts it")
	}
}
