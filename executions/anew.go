package executions

import (
	"context"
	"fmt"
	"time"

	"e3/internal/host/runner"
)

// Where claims are leases, another process may find this one dead and record the end of an execution that goes on here.
// This process may be back before another has taken its workspace. Keys are content, so the result of the command is as
// good as any. The execution keeps the end that it was given, and the result is recorded under a new one, whose detail
// names the first.

// recordAnew records the end of a command whose execution another process has given up, if that is why the record
// could not be written; else the error is cause. If this process has lost its lease, nothing is recorded.
func (a *attempt) recordAnew(ctx context.Context, v verdict, res runner.Result, cause error) (Result, error) {
	for range 3 { // each time it was found dead again
		given, err := a.claim.givenUp(ctx)
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
		a.claim.abandon()
		a.logs.restart()
		req := *a.req
		req.Attempt++
		if req.Lost != nil {
			req.Lost(a.id, ReasonLost, given.Message, given.CompletedAt, time.Time{})
		}
		if now.Hit != nil && !req.Force { // the process that gave it up has made it
			return hit(now.Hit), nil
		}
		a.begun, a.id, a.req = a.id, id, &req
		var end Result
		if end, cause = a.record(ctx, v, res); cause == nil {
			return end, nil
		}
	}
	return Result{}, fmt.Errorf("execution %s was found dead again and again: %w", a.id, cause)
}

// suspended is for how long this process has had to wait for its lease so far.
func (x *Executor) suspended() time.Duration {
	if l, ok := x.lessee.(interface{ Suspended() time.Duration }); ok {
		return l.Suspended()
	}
	return 0
}
