package refstore

import (
	"context"
	"errors"
	"fmt"
)

// ErrClaimed reports a claim that somebody else holds.
var ErrClaimed = errors.New("claimed by someone else")

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
}

func (e *LockedError) Error() string {
	if len(e.Holder) == 0 {
		return fmt.Sprintf("lock %q is held by another process", e.Name)
	}
	return fmt.Sprintf("lock %q is held by %.200q", e.Name, e.Holder)
}

// Locker is an optional capability of a store whose kernel tells when a holder is dead: a lock ends with its holder's
// process, however it ended. Across hosts, use leases.
type Locker interface {
	// TryLock takes the named lock or returns a [*LockedError] at once. holder describes the caller for others to read;
	// what a shared holder wrote may be replaced by another's.
	TryLock(ctx context.Context, name string, mode Mode, holder []byte) (Lock, error)

	// Holder tells whether the named lock is held, and what its holder wrote. It takes no lock, so it disturbs nobody.
	Holder(ctx context.Context, name string) (holder []byte, held bool, err error)

	// TryClaim takes the exclusive claim on a key or returns [ErrClaimed] at once. It is meant for thousands of claims
	// a second. A backend may let two keys share one claim if that is as rare as a collision of 63 random bits.
	TryClaim(key [32]byte) (Lock, error)
}

// Lock is a lock or claim that is held.
type Lock interface {
	// Unlock releases it. Further calls do nothing.
	Unlock() error
}
