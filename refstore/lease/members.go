package lease

import (
	"context"
	"fmt"
	"time"

	"e3/refstore"
)

// Session returns the id of this process's session, and begins it if need be: who writes it into a record of his own says that he has what the
// record is about, for as long as the session lasts. ErrLost, ErrReadOnly.
func (l *Leases) Session(ctx context.Context) (id string, err error) {
	s, err := l.use(ctx)
	if err != nil {
		return "", err
	}
	return s.id, nil
}

// Over tells whether what a session holds is free for all: it has ended, was never there, or is dead. One whose lease has run out, or whose process is
// known to be gone, is marked dead. Otherwise pending is how long it may still take until that is known, 0 if the session lives. Asking costs a read of its
// record each [Options.TTL]/15.
func (l *Leases) Over(ctx context.Context, id string) (over bool, pending time.Duration, err error) {
	if err := validSession(id); err != nil {
		return false, 0, fmt.Errorf("is it over: %w", err)
	}
	if s := l.session.Load(); s != nil && s.id == id {
		if l.Held() == nil {
			return false, 0, nil
		}
	}
	v, err := l.judge(ctx, id)
	if err != nil {
		return false, 0, err
	}
	return v.over, v.pending, nil
}

// Heard tells when a session was last heard of, for people; nothing of one that is over, or whose process this host knows to live. It writes nothing, and costs
// as much as [Leases.Over], after which it costs nothing.
func (l *Leases) Heard(ctx context.Context, id string) (refstore.Heard, error) {
	if err := validSession(id); err != nil {
		return refstore.Heard{}, fmt.Errorf("when was it heard of: %w", err)
	}
	if s := l.session.Load(); s != nil && s.id == id {
		return refstore.Heard{}, nil
	}
	v, err := l.look(ctx, id)
	return v.heard(), err
}
