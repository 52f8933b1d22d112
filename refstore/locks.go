package refstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClaimed reports a claim that somebody else holds.
	ErrClaimed = errors.New("claimed by someone else")
	// ErrLost reports that this process could not renew its lease in time: whatever it held may be another's by now.
	ErrLost = errors.New("the lease was lost")
)

// Mode says who may hold a lock together.
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

// LockedError says that a lock is taken, and by whom as far as is known.
type LockedError struct {
	Name   string
	Holder []byte // what the holder wrote; empty where it is not known, and an earlier one's for the instant that writing takes
	// Pending is how long it may still take, at most, until it is known whether the holder lives; 0 if it does.
	Pending time.Duration
}

func (e *LockedError) Error() string {
	if len(e.Holder) == 0 {
		return fmt.Sprintf("lock %q is held by another process", e.Name)
	}
	return fmt.Sprintf("lock %q is held by %.200q", e.Name, e.Holder)
}

// Locker is an optional capability of a store: locks and claims that end with their holder's process, however it ended. Within
// a host the kernel says so at once. Across hosts they are leases (see [Leased]): a holder that is not heard of for the time of
// one lease is dead for everybody, once and for all that it held.
type Locker interface {
	// TryLock takes the named lock or returns a [*LockedError] at once. holder describes the caller for others to read;
	// what a shared holder wrote may be replaced by another's.
	TryLock(ctx context.Context, name string, mode Mode, holder []byte) (Lock, error)

	// Holder tells whether the named lock is held, and what its holder wrote. It takes no lock, so it disturbs nobody.
	Holder(ctx context.Context, name string) (holder []byte, held bool, err error)

	// TryClaim takes the exclusive claim on a key or returns [ErrClaimed] at once. It is meant for thousands of claims
	// a second. A backend may let two keys share one claim if that is as rare as a collision of 63 random bits. holder is for
	// [Lock.Previous]; where the kernel keeps claims it goes nowhere.
	TryClaim(ctx context.Context, key [32]byte, holder []byte) (Lock, error)
}

// Lock is a lock or claim that is held.
type Lock interface {
	// Unlock releases it. Further calls do nothing.
	Unlock() error
	// Previous is what the holder wrote from whom this was taken because its lease ran out, nil if it was free. It may wake and
	// write what it has begun: whoever takes over first makes sure that such writes fail. It tells of everybody who has held it since it
	// was released last, the latest first, with a line feed between; a lock of no more than the latest 64 KiB of that.
	Previous() []byte
}

// Lessee is what a store is besides if this process may go on with what it does there only for as long as it renews a lease:
// its locks and claims may be leases (then it is [Leased]), or only the session that keeps from collections what it has stored.
type Lessee interface {
	// Lost is closed once this process cannot be sure any more that what it holds is its own: it has not renewed in time, by
	// its own clock, or was told. It then stops what it does. A process that held nothing yet loses nothing.
	Lost() <-chan struct{}

	// Held returns [ErrLost] from that moment on, whether or not anybody had a turn since who could close Lost: it looks at the
	// clock, and asks nobody.
	Held() error
}

// Leased is what a Locker is besides if what it hands out are leases.
type Leased interface {
	Locker
	Lessee

	// Confirm asks the store whether what this process holds is its own. ErrLost.
	Confirm(ctx context.Context) error

	// Pace is how long a waiter lets pass between two tries, at first and at most.
	Pace() (first, most time.Duration)
}

// Pace is how long a waiter lets pass between two tries to take a lock or claim of l, at first and at most.
func Pace(l Locker) (first, most time.Duration) {
	if l, ok := l.(Leased); ok {
		return l.Pace()
	}
	return time.Millisecond, 20 * time.Millisecond
}

// Confirm asks whether what this process holds is its own; what a kernel keeps always is. ErrLost.
func Confirm(ctx context.Context, l Locker) error {
	if l, ok := l.(Leased); ok {
		return l.Confirm(ctx)
	}
	return nil
}

// Forget deletes a record if it is there. It confirms after the reading that the record is not that of a later holder.
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

// Heard is when a process on another host last said that it lives, for people: nobody decides anything by it, as the clocks of two hosts are
// never compared. The zero value says nothing: the process is known to live, or nobody keeps such times.
type Heard struct {
	At    time.Time     // by its own clock
	Lease time.Duration // whoever has watched it for so long and heard nothing takes it for dead
}

// Hearing is what a Locker is besides if its holders may be on other hosts.
type Hearing interface {
	// HeldBy is Holder, and when the holder was last heard of.
	HeldBy(ctx context.Context, name string) (holder []byte, heard Heard, held bool, err error)
}

// HeldBy tells whether the named lock of l is held, what its holder wrote, and when that was last heard of if it is on another host.
func HeldBy(ctx context.Context, l Locker, name string) (holder []byte, heard Heard, held bool, err error) {
	if l, ok := l.(Hearing); ok {
		return l.HeldBy(ctx, name)
	}
	holder, held, err = l.Holder(ctx, name)
	return holder, Heard{}, held, err
}
