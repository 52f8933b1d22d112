package refstore

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ErrReadOnly reports that this process may not write to a store, so that it can have no session and protect nothing.
// A process that only reads may go on without.
var ErrReadOnly = errors.New("the repository cannot be written")

// Unprotected reports whether an error of SessionBegan or Protect only says that this process can write nothing at the moment:
// it may not, or the disk is full. A process that only reads may go on without protection. If a collection beside it removes
// what it reads, that is then missing, never wrong.
func Unprotected(err error) bool {
	return errors.Is(err, ErrReadOnly) || DiskFull(err)
}

// DiskFull reports whether an error says that there is no space, or that the user's quota is used up.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Sessions is an optional capability of a store: it lists the processes at work and when they began, so that a
// collector can tell garbage from objects that a process is about to name. A session begins before its first object
// is put and ends with its process, however that ends. All times are by the store's own clock, the one that dates its
// objects.
//
// The rules that keep needed objects (doc/design.md, "Garbage"): an object that was put or refreshed since the oldest
// live session began is spared; what a session protects is a root. A collector asks for the sessions' beginnings
// before it reads any reference, and for what they protect after it has read all others. A process that protects a
// name checks afterwards that the place from which it read the name still holds it.
type Sessions interface {
	// SessionBegan returns when this process's session began, and begins it if need be. ErrReadOnly.
	SessionBegan(ctx context.Context) (time.Time, error)

	// Protect marks names as in use until release is called or the process ends. They mean nothing to the store, and
	// have one line each. ErrInvalid, ErrReadOnly.
	Protect(ctx context.Context, names []string) (release func(), err error)

	// LiveSessions returns the sessions of all live processes, this one's included if it has one.
	LiveSessions(ctx context.Context) ([]SessionInfo, error)
}

// SessionInfo describes a live session.
type SessionInfo struct {
	Began     time.Time
	Protected []string
}

// SessionClock is an optional capability of sessions that are on several machines: the clock by which they begin.
// Whatever is compared with a session's beginning must be dated by it.
type SessionClock interface {
	// SessionNow returns the time, to about a second.
	SessionNow(ctx context.Context) (time.Time, error)
}

// Barrier is an optional capability of sessions whose processes no kernel here knows, over objects whose time of last
// use cannot be changed. Before it collects, a collector has every live session publish what it relies on; from then
// on both agree about each name (doc/design.md, "A repository that a team shares").
type Barrier interface {
	// Quiesce tells all live sessions that a collection begins and waits until each has published, in its
	// [SessionInfo.Protected], what it relies on. A session that died without ending blocks the collection until none
	// of its requests can arrive any more: an [*UnsettledError]. Names that are protected or relied on from then on
	// count as protected until the end, also those of sessions that have ended. end ends the collection; if the
	// collector dies, the collection ends with its lease.
	Quiesce(ctx context.Context) (end func(), err error)
}

// UnsettledError says that a collection has to wait for requests of a lost process that may still arrive.
type UnsettledError struct {
	Session string // describes the process
	Wait    time.Duration
	PID     int // of a process on this host that lost its lease and still exists; else 0
}

func (e *UnsettledError) Error() string {
	if e.PID != 0 {
		return fmt.Sprintf("%s (process %d here) was lost, but it is still there: it is stopped, or hangs, and may be about to write; let it go on or kill it, then try again", e.Session, e.PID)
	}
	return fmt.Sprintf("%s was lost a moment ago, and what it sent may still arrive; try again in %v", e.Session, e.Wait.Round(time.Second))
}
