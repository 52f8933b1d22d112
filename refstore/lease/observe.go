package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"e3/refstore"
)

// sighting is what this process has seen of another's session, by its own elapsed time.
type sighting struct {
	version refstore.Version
	since   time.Duration // this version was read first
	looked  time.Duration // and last
	beaten  bool          // it replaced one that was read less than a lease before: the session lived a moment ago
	last    view
}

// maxSeen bounds how many sessions are watched at a time.
const maxSeen = 1 << 14

// view is what can be said of a session.
type view struct {
	rec     sessionRecord    // of no state if there is no record
	version refstore.Version // refstore.Absent if there is no record
	over    bool             // what it holds is free for all: it is marked, has ended, or is absent
	expired bool             // it may be marked: it is gone, or was not renewed for a lease
	gone    bool             // its process is known to have ended
	lives   bool             // its process is known to be there, and it has not ended; it may be stopped
	pending time.Duration    // until it is known at the latest whether it lives; 0 if it does
}

// stands tells whether a session that was lost stands in the way of collections for as long as its process does, which is stopped,
// or hangs: what it does when it wakes up it does before it finds out.
func (v view) stands() bool { return v.over && v.lives && !v.rec.Death.Closed }

// heard is when a session was heard of that may have died; nothing of one whose process this machine's kernel knows, or that is over.
func (v view) heard() refstore.Heard {
	if v.over || v.lives || v.gone || v.rec.At == 0 {
		return refstore.Heard{}
	}
	return refstore.Heard{At: time.Unix(0, v.rec.At), Lease: v.rec.ttl()}
}

// look says what is known of a session, and writes nothing. It reads the record no more often than is of use.
func (l *Leases) look(ctx context.Context, id string) (view, error) {
	now := l.o.Elapsed()
	l.mu.Lock()
	s := l.seen[id]
	fresh := s != nil && (s.last.over || now-s.looked < l.o.TTL/15 && !s.last.expired)
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

// lookNow is look, and reads the record.
func (l *Leases) lookNow(ctx context.Context, id string) (view, error) {
	r, err := l.store.Get(ctx, sessionKey(id))
	if errors.Is(err, refstore.ErrNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.seen, id)
		return view{over: true}, nil
	}
	if err != nil {
		return view{}, fmt.Errorf("look at session %.60q: %w", id, err)
	}
	return l.sight(r)
}

// sight takes note of a session's record that has just been read.
func (l *Leases) sight(r refstore.Record) (view, error) {
	v := view{version: r.Version}
	if err := decode(r, &v.rec); err != nil {
		return view{}, err
	}
	v.over = v.rec.State != alive
	l.note(r.Key.Sort, &v)
	return l.local(v), nil
}

// note compares a session's record with what was seen of it before.
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
	v.expired = !v.over && unchanged >= ttl
	// A session that was seen to beat is undecided again only when it misses the next one.
	if !v.over && !(s.beaten && unchanged <= ttl/2) {
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
		v.expired = v.expired || !v.over
	}
	return v
}

// judge is look, and marks a session dead that is.
func (l *Leases) judge(ctx context.Context, id string) (view, error) {
	v, err := l.look(ctx, id)
	return l.bury(ctx, id, v, err)
}

// judgeNow is judge, and reads the record.
func (l *Leases) judgeNow(ctx context.Context, id string) (view, error) {
	v, err := l.lookNow(ctx, id)
	return l.bury(ctx, id, v, err)
}

// bury marks a session dead that was found so.
func (l *Leases) bury(ctx context.Context, id string, v view, err error) (view, error) {
	for err == nil && v.expired {
		v, err = l.mark(ctx, id, v)
	}
	return v, err
}

// mark says for everybody that a session is dead, if its record is still the one that was judged.
func (l *Leases) mark(ctx context.Context, id string, v view) (view, error) {
	rec := v.rec
	slog.DebugContext(ctx, "declare dead", "topic", "leases", "session", id, "holder", rec.Owner)
	rec.State = dead
	rec.Death = &deathRecord{By: l.own.words(), Gone: v.gone}
	if now, err := l.now(ctx); err == nil { // else whoever asks whether it has settled dates it
		rec.Death.At = now.UnixNano()
	}
	_, err := l.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(rec), Version: v.version})
	// Whether or not it took effect is in the record.
	now, lookErr := l.lookNow(ctx, id)
	switch {
	case lookErr != nil:
		return view{}, errors.Join(err, lookErr)
	case err != nil && !errors.Is(err, refstore.ErrConflict) && now.version == v.version:
		return view{}, fmt.Errorf("declare session %.60q dead: %w", id, readOnly(err))
	}
	return now, nil
}

// lingers is for how long what a process has sent may still arrive after its end: its connections are closed then, but what
// the kernel and the server had taken is carried out.
const lingers = 30 * time.Second

// settling returns for how long what a session has sent may still arrive, 0 if it may not. Of a session that lives nothing
// is known: it is Options.Settle. Where it returns the most that it may, the death should be dated.
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

// settled is settling, and dates a death that has no date.
func (l *Leases) settled(ctx context.Context, id string, v view) (wait time.Duration, err error) {
	wait, most, err := l.settling(ctx, v)
	if err == nil && wait > 0 && wait == most {
		l.date(ctx, id, v)
	}
	return wait, err
}

// date gives a session's death a time where it has none that can be. It is not an error if that cannot be done now.
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
	delete(l.seen, id) // what was seen is not the last word any more
}
