package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"e3/internal/backoff"
)

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is pending
	}
}

// Watch returns a channel that receives when there may be something to claim: after a notification, when a job is
// due, or when it is time to poll. It is closed when ctx ends.
func (q *Queue) Watch(ctx context.Context, queues ...string) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	var waits sync.WaitGroup
	q.index.work.note(q.o.Now()) // the caller has begun because there is or will be work
	ctx, cancel := context.WithCancel(ctx)
	for _, queue := range queues {
		err := ValidName(queue)
		var ready, delayed <-chan struct{}
		var made func() ([]string, bool)
		if err == nil {
			ready, made, err = q.notifiedOf(ctx, partition(queue, "ready"))
		}
		if err == nil {
			delayed, err = q.notified(ctx, partition(queue, "delayed"))
		}
		if err != nil {
			cancel()
			waits.Wait()
			return nil, fmt.Errorf("watch queue %.100s: %w", queue, err)
		}
		ignore := func() {}
		if q.files != nil {
			ignore = q.index.listen(queue, made)
		}
		waits.Go(func() {
			defer ignore()
			q.watch(ctx, queue, ready, delayed, out)
		})
	}
	go func() {
		<-ctx.Done()
		cancel()
		waits.Wait()
		close(out)
	}()
	return out, nil
}

// watch wakes out for one queue.
func (q *Queue) watch(ctx context.Context, queue string, ready, delayed <-chan struct{}, out chan<- struct{}) {
	for {
		t := time.NewTimer(q.index.until(queue))
		changed := false // the delayed entries have changed
		var ok bool
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case _, ok = <-ready:
		case _, ok = <-delayed:
			changed = true
		case <-t.C:
			ok = true
		}
		t.Stop()
		if !ok { // ctx has ended
			<-ctx.Done()
			return
		}
		// A pause follows each listing.
		if rest := q.index.rest(queue); rest > 0 && backoff.Wait(ctx, rest) != nil {
			return
		}
		q.index.wakeWaiter(queue, changed)
		signal(out)
	}
}

// Intervals of Tend's work without notifications.
const (
	reapPace       = time.Second
	reapPacePolled = 5 * time.Second
	repairPace     = time.Minute
	cleanPace      = 6 * time.Hour
)

// pacer is a timer with a random variation, so that processes do not all act together.
type pacer struct {
	*time.Timer
	pace time.Duration
}

func newPacer(pace time.Duration) *pacer {
	p := &pacer{pace: pace}
	p.Timer = time.NewTimer(p.next())
	return p
}

func (p *pacer) next() time.Duration { return p.pace*3/4 + rand.N(p.pace/2+1) }

// Reset starts it again once it has fired.
func (p *pacer) Reset() { p.Timer.Reset(p.next()) }
