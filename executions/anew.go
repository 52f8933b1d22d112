package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/refstore"
)

// Where claims are leases, another process may find this one dead and record the end of an execution that goes on here.
// This process may be back before another has taken its workspace. Keys are content, so the result of the command is as
// good as any. The execution keeps the end that it was given, and the result is recorded under a new one, whose detail
// names the first.

// finishAnew records the end of a command whose execution another process has given up, if that is why the record
// could not be written; else the error is cause. If this process has lost its lease, nothing is recorded.
func (a *attempt) finishAnew(ctx context.Context, v verdict, res runner.Result, cause error) (Result, error) {
	for range 3 { // each time it was found dead again
		given, err := a.givenUp(ctx)
		if err != nil || given == nil {
			return Result{}, cause
		}
		now, err := a.x.Lookup(ctx, a.key)
		if err != nil {
			return Result{}, err
		}
		id, err := NewIDAfter(now.greatest)
		if err != nil {
			return Result{}, err
		}
		a.close()
		req := *a.req
		req.Attempt++
		if req.Lost != nil {
			req.Lost(a.id, ReasonLost, given.Message, given.CompletedAt, time.Time{})
		}
		if now.Hit != nil && !req.Force { // the process that gave it up has made it
			return hit(now.Hit), nil
		}
		a.begun, a.id, a.req = a.id, id, &req
		a.announced, a.version, a.claim, a.pump = false, refstore.Absent, nil, nil
		var end Result
		if end, cause = a.finish(ctx, v, res); cause == nil {
			return end, nil
		}
	}
	return Result{}, fmt.Errorf("execution %s was found dead again and again: %w", a.id, cause)
}

// givenUp returns this execution as another process has recorded its end, while this process still holds its lease, or
// has it again; nil if none has.
func (a *attempt) givenUp(ctx context.Context) (*Execution, error) {
	if a.x.leased == nil || a.req.Job.Ref != "" || a.x.leaseLoss(ctx) != nil {
		return nil, nil
	}
	rec, err := a.x.records.Get(ctx, recordKey(a.key, a.id))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := decode(a.key, rec)
	if err != nil || e.State != record.Error || !Stale(e.Message) {
		return nil, err
	}
	return e, a.x.leased.Confirm(ctx)
}

// suspended is for how long this process has had to wait for its lease so far.
func (x *Executor) suspended() time.Duration {
	if l, ok := x.lessee.(interface{ Suspended() time.Duration }); ok {
		return l.Suspended()
	}
	return 0
}

// ends is the time at which the execution ends, now that its outputs are stored. The time in which the store did not answer
// after the command's end, or in which no process had the command, is not the execution's: it may be a night.
func (a *attempt) ends() time.Time {
	end := a.x.opts.Now().Add(-a.idle)
	if a.lapse != nil {
		end = end.Add(-a.lapse())
	}
	end = end.Truncate(time.Millisecond)
	if end.Before(a.startedAt) {
		return a.startedAt
	}
	return end
}

// errOnLost ends a command whose policy does not let it outlast a lease. Its text is recorded.
var errOnLost = errors.New("the store did not answer for as long as a lease lasts, and the policy of the task has its command end then")

// killOnLost cancels a command with errOnLost when the lease is suspended, if the policy says so. For a job the
// supervisor does that.
func (a *attempt) killOnLost(cancel context.CancelCauseFunc) (stop func()) {
	o, ok := a.x.lessee.(refstore.Outlasting)
	if !ok || a.req.keeps() || a.req.Job.Identity != "" {
		return func() {}
	}
	return o.OnSuspension(func(s refstore.Suspension) {
		if !s.Over {
			cancel(errOnLost)
		}
	})
}
