package lease

import (
	"context"
	"time"

	"e3/refstore"
)

// looseEnd is a record that should not exist, but may, now or after a late write: a hold that this session does not
// have, or a record beside the session's that is no longer needed.
type looseEnd struct {
	key   refstore.Key
	nonce uint64 // nonce of the hold
	whole bool   // delete the record itself
	owed  bool   // the hold was taken over from a dead holder; see release
	late  bool   // it may recur after its removal
	after uint64 // only after this many writes of the session's record

	due, wait, until time.Duration // the next try, by Options.Elapsed; the pause after that try; the time to give up
}

// maxLoose bounds the loose ends. The end of the session frees the others.
const maxLoose = 1 << 12

// addLooseEnd queues a loose end.
func (s *session) addLooseEnd(e looseEnd) {
	now := s.l.o.Elapsed()
	e.due, e.wait, e.until = now, s.l.o.TTL/15, now+s.l.o.Settle
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loose) < maxLoose {
		s.loose = append(s.loose, e)
	}
}

// resolveLooseEnds tries the loose ends that are due. A loose end is done once it was removed, unless it may recur. An
// absent record may still arrive until the session's requests have settled. Other processes wait for it, so it is tried
// at least every two leases.
func (s *session) resolveLooseEnds(ctx context.Context) {
	s.mu.Lock()
	now, written := s.l.o.Elapsed(), s.written
	var due, rest []looseEnd
	for _, e := range s.loose {
		if e.due <= now && e.after <= written {
			due = append(due, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.loose = rest
	s.mu.Unlock()
	for _, e := range due {
		was, err := false, ctx.Err()
		switch {
		case err != nil:
		case e.whole:
			was, err = s.l.remove(ctx, e.key)
		default:
			was, err = s.release(ctx, e.key, e.nonce, e.owed)
		}
		if err == nil && was && !e.late || now >= e.until {
			continue
		}
		e.due, e.wait = now+e.wait, min(2*e.wait, 2*s.l.o.TTL)
		s.mu.Lock()
		s.loose = append(s.loose, e)
		s.mu.Unlock()
	}
}
