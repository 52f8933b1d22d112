package lease

import (
	"context"
	"fmt"
	"time"

	"e3/refstore"
)

// Session returns the id of this process's session, and begins it if necessary. As long as the session lasts, this
// process holds every record that names its id. Errors are ErrLost and ErrReadOnly.
func (l *Leases) Session(ctx context.Context) (id string, err error) {
	s, err := l.use(ctx)
	if err != nil {
		return "", err
	}
	return s.name(), nil
}

// Ended reports whether a session's holds are free: it has ended, never existed, or is dead. It marks a session dead if
// its lease has run out or its process is known to be gone. While a death is possible but unproven, pending is an upper
// bound of the time until it is known; 0 if the session lives. A call costs a read of the session's record each
// [Options.TTL]/15.
func (l *Leases) Ended(ctx context.Context, id string) (ended bool, pending time.Duration, err error) {
	if err := validSession(id); err != nil {
		return false, 0, fmt.Errorf("whether the session has ended: %w", err)
	}
	if s := l.session.Load(); s != nil && s.name() == id {
		if l.Held() == nil || l.final() == nil {
			return false, 0, nil
		}
	}
	v, err := l.judge(ctx, id)
	if err != nil {
		return false, 0, err
	}
	return v.free, v.pending, nil
}

// Heard returns when a session was last renewed, for display. It returns nothing if the session has ended, or if this
// host knows that its process is alive. It writes nothing. It costs as much as [Leases.Ended], and nothing right after
// that call.
func (l *Leases) Heard(ctx context.Context, id string) (refstore.Heard, error) {
	if err := validSession(id); err != nil {
		return refstore.Heard{}, fmt.Errorf("when the session was renewed: %w", err)
	}
	if s := l.session.Load(); s != nil && s.name() == id {
		return refstore.Heard{}, nil
	}
	v, err := l.look(ctx, id)
	return v.heard(), err
}
