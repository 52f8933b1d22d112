package refstore

import (
	"context"
	"errors"
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
