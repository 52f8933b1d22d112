package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/refstore"
)

// Close releases all holds and ends the session, within a few seconds. A hold that it cannot release in that time
// becomes free when the lease runs out. Later calls fail.
func (l *Leases) Close() error {
	ctx, cancel := l.o.detached(context.Background())
	defer cancel()
	l.mu.Lock()
	was, collect := l.closed, l.collect
	l.mu.Unlock()
	if was {
		return nil
	}
	lost := errors.Is(l.Held(), refstore.ErrLost)
	if collect != nil && !lost {
		collect.end()
	}
	select { // wait for a session that is beginning
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
	defer openSessions.Delete(s.name()) // even if the store was not told: see abandoned
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
	l.freeing.wait(ctx) // another goroutine releases it, and needs the session
	if err := s.endSession(ctx, lost); err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// releaseAll releases holds, several at a time. A hold taken over from a dead holder goes back to noSession, since the
// previous holder's leftovers may not have been cleaned up.
func (s *session) releaseAll(ctx context.Context, list []*held) {
	var g sync.WaitGroup
	defer g.Wait()
	slots := make(chan struct{}, 16)
	for _, h := range list {
		slots <- struct{}{}
		g.Go(func() {
			if h.previous != nil {
				// after a failure the end of the session frees the hold, and the next holder still gets the texts
				_, _ = s.release(ctx, h.key, h.nonce, true)
			} else {
				_ = h.Unlock() // never fails: the end of the session frees what it cannot release
			}
			<-slots
		})
	}
}

// endSession deletes the session record, which frees every hold that names it. The record stays in three cases. A
// lost session is marked dead, since its requests may still arrive. A session whose collection may still delete
// objects is marked dead, too. A session that answered a running collection is marked ended: it may have relied on
// a name after the collector read the references.
func (s *session) endSession(ctx context.Context, lost bool) error {
	key := sessionKey(s.name())
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	unsettled := s.l.unsettled() > 0
	if epoch != 0 && !lost && !unsettled {
		if rec, _, err := s.l.epoch(ctx); err == nil && (rec.Session == "" || rec.Number != epoch) {
			epoch = 0 // the collection has ended since the last renewal
		}
	}
	version := s.version
	for {
		var err error
		switch {
		case lost || unsettled:
			_, err = s.l.markClosed(ctx, s.name())
		case epoch != 0 && s.epochWritten == epoch:
			rec := s.record()
			rec.State, rec.Epoch, rec.Parts, rec.Relied = ended, s.epochWritten, s.parts, flat(s.tail[:s.public])
			s.mu.Lock()
			rec.Protected, rec.Large = s.protected() // the collector may not have read the session's names yet
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
		// A renewal whose response was lost, or another process marked the session.
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
	if lost || unsettled || epoch != 0 || s.parts == 0 && s.trying == 0 && s.larges == 0 {
		return nil
	}
	return s.l.removeParts(ctx, s.name()+"/", func(context.Context, string) (bool, error) { return true, nil })
}

// openSessions is the set of ids of this process's open sessions, over all Leases.
var openSessions sync.Map

// abandoned reports whether this process closed a session, or never began it, without telling the store. No other
// process can know this, and this process may continue in a new session for a long time.
func (w *watcher) abandoned(id string, v view) bool {
	_, open := openSessions.Load(id)
	return !open && v.lives && v.rec.Owner.process() == w.own.process()
}

// markClosed marks a session of this process dead and closed, so that no process waits for its lease.
func (w *watcher) markClosed(ctx context.Context, id string) (view, error) {
	for {
		v, err := w.lookNow(ctx, id)
		if err == nil && !v.free {
			v.gone = false
			v, err = w.markDead(ctx, id, v)
		}
		if err != nil || v.rec.State != dead || v.rec.Death.Closed {
			return v, err
		}
		death := *v.rec.Death
		death.Closed = true
		v.rec.Death = &death
		_, err = w.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(v.rec), Version: v.version})
		// another process dated or swept the session
		if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrNotFound) {
			return v, err
		}
	}
}

// releases are the releases of holds that are under way, for Close to wait for.
type releases struct {
	mu    sync.Mutex
	under int
	none  chan struct{} // closed once none is under way; nil: no caller waits
}

// begin begins a release.
func (r *releases) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under++
}

func (r *releases) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under--; r.under == 0 && r.none != nil {
		close(r.none)
		r.none = nil
	}
}

// wait returns once no release is under way, or ctx has ended.
func (r *releases) wait(ctx context.Context) {
	r.mu.Lock()
	if r.under == 0 {
		r.mu.Unlock()
		return
	}
	if r.none == nil {
		r.none = make(chan struct{})
	}
	none := r.none
	r.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
