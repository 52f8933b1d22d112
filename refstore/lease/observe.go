package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"e3/refstore"
)

// sighting is what this process has seen of another session, by its own elapsed time.
type sighting struct {
	version refstore.Version
	since   time.Duration // first read of this version
	looked  time.Duration // last read
	beaten  bool          // it replaced a version read less than a lease before: the session was alive
	last    view
}

// maxSeen bounds how many sessions are watched at a time.
const maxSeen = 1 << 14

// view is what is known of a session.
type view struct {
	rec     sessionRecord    // without a state if there is no record
	version refstore.Version // refstore.Absent if there is no record
	free    bool             // its holds are free: it is marked, has ended, or is absent
	expired bool             // it may be marked dead: its process is gone, or it was not renewed for a lease
	gone    bool             // its process is known to have ended
	lives   bool             // its process is known to exist and has not ended; it may be stopped
	pending time.Duration    // until it is known at the latest whether it lives; 0 if it does
}

// blocksCollections reports whether a lost session blocks collections because its process, stopped or hanging, still
// exists. After it wakes up, the process may finish a step before it learns of its loss.
func (v view) blocksCollections() bool { return v.free && v.lives && !v.rec.Death.Closed }

// heard is when a session that may have died was last renewed. It is empty for a session that is over, or whose
// process this machine's kernel knows.
func (v view) heard() refstore.Heard {
	if v.free || v.lives || v.gone || v.rec.At == 0 {
		return refstore.Heard{}
	}
	return refstore.Heard{At: time.Unix(0, v.rec.At), Lease: v.rec.ttl()}
}

// look returns what is known of a session. It writes nothing, and reads the record no more often than useful.
func (l *Leases) look(ctx context.Context, id string) (view, error) {
	now := l.o.Elapsed()
	l.mu.Lock()
	s := l.seen[id]
	fresh := s != nil && (s.last.free || now-s.looked < l.o.TTL/15 && !s.last.expired)
	var v view
	if fresh {
		v = s.last
	}
	l.mu.Unlock()
	if fresh {
		return l.local(v), nil
	}
	return l.lookNow(ctx, id)
}

// lookNow is look, but always reads the record.
func (l *Leases) lookNow(ctx context.Context, id string) (view, error) {
	r, err := l.store.Get(ctx, sessionKey(id))
	if errors.Is(err, refstore.ErrNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.seen, id)
		return view{free: true}, nil
	}
	if err != nil {
		return view{}, fmt.Errorf("look at session %.60q: %w", id, err)
	}
	return l.observe(r)
}

// observe takes a session's record that was just read into account.
func (l *Leases) observe(r refstore.Record) (view, error) {
	v := view{version: r.Version}
	if err := decode(r, &v.rec); err != nil {
		return view{}, err
	}
	v.free = v.rec.State != alive
	l.note(r.Key.Sort, &v)
	return l.local(v), nil
}

// note compares a session's record with its last sighting.
func (l *Leases) note(id string, v *view) {
	now, ttl := l.o.Elapsed(), max(l.o.TTL, v.rec.ttl())
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[id]
	switch {
	case s == nil:
		if len(l.seen) >= maxSeen {
			clear(l.seen)
		}
		s = &sighting{version: v.version, since: now}
		l.seen[id] = s
	case s.version != v.version:
		*s = sighting{version: v.version, since: now, beaten: now-s.looked <= ttl}
	}
	s.looked = now
	unchanged := now - s.since
	v.expired = !v.free && unchanged >= ttl
	// After a renewal, a session is in doubt again only when it misses the next one.
	if !v.free && !(s.beaten && unchanged <= ttl/2) {
		v.pending = max(ttl-unchanged, 0)
	}
	s.last = *v
}

// local adds what this machine's kernel knows of the session's process.
func (l *Leases) local(v view) view {
	if v.version == refstore.Absent || v.rec.State == ended {
		return v
	}
	if v.rec.State == dead && v.rec.Death.Gone {
		v.gone = true
		return v
	}
	lives, known := l.o.Alive(v.rec.Owner.process())
	switch {
	case known && lives:
		v.pending, v.lives = 0, true
	case known:
		v.gone = true
		v.expired = v.expired || !v.free
	}
	return v
}

// judge is look, and marks an expired session dead.
func (l *Leases) judge(ctx context.Context, id string) (view, error) {
	v, err := l.look(ctx, id)
	return l.markExpired(ctx, id, v, err)
}

// judgeNow is judge, but always reads the record.
func (l *Leases) judgeNow(ctx context.Context, id string) (view, error) {
	v, err := l.lookNow(ctx, id)
	return l.markExpired(ctx, id, v, err)
}

// markExpired marks a session dead if it has expired.
func (l *Leases) markExpired(ctx context.Context, id string, v view, err error) (view, error) {
	for err == nil && v.expired {
		v, err = l.markDead(ctx, id, v)
	}
	return v, err
}

// markDead marks a session dead, if its record is still the one that was judged.
func (l *Leases) markDead(ctx context.Context, id string, v view) (view, error) {
	rec := v.rec
	slog.DebugContext(ctx, "declare dead", "topic", "leases", "session", id, "holder", rec.Owner)
	rec.State = dead
	rec.Death = &deathRecord{By: l.own.words(), Gone: v.gone}
	if now, err := l.now(ctx); err == nil { // otherwise the first call of settled sets the date
		rec.Death.At = now.UnixNano()
	}
	_, err := l.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(rec), Version: v.version})
	// The record says whether the write took effect.
	now, lookErr := l.lookNow(ctx, id)
	switch {
	case lookErr != nil:
		return view{}, errors.Join(err, lookErr)
	case err != nil && !errors.Is(err, refstore.ErrConflict) && now.version == v.version:
		return view{}, fmt.Errorf("declare session %.60q dead: %w", id, readOnly(err))
	}
	return now, nil
}

// lingers is for how long requests of a process may still arrive after its end: its connections are closed, but the
// kernel and the server carry out what they accepted.
const lingers = 30 * time.Second

// settling returns for how long requests of a session may still arrive, 0 if none may. For a live session that is
// unknown: it is Options.Settle. If wait equals most, the death should be dated.
func (l *Leases) settling(ctx context.Context, v view) (wait, most time.Duration, err error) {
	if most = l.o.Settle; v.gone {
		most = min(most, lingers)
	}
	switch {
	case v.version == refstore.Absent, v.rec.State == ended:
		return 0, most, nil
	case v.rec.State != dead:
		return most, most, nil
	}
	now, err := l.now(ctx)
	if err != nil {
		return 0, most, err
	}
	if passed := now.Sub(time.Unix(0, v.rec.Death.At)); v.rec.Death.At != 0 && passed > -l.o.Settle {
		return min(max(most-passed, 0), most), most, nil
	}
	return most, most, nil
}

// settled is settling, and dates a death without a date.
func (l *Leases) settled(ctx context.Context, id string, v view) (wait time.Duration, err error) {
	wait, most, err := l.settling(ctx, v)
	if err == nil && wait > 0 && wait == most {
		l.date(ctx, id, v)
	}
	return wait, err
}

// date gives a death a time if it has none that can be true. A failure is ignored; a later call tries again.
func (l *Leases) date(ctx context.Context, id string, v view) {
	if v.rec.State != dead {
		return
	}
	now, err := l.now(ctx)
	if err != nil {
		return
	}
	if at := v.rec.Death.At; at != 0 && time.Unix(0, at).Sub(now) < l.o.Settle {
		return
	}
	death := *v.rec.Death
	death.At = now.UnixNano()
	v.rec.Death = &death
	_, _ = l.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(v.rec), Version: v.version})
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, id) // the cached view is out of date
}
