package lease

import (
	"context"
	"time"

	"e3/refstore"
)

// looseEnd is a record that may be there, now or when a late write arrives, though it should not: a hold of this session that it
// does not have, or a record beside the session's that is not needed any more.
type looseEnd struct {
	key   refstore.Key
	nonce uint64 // of the hold
	whole bool   // the record as such is to go
	owed  bool   // the hold was taken over from a dead holder, see release
	late  bool   // once it was removed it may come again
	after uint64 // not before the session's record was written that often

	due, wait, until time.Duration // next try, by Options.Elapsed; the pause after it; when to give up
}

// maxLoose bounds how many loose ends are looked after. What is forgotten is free once the session ends.
const maxLoose = 1 << 12

// later has a loose end looked after.
func (s *session) later(e looseEnd) {
	now := s.l.o.Elapsed()
	e.due, e.wait, e.until = now, s.l.o.TTL/15, now+s.l.o.Settle
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loose) < maxLoose {
		s.loose = append(s.loose, e)
	}
}

// tidy tries the loose ends that are due. One that was found, and removed, is done with, unless it may come again; one that is not
// there may still arrive until what was sent has settled. Others wait meanwhile, so it is looked for every two leases at least.
func (s *session) tidy(ctx context.Context) {
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

// remove deletes a record that nobody else writes, and returns whether it was there.
func (l *Leases) remove(ctx context.Context, key refstore.Key) (was bool, err error) {
	there, err := l.read(ctx, key)
	if err != nil || there.Version == refstore.Absent {
		return false, err
	}
	return true, l.store.Delete(ctx, key, there.Version)
}
