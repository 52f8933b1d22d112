package worker

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"time"
)

// idleEnd is how long a worker without a job has to end after it was told to. Then it ends as if it were killed, even
// if a store or a file system does not answer.
const idleEnd = 5 * time.Second

// ErrUnanswered ends a worker that was told to end, has no job, and waits for the repository.
var ErrUnanswered = errors.New("ending without an answer from the repository")

// Serve is Run until a signal. The first one ends the worker once its jobs have ended, the second stops these too, and a
// third kills this process. A worker for one job is stopped by the first. The end of ctx counts as a signal.
func (s *Server) Serve(ctx context.Context, o Options) error {
	drain, stop, end := s.requests(ctx, o.Job != "")
	defer end()
	told := drain
	if o.Job != "" {
		drain = nil
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(stop, drain, o) }()
	select {
	case err := <-ended:
		return err
	case <-idleSince(told, o.Metrics.Running):
		return ErrUnanswered
	}
}

// requests tells of the first request to end by closing drain, and of the second by ending the context; with atOnce of
// the first, too. Requests right after the first count as the first.
func (s *Server) requests(ctx context.Context, atOnce bool) (drain <-chan struct{}, stop context.Context, end func()) {
	drained, ended := make(chan struct{}), make(chan struct{})
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, s.Signals...)
	go func() {
		defer signal.Stop(signals)
		var first time.Time
		for done := ctx.Done(); ; {
			select {
			case <-signals:
			case <-done:
				done = nil
			case <-ended:
				return
			}
			again := !first.IsZero()
			if again && time.Since(first) < s.OneSignal {
				continue
			}
			if !again {
				first = time.Now()
				close(drained)
			}
			if again || atOnce {
				cancel(ErrStopped)
				return
			}
		}
	}()
	return drained, stop, func() {
		close(ended)
		cancel(nil)
	}
}

// idleSince is closed when, after told, nothing has run for idleEnd.
func idleSince(told <-chan struct{}, running func() int64) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		<-told
		for last := time.Now(); time.Since(last) < idleEnd; time.Sleep(idleEnd / 50) {
			if running() > 0 {
				last = time.Now()
			}
		}
		close(over)
	}()
	return over
}
