package lease

import (
	"context"
	"sync"
	"time"
)

// slack is how far the dates of requests may run ahead of the lease's clock before that is taken to have stood still: they are in whole
// seconds, and who corrects his clock by a server's answers knows it no better than half of what an answer took.
const slack = 10 * time.Second

// Sending returns what says whether a request may be sent that has been signed as of a date: [Leases.Held], and the date. It is for the
// requests of one client, as servers have clocks of their own.
//
// The clock of a machine that is suspended from outside, as virtual ones are, may stand still meanwhile. Held says yes then though the
// session has long been dead, and what is signed by the machine's time is refused by the server as too old; but the answer tells a client
// what time it is, and what it signs next would be taken. So where dates have run ahead of the lease's clock, the session is renewed before
// the request is sent: ErrLost, if it is dead. Other failures of that leave it open; the request may be tried again.
func (l *Leases) Sending() func(ctx context.Context, signed time.Time) error {
	var mu sync.Mutex
	var known bool
	var most time.Duration // that dates may be ahead of the lease's clock; what goes back, goes back for good
	return func(ctx context.Context, signed time.Time) error {
		if err := l.Held(); err != nil {
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
		return l.Held()
	}
}

// ahead is how far a date is ahead of the lease's clock, whose beginning means nothing.
func (l *Leases) ahead(date time.Time) time.Duration {
	return time.Duration(date.UnixNano()) - l.o.Elapsed()
}

// renew returns once a renewal has succeeded that was sent after the call.
func (s *session) renew(ctx context.Context) error {
	s.mu.Lock()
	wanted := s.want()
	s.mu.Unlock()
	return s.wait(ctx, wanted)
}
