package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/refstore"
)

// Close releases everything and ends the session. It is bounded by a few seconds: what it does not get done is free for others
// once the lease has run out. Calls after it fail.
func (l *Leases) Close() error {
	ctx, cancel := l.detached(context.Background())
	defer cancel()
	l.mu.Lock()
	was, collect := l.closed, l.collect
	l.mu.Unlock()
	if was {
		return nil
	}
	lost := l.Held() != nil
	if collect != nil && !lost {
		collect.end()
	}
	select { // a session that is beginning
	case l.opening <- struct{}{}:
		defer func() { <-l.opening }()
	case <-ctx.Done():
	}
	l.mu.Lock()
	l.closed = true
	held := make([]*held, 0, len(l.holds))
	for _, h := range l.holds {
		if h != nil {
			held = append(held, h)
		}
	}
	l.mu.Unlock()
	s := l.session.Load()
	if s == nil {
		return nil
	}
	defer openSessions.Delete(s.id) // whether or not the store is told: see left
	s.end()
	stopped := make(chan struct{})
	go func() {
		s.done.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		return fmt.Errorf("end the session: the store does not answer: %w", ctx.Err())
	}
	if !lost {
		s.releaseAll(ctx, held)
	}
	if err := s.goodbye(ctx, lost); err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// releaseAll releases what is held, several at a time. What was taken over from a dead holder, who may not have been dealt with,
// is left as nobody's.
func (s *session) releaseAll(ctx context.Context, list []*held) {
	var g sync.WaitGroup
	defer g.Wait()
	slots := make(chan struct{}, 16)
	for _, h := range list {
		slots <- struct{}{}
		g.Go(func() {
			if h.previous != nil {
				_, _ = s.release(ctx, h.key, h.nonce, true) // without the session it is free for others, and they are told, in any case
			} else {
				_ = h.Unlock() // never fails; what is left of it is free without the session
			}
			<-slots
		})
	}
}

// goodbye removes the session's record, from which moment on whatever names it is free. Three leave it: one that was lost is
// marked dead, as what it sent may still arrive; so is one whose collection may still delete something; and one that took part in a
// collection which goes on has ended, as it may have relied on what it named only after the collector had looked there.
func (s *session) goodbye(ctx context.Context, lost bool) error {
	key := sessionKey(s.id)
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	littered := s.l.littering() > 0
	if epoch != 0 && !lost && !littered {
		if rec, _, err := s.l.epoch(ctx); err == nil && (rec.Session == "" || rec.Number != epoch) {
			epoch = 0 // it has ended since the last beat
		}
	}
	version := s.version
	for {
		var err error
		switch {
		case lost || littered:
			_, err = s.l.entomb(ctx, s.id)
		case epoch != 0 && s.said == epoch:
			rec := s.record()
			rec.State, rec.Epoch, rec.Parts, rec.Relied = ended, s.said, s.parts, flat(s.tail[:s.public])
			s.mu.Lock()
			rec.Protected, rec.Large = s.protected() // as it may have passed to somebody who looks for it there only now
			s.mu.Unlock()
			_, err = s.l.store.Put(ctx, refstore.Record{Key: key, Value: encode(rec), Version: version})
		default:
			err = s.l.store.Delete(ctx, key, version)
		}
		if !errors.Is(err, refstore.ErrConflict) {
			if err != nil && !errors.Is(err, refstore.ErrNotFound) {
				return err
			}
			break
		}
		// A beat whose answer got lost, or somebody has marked it.
		r, err := s.l.read(ctx, key)
		if err != nil {
			return err
		}
		var rec sessionRecord
		if r.Version == refstore.Absent || decode(r, &rec) != nil || rec.State != alive {
			return nil
		}
		version = r.Version
	}
	if lost || littered || epoch != 0 || s.parts == 0 && s.trying == 0 && s.larges == 0 {
		return nil
	}
	return s.l.removeParts(ctx, s.id+"/", func(context.Context, string) (bool, error) { return true, nil })
}

// openSessions has the ids of this process's sessions that are not closed, of all of its Leases.
var openSessions sync.Map

// left tells whether a session is one of this process's that was closed, or never began, without the store having been told. Only
// this process knows that it is not in the way any more, and it may go on for long in a new session.
func (l *Leases) left(id string, v view) bool {
	_, open := openSessions.Load(id)
	return !open && v.lives && v.rec.Owner.process() == l.own.process()
}

// entomb marks a session of this process dead, so that nobody has to wait for that, and says that nothing more comes of it.
func (l *Leases) entomb(ctx context.Context, id string) (view, error) {
	for {
		v, err := l.lookNow(ctx, id)
		if err == nil && !v.over {
			v.gone = false
			v, err = l.mark(ctx, id, v)
		}
		if err != nil || v.rec.State != dead || v.rec.Death.Closed {
			return v, err
		}
		death := *v.rec.Death
		death.Closed = true
		v.rec.Death = &death
		_, err = l.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(v.rec), Version: v.version})
		if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrNotFound) { // dated or swept by others
			return v, err
		}
	}
}
