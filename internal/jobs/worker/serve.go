package worker

import (
	"context"
	"errors"
	"os"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

const (
	// firstRetry and lastRetry bound the pause before another try to open the repository; it doubles.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// lostAgain is how often Lost is called while the reason stays the same.
	lostAgain = time.Minute
)

// A Server runs workers one after the other. After the loss of a lease, because the store was unreachable or this
// process was suspended, and when a session is old, the next worker begins with a new session.
type Server struct {
	// Once opens the repository, makes a worker with these options, calls begun, and runs the worker.
	Once  func(ctx context.Context, drain <-chan struct{}, o Options, begun func()) error
	Ready func()      // a worker waits for jobs: the first one, or the first after Lost
	Lost  func(error) // there is no worker for now; a retry follows

	Signals   []os.Signal   // of Serve: signals that end the worker
	OneSignal time.Duration // of Serve: signals within this time of the first count as one
}

// Run runs workers until one ends by itself or drain is closed, as in [Worker.Run]. It fails if no worker could begin,
// and if a worker was stopped: with ErrStopped, or with the cause of ctx.
func (s *Server) Run(ctx context.Context, drain <-chan struct{}, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	began, until := o.Now(), o.For
	ever, ready := false, false
	said, at := "", time.Time{} // the last call of Lost
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		select {
		case <-drain:
			if o.Report != nil {
				o.Report(Event{Type: Draining, Time: o.Now()})
			}
			return nil
		default:
		}
		if until > 0 {
			if o.For = until - o.Now().Sub(began); o.For <= 0 {
				return nil
			}
		}
		var begun time.Time
		err := s.Once(ctx, drain, o, func() {
			ever, begun, pause, said = true, o.Now(), firstRetry, ""
			if !ready {
				ready = true
				s.Ready()
			}
		})
		switch {
		case errors.Is(err, ErrRenew):
			continue
		case err == nil, errors.Is(err, ErrStopped), o.Job != "" && errors.Is(err, queue.ErrMalformed):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !ever:
			return err
		}
		ready = false
		if text := err.Error(); text != said || o.Now().Sub(at) >= lostAgain {
			said, at = text, o.Now()
			s.Lost(err)
		}
		wait := pause
		if errors.Is(err, refstore.ErrLost) && !begun.IsZero() && o.Now().Sub(begun) >= firstRetry {
			wait = 0 // the store has just answered, and commands wait to be adopted
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-drain:
			t.Stop()
			return nil
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}
