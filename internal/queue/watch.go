package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"e3/refstore"
)

// pause waits, and returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting already
	}
}

// notified returns a channel that receives when a partition may have changed; nil, which never does, if the store does not tell.
func (q *Queue) notified(ctx context.Context, partition string) (<-chan struct{}, error) {
	if q.watcher == nil {
		return nil, nil
	}
	return q.watcher.Watch(ctx, partition)
}

// Watch returns a channel that receives when there may be something to claim: the store has told so, a time has come, or it is time to look. It is closed when ctx ends.
func (q *Queue) Watch(ctx context.Context, queues ...string) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	var waits sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	for _, queue := range queues {
		err := ValidName(queue)
		var ready, delayed <-chan struct{}
		if err == nil {
			ready, err = q.notified(ctx, partition(queue, "ready"))
		}
		if err == nil {
			delayed, err = q.notified(ctx, partition(queue, "delayed"))
		}
		if err != nil {
			cancel()
			waits.Wait()
			return nil, fmt.Errorf("watch queue %.100s: %w", queue, err)
		}
		waits.Go(func() { q.watch(ctx, queue, ready, delayed, out) })
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
	pace, progress := q.o.Pace, uint64(0)
	for {
		wait, now := q.until(queue, pace)
		if pace = min(pace*3/2, q.o.MostPace); now != progress { // there is work: the next may come soon
			pace, progress = q.o.Pace, now
		}
		t := time.NewTimer(wait)
		changed := false // what is delayed
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
		// Each listing is answered with a rest.
		if rest := q.rest(queue); rest > 0 && !pause(ctx, rest) {
			return
		}
		q.mu.Lock()
		p := q.page(queue)
		p.woken = true
		if p.dueBy(q.o.Now()) { // that is told once: who claims nothing, for whatever reason, does not list either
			p.due, changed = time.Time{}, true
		}
		if changed {
			p.looked = time.Time{}
		}
		q.mu.Unlock()
		signal(out)
	}
}

// until returns how long there is nothing to be done but to wait: to the next time that is known, or for a pace.
func (q *Queue) until(queue string, pace time.Duration) (wait time.Duration, progress uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = pace*3/4 + rand.N(pace/2+1)
	if q.watcher != nil {
		wait = q.o.MostPace
	}
	if p := q.page(queue); !p.due.IsZero() {
		wait = min(wait, max(p.due.Sub(q.o.Now()), q.o.Pace/100))
	}
	return wait, q.progress
}

// rest is how long a wake-up is held back, so that listing takes a part of the time only.
func (q *Queue) rest(queue string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.page(queue)
	if p.listed.IsZero() {
		return 0
	}
	return min(restraint/2*p.cost, maxAge) - q.o.Now().Sub(p.listed)
}

// How often Tend does what it does, where nothing tells that it is time.
const (
	reapPace       = time.Second
	reapPacePolled = 5 * time.Second
	repairPace     = time.Minute
	cleanPace      = 6 * time.Hour
)

// Tend does what everybody who uses queues owes them, until ctx ends, or the session is lost (refstore.ErrLost): it makes orphans of the jobs of lost workers, makes good what
// crashes have left, removes what has finished long ago, and tells leases of this process that their jobs are to end. At the end, if this process has no
// jobs then, nobody has to look after it any more. fault is told of what has failed and will be tried again.
func (q *Queue) Tend(ctx context.Context, queues []string, fault func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer q.leave(ctx)
	told, err := q.toldToCancel(ctx, queues)
	if err != nil {
		return err
	}
	reap := reapPace
	if q.watcher == nil {
		reap = reapPacePolled
	}
	reaps, looks, repairs := newPacer(reap), newPacer(q.o.MostPace), newPacer(repairPace)
	defer reaps.Stop()
	defer looks.Stop()
	defer repairs.Stop()
	do := func(f func(queue string) error) {
		for _, queue := range queues {
			if err := f(queue); err != nil && ctx.Err() == nil {
				fault(err)
			}
		}
	}
	do(func(queue string) error { return errors.Join(q.Reap(ctx, queue), q.Repair(ctx, queue)) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.members.Lost():
			return q.lost(ctx)
		case <-told:
			do(func(queue string) error { return q.cancels(ctx, queue) })
		case <-looks.C:
			do(func(queue string) error { return q.cancels(ctx, queue) })
			looks.Reset()
		case <-reaps.C:
			do(func(queue string) error { return q.Reap(ctx, queue) })
			reaps.Reset()
		case <-repairs.C:
			do(func(queue string) error { return q.upkeep(ctx, queue) })
			repairs.Reset()
		}
	}
}

// FollowCancels does of [Queue.Tend] what this process's own jobs need, and no more, where others tend the queues: it tells leases of this process, of
// whichever queue, that their jobs are to end; in these queues at once, where the store tells. It ends as Tend does.
func (q *Queue) FollowCancels(ctx context.Context, queues []string, fault func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer q.leave(ctx)
	told, err := q.toldToCancel(ctx, queues)
	if err != nil {
		return err
	}
	looks := newPacer(q.o.MostPace)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.members.Lost():
			return q.lost(ctx)
		case <-told:
		case <-looks.C:
			looks.Reset()
		}
		if err := q.ownCancels(ctx); err != nil && ctx.Err() == nil {
			fault(err)
		}
	}
}

// lost is why the session is.
func (q *Queue) lost(ctx context.Context) error {
	_, err := q.members.Session(ctx)
	if err == nil || !errors.Is(err, refstore.ErrLost) {
		err = errors.Join(refstore.ErrLost, err)
	}
	return err
}

// toldToCancel returns a channel that receives when somebody may want a job of these queues to end; it never does if the store does not tell.
func (q *Queue) toldToCancel(ctx context.Context, queues []string) (<-chan struct{}, error) {
	told := make(chan struct{}, 1)
	for _, queue := range queues {
		if err := ValidName(queue); err != nil {
			return nil, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
		}
		c, err := q.notified(ctx, partition(queue, "cancel"))
		if err != nil {
			return nil, fmt.Errorf("watch queue %s: %w", queue, err)
		}
		if c != nil {
			go func() {
				for range c {
					signal(told)
				}
			}()
		}
	}
	return told, nil
}

// upkeep repairs and cleans a queue, if that is on this process.
func (q *Queue) upkeep(ctx context.Context, queue string) error {
	mine, err := q.turn(ctx, queue, "repair", repairPace)
	if err == nil && mine {
		err = q.Repair(ctx, queue)
	}
	old, cleanErr := q.turn(ctx, queue, "clean", cleanPace)
	if cleanErr == nil && old {
		_, cleanErr = q.clean(ctx, queue, q.o.Now().Add(-q.o.Keep))
	}
	return errors.Join(err, cleanErr)
}

// pacer is a timer that goes off after a time that differs a little each time, so that not all do the same together.
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

// Reset starts it again once it has gone off.
func (p *pacer) Reset() { p.Timer.Reset(p.next()) }
