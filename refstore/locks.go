package refstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClaimed reports a claim that another holder has.
	ErrClaimed = errors.New("claimed by another process")
	// ErrLost reports that this process could not renew its lease in time: other processes may own what it held.
	ErrLost = errors.New("the lease was lost")
	// ErrSuspended reports that this process could not renew its lease in time, and tries on: what it holds is its own
	// again once a renewal succeeds, unless it is lost by then. See [Outlasting].
	ErrSuspended = errors.New("the lease could not be renewed for now")
)

// Mode says which holders may share a lock.
type Mode int

const (
	Exclusive Mode = iota // one holder
	Shared                // any number of holders, none of them exclusive
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// LockedError says that a lock is held, and by which process as far as is known.
type LockedError struct {
	Name   string
	Holder []byte // the holder's text; empty if it is not known, and an earlier holder's while the text is being written
	// Pending is how long it may take, at most, until it is known whether the holder lives; 0 if it does.
	Pending time.Duration
}

func (e *LockedError) Error() string {
	if len(e.Holder) == 0 {
		return fmt.Sprintf("lock %q is held by another process", e.Name)
	}
	return fmt.Sprintf("lock %q is held by %.200q", e.Name, e.Holder)
}

// Locker is an optional capability of a store: locks and claims that end with their holder's process, however it
// ended. Within a host the kernel releases them at once. Across hosts they are leases (see [Leased]): a holder that
// was not renewed for one lease is dead, for good and for all its locks and claims.
type Locker interface {
	// TryLock takes the named lock or returns a [*LockedError] at once. holder describes the caller for others to
	// read; a later shared holder may replace it.
	TryLock(ctx context.Context, name string, mode Mode, holder []byte) (Lock, error)

	// Holder returns whether the named lock is held, and its holder's text. It takes no lock.
	Holder(ctx context.Context, name string) (holder []byte, held bool, err error)

	// TryClaim takes the exclusive claim on a key or returns [ErrClaimed] at once. It is meant for thousands of
	// claims a second. A backend may let two keys share one claim if that is as rare as a collision of 63 random
	// bits. holder is for [Lock.Previous]; it is ignored where the kernel keeps claims.
	TryClaim(ctx context.Context, key [32]byte, holder []byte) (Lock, error)
}

// Lock is a held lock or claim.
type Lock interface {
	// Unlock releases it. Further calls do nothing.
	Unlock() error
	// Previous is the text of the holder from which this was taken because its lease ran out, nil if it was free.
	// That process may wake and continue a write: the new holder first makes sure that such writes fail. If several
	// holders died since the last release, Previous has all their texts, the latest first, with a line feed between;
	// of a lock no more than the latest 64 KiB.
	Previous() []byte
}

// Lapsing is an additional capability of a [Lock]: its holder may have been found dead, and have taken it again before
// another process did.
type Lapsing interface {
	Lock
	// Lapsed reports whether other processes may have found the lock free since it was taken.
	Lapsed() bool
}

// Lessee is an additional capability of a store whose use depends on renewing a lease: its locks and claims are
// leases (then it is [Leased]), or only the session that keeps stored objects from collections is.
type Lessee interface {
	// Lost is closed once this process cannot be sure any more that what it holds is its own: it has not renewed in
	// time, by its own clock, or was told. It must then stop. A process that held nothing yet loses nothing.
	Lost() <-chan struct{}

	// Held returns [ErrLost] from that moment on, even before a goroutine had a turn to close Lost. It reads only the
	// clock. While the lease is suspended, the error is [ErrSuspended].
	Held() error
}

// Outlasting is an additional capability of a Lessee: its lease may outlast a store that does not answer, or a sleep
// of this process. It is suspended then, calls that rely on it wait, and it is lost only if another process has found
// this one dead.
type Outlasting interface {
	Lessee

	// Outlast says for how long the lease may be suspended from now on; 0, as at first, not at all.
	Outlast(most time.Duration)

	// OnSuspension has tell called when the lease is suspended, and when it goes on. Calls come one at a time, and none
	// after stop has returned.
	OnSuspension(tell func(Suspension)) (stop func())
}

// Suspension says that a lease is suspended, or that it goes on.
type Suspension struct {
	Over bool
	For  time.Duration // since the last renewal
	Err  error         // why the last renewal failed; nil: unknown, or it is over
}

// Leased is an additional capability of a Locker whose locks and claims are leases.
type Leased interface {
	Locker
	Lessee

	// Confirm asks the store whether this process still owns what it holds. ErrLost.
	Confirm(ctx context.Context) error

	// Pace is the pause of a waiter between two tries, at first and at most.
	Pace() (first, most time.Duration)
}

// Pace is the pause of a waiter between two tries to take a lock or claim of l, at first and at most.
func Pace(l Locker) (first, most time.Duration) {
	if l, ok := l.(Leased); ok {
		return l.Pace()
	}
	return time.Millisecond, 20 * time.Millisecond
}

// Confirm asks whether this process still owns what it holds; with a kernel's locks it always does. ErrLost.
func Confirm(ctx context.Context, l Locker) error {
	if l, ok := l.(Leased); ok {
		return l.Confirm(ctx)
	}
	return nil
}

// Forget deletes a record if it exists. It confirms after the read that this process still holds its lease, so the
// record is not a later holder's.
func Forget(ctx context.Context, s Store, l Locker, key Key) error {
	for {
		rec, err := s.Get(ctx, key)
		if err == nil || errors.Is(err, ErrDamaged) {
			err = Confirm(ctx, l)
		}
		if err == nil {
			err = s.Delete(ctx, key, rec.Version)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil || !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// Heard is when a process on another host last renewed its session. It is for people: no decision depends on it, as
// the clocks of two hosts are never compared. The zero value says nothing: the process is known to live, or the store
// keeps no such times.
type Heard struct {
	At    time.Time     // by its own clock
	Lease time.Duration // an observer that sees no renewal for this long declares the process dead
}

// Hearing is an additional capability of a Locker whose holders may be on other hosts.
type Hearing interface {
	// HeldBy is Holder, and returns when the holder was last heard of.
	HeldBy(ctx context.Context, name string) (holder []byte, heard Heard, held bool, err error)
}

// HeldBy returns whether the named lock of l is held, its holder's text and, if the holder is on another host, when
// it was last heard of.
func HeldBy(ctx context.Context, l Locker, name string) (holder []byte, heard Heard, held bool, err error) {
	if l, ok := l.(Hearing); ok {
		return l.HeldBy(ctx, name)
	}
	holder, held, err = l.Holder(ctx, name)
	return holder, Heard{}, held, err
}
