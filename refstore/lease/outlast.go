package lease

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"e3/refstore"
)

// A session that could not be renewed in time is suspended, if Outlast has allowed it: until a renewal succeeds, the
// process does not rely on its holds. A renewal is a compare-and-swap of the session's record, and a process that takes
// over its holds has marked that record before. So if the renewal succeeds, nothing was taken over, and the session
// continues as if renewed in time. If the record is marked, the session is lost.
type suspension struct {
	failure atomic.Pointer[error] // error of the last renewal; nil if it succeeded
	elapsed func() time.Duration  // Options.Elapsed

	mu      sync.Mutex
	outlast time.Duration // longest suspension of a session; 0: none
	on      bool
	dead    bool          // the session's record is marked dead, or gone, and no other was begun
	since   time.Duration // time at which the last renewal before the suspension was sent, by Options.Elapsed
	total   time.Duration // total time of the past suspensions
	done    chan struct{} // closed at the end of the suspension; nil without one
	next    int
	tell    map[int]func(refstore.Suspension)
	news    []refstore.Suspension // suspensions and resumptions to be reported
	teller  bool                  // a goroutine is reporting
	telling sync.Mutex            // held during calls of tell
}

// Outlast implements [refstore.Outlasting].
func (l *Leases) Outlast(most time.Duration) {
	l.suspension.mu.Lock()
	l.suspension.outlast = most
	l.suspension.mu.Unlock()
	_ = l.Held() // the suspension may have become final
}

// OnSuspension implements [refstore.Outlasting].
func (p *suspension) OnSuspension(tell func(refstore.Suspension)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.next
	p.next++
	if p.tell == nil {
		p.tell = map[int]func(refstore.Suspension){}
	}
	p.tell[id] = tell
	return func() {
		p.mu.Lock()
		delete(p.tell, id)
		p.mu.Unlock()
		p.telling.Lock() // so that no call is in progress when stop returns
		defer p.telling.Unlock()
	}
}

// suspend begins a suspension of a session that was last renewed at the given time, late ago. It reports whether the
// session may be suspended for so long. limit is the delay of a renewal that is no suspension yet. With dead, the
// session has to begin anew.
func (p *suspension) suspend(renewed, late, limit time.Duration, dead bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late > limit+p.outlast || dead && p.outlast == 0 {
		return false
	}
	p.dead = p.dead || dead
	if !p.on {
		p.on, p.since, p.done = true, renewed, make(chan struct{})
		slog.Debug("suspended", "topic", "leases", "after", late)
		p.announce(refstore.Suspension{For: late, Err: p.unrenewed()})
	}
	return true
}

// resume ends a suspension after a renewal that was sent at the given time.
func (p *suspension) resume(sent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && !p.dead {
		p.on = false
		p.total += p.elapsed() - p.since
		close(p.done)
		slog.Debug("resumed", "topic", "leases", "after", sent-p.since)
		p.announce(refstore.Suspension{Over: true, For: sent - p.since})
	}
}

// Suspended returns the total time of this process's suspensions, with the current one until now.
func (p *suspension) Suspended() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		return p.total + p.elapsed() - p.since
	}
	return p.total
}

// announce reports a suspension asynchronously. The caller holds mu.
func (p *suspension) announce(s refstore.Suspension) {
	if p.news = append(p.news, s); p.teller {
		return
	}
	p.teller = true
	go func() {
		for {
			p.telling.Lock()
			p.mu.Lock()
			if p.teller = len(p.news) > 0; !p.teller {
				p.mu.Unlock()
				p.telling.Unlock()
				return
			}
			s := p.news[0]
			p.news = p.news[1:]
			tell := slices.Collect(maps.Values(p.tell))
			p.mu.Unlock()
			for _, f := range tell {
				f(s)
			}
			p.telling.Unlock()
		}
	}()
}

// buried reports whether the session has to begin anew.
func (p *suspension) buried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on && p.dead
}

// disinter says that the session has a new record. It is suspended until it has its holds again.
func disinter(p *suspension) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = false
}

// suspended reports whether the session is suspended.
func (p *suspension) suspended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

// unrenewed is the error of the last renewal, nil if it succeeded.
func (p *suspension) unrenewed() error {
	if failure := p.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// stands returns nil once this process is sure that its session is valid: at once unless it is suspended. If the
// session is lost, the error is ErrLost. If ctx ends first, the error wraps [refstore.ErrSuspended].
func (l *Leases) stands(ctx context.Context) error {
	for {
		err := l.Held()
		if err == nil || l.final() != nil {
			return err
		}
		l.suspension.mu.Lock()
		done := l.suspension.done
		on := l.suspension.on
		l.suspension.mu.Unlock()
		if !on {
			continue
		}
		select {
		case <-done:
		case <-l.lost:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// final is the reason why the session can no longer continue; nil while it is valid or suspended.
func (l *Leases) final() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usable()
}
