package executions

import (
	"context"
	"time"

	"e3/internal/backoff"
)

// waitingTold is how long something waits for another process before that is told.
const waitingTold = time.Second

// A Wait is what a request waits for: an execution of its key that another process makes.
type Wait struct {
	Key Key
	Job string // that the execution is made for (Request.Job); "" if a process executes it without a job
}

// waits has Options.Waiting called if the wait lasts. The caller ends it with stop, which returns after Waiting has.
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
		if backoff.Wait(ctx, waitingTold) == nil {
			x.opts.Waiting(ctx, req, w)
		}
	}()
	return func() {
		cancel()
		<-told
	}
}
