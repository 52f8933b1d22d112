package refstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrReadOnly reports that this process may not write to a store, so that it can have no session and protect nothing.
// Whoever only reads may go on without.
var ErrReadOnly = errors.New("the repository cannot be written")

// Sessions is an optional capability of a store: it says who is at work and since when, so that a collector can tell
// garbage from what somebody is about to name. A session begins before its first object is put and ends with its
// process, however that ends. All times are the store's own clock's, the one that dates its objects.
//
// The rules that keep what is needed (doc/design.md, "Garbage"): an object that was put or refreshed since the oldest
// live session began is spared; what a session protects is a root. A collector asks for the sessions' beginnings before
// it reads any reference, and for what they protect after it has read all others. Whoever protects something looks
// again, afterwards, whether what it took the name from still holds it.
type Sessions interface {
	// SessionBegan returns when this process's session began, and begins it if need be. ErrReadOnly.
	SessionBegan(ctx context.Context) (time.Time, error)

	// Protect makes names known as in use until release is called or the process ends. They mean nothing to the store,
	// and have one line each. ErrInvalid, ErrReadOnly.
	Protect(ctx context.Context, names []string) (release func(), err error)

	// LiveSessions returns the sessions of all live processes, this one's included if it has one.
	LiveSessions(ctx context.Context) ([]SessionInfo, error)
}

// SessionInfo describes a live session.
type SessionInfo struct {
	Began     time.Time
	Protected []string
}

// SessionClock is an optional capability of sessions that are on several machines: the clock by which they begin. What is compared with
// that, by anybody, is dated by it.
type SessionClock interface {
	// SessionNow returns the time, to about a second.
	SessionNow(ctx context.Context) (time.Time, error)
}

// Barrier is an optional capability of sessions whose processes no kernel here knows, over objects without a time of last use
// that can be changed: before it collects, a collector has every live session make known what it relies on, and from then on
// both agree about each name (doc/design.md, "A repository that a team shares").
type Barrier interface {
	// Quiesce tells all live sessions that a collection begins and waits until each has made known, in its
	// [SessionInfo.Protected], what it relies on. A session that went without a word stands in the way until nothing that it
	// may have sent can arrive any more: an [*UnsettledError]. What was protected since, or is relied on, counts as protected
	// until the end, also of sessions that have ended. end says that the collection is over; one whose collector died
	// is over when its lease is.
	Quiesce(ctx context.Context) (end func(), err error)
}

// UnsettledError says that a collection has to wait for what a lost process may have sent.
type UnsettledError struct {
	Session string // the process, in words
	Wait    time.Duration
	PID     int // of a process on this host that lost its lease and is still there; else 0
}

func (e *UnsettledError) Error() string {
	if e.PID != 0 {
		return fmt.Sprintf("%s (process %d here) was lost, but it is still there: it is stopped, or hangs, and may be about to write; let it go on or kill it, then try again", e.Session, e.PID)
	}
	return fmt.Sprintf("%s was lost a moment ago, and what it sent may still arrive; try again in %v", e.Session, e.Wait.Round(time.Second))
}
