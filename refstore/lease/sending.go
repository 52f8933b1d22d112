package lease

import (
	"context"
	"sync"
	"time"
)

// slack is the lead of request dates over the lease's clock beyond which that clock counts as stopped. Dates are in
// whole seconds, and a clock corrected by a server's answers is exact to half a round trip.
const slack = 10 * time.Second

// Sending returns a check to make before a request is sent: it calls [Leases.Held], and compares the lease's clock with
// the date of the signature. Each client needs its own check, as servers have clocks of their own.
//
// The clock of a virtual machine may stop while the machine is suspended from outside. Held then returns nil though the
// session is long dead. The server refuses the next request as too old, but its answer corrects the client's clock, so
// the request after it would be accepted. Therefore, if dates have run ahead of the lease's clock, the session is
// renewed before the request is sent. If the session is dead, the error is ErrLost. Other errors of the renewal decide
// nothing; the request may be retried.
func (l *Leases) Sending() func(ctx context.Context, signed time.Time) error {
	var mu sync.Mutex
	var known bool
	var most time.Duration // the smallest difference seen between a date and the lease's clock
	return func(ctx context.Context, signed time.Time) error {
		if err := l.stands(ctx); err != nil {
			return err
		}
		s := l.session.Load()
		if s == nil {
			return nil
		}
		ahead := l.ahead(signed)
		mu.Lock()
		if !known {
			most, known = s.ahead, true
		}
		most = min(most, ahead)
		late := ahead-most > slack
		mu.Unlock()
		if !late {
			return nil
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
		mu.Lock()
		most = ahead
		mu.Unlock()
		return l.stands(ctx)
	}
}

// Fence returns the session that must be alive for a write to take effect, in a store that checks this with the write; ""
// if this process has none. It waits while the session is suspended, and returns ErrLost once it is lost.
func (l *Leases) Fence(ctx context.Context) (session string, err error) {
	if err := l.stands(ctx); err != nil {
		return "", err
	}
	if s := l.session.Load(); s != nil {
		return s.name(), nil
	}
	return "", nil
}

// ahead is the difference between a date and the lease's clock, whose origin is arbitrary.
func (l *Leases) ahead(date time.Time) time.Duration {
	return time.Duration(date.UnixNano()) - l.o.Elapsed()
}

// renew returns once a renewal sent after the call has succeeded.
func (s *session) renew(ctx context.Context) error {
	s.mu.Lock()
	wanted := s.want()
	s.mu.Unlock()
	return s.wait(ctx, wanted)
}
