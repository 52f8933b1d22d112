package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"e3/refstore"
)

// A watcher keeps what this process knows about other sessions. All methods are safe for concurrent use.
type watcher struct {
	table
	own ownerRecord

	mu   sync.Mutex
	seen map[string]*sighting

	// renewed is when this process last renewed its own session, 0 before the first time; disturbed is when a renewal
	// was last late. Both are by Options.Elapsed.
	renewed, disturbed atomic.Int64
}

// sighting is what is known about another session; its times are this process's elapsed time.
type sighting struct {
	version refstore.Version
	since   time.Duration // first read of this version
	looked  time.Duration // last read
	beaten  bool          // the version before was read less than a lease earlier, so the session was alive
	last    view
}

// maxSeen bounds the number of sessions that are watched at a time.
const maxSeen = 1 << 14

// view is the known state of a session.
type view struct {
	rec     sessionRecord    // has no state if there is no record
	version refstore.Version // refstore.Absent if there is no record
	free    bool             // its holds are free: it is marked, has ended, or is absent
	expired bool             // it may be marked dead: its process is gone, or it was not renewed for a lease
	gone    bool             // its process is known to have ended
	lives   bool             // its process is known to exist; it may be suspended
	pending time.Duration    // an upper bound of the time until its state is known; 0 if it is alive
}

// blocksCollections reports whether a lost session blocks collections because its process, suspended or hanging, still
// exists. After it resumes, the process may finish a step before it learns of its loss.
func (v view) blocksCollections() bool { return v.free && v.lives && !v.rec.Death.Closed }

// heard is the last renewal of a session that may have died. It is empty if the session has ended, or if this machine's
// kernel knows its process.
func (v view) heard() refstore.Heard {
	if v.free || v.lives || v.gone || v.rec.At == 0 {
		return refstore.Heard{}
	}
	return refstore.Heard{At: time.Unix(0, v.rec.At), Lease: v.rec.ttl()}
}

// look returns the state of a session. It writes nothing, and reads the record no more often than is useful.
func (w *watcher) look(ctx context.Context, id string) (view, error) {
	now := w.o.Elapsed()
	w.mu.Lock()
	s := w.seen[id]
	fresh := s != nil && (s.last.free || now-s.looked < w.o.TTL/15 && !s.last.expired)
	var v view
	if fresh {
		v = s.last
	}
	w.mu.Unlock()
	if fresh {
		return w.local(v), nil
	}
	return w.lookNow(ctx, id)
}

// lookNow is look, but always reads the record.
func (w *watcher) lookNow(ctx context.Context, id string) (view, error) {
	r, err := w.store.Get(ctx, sessionKey(id))
	if errors.Is(err, refstore.ErrNotFound) {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.seen, id)
		return view{free: true}, nil
	}
	if err != nil {
		return view{}, fmt.Errorf("look at session %.60q: %w", id, err)
	}
	return w.observe(r)
}

// observe updates the session's view from a record that was just read.
func (w *watcher) observe(r refstore.Record) (view, error) {
	v := view{version: r.Version}
	if err := decode(r, &v.rec); err != nil {
		return view{}, err
	}
	v.free = v.rec.State != alive
	w.note(r.Key.Sort, &v)
	return w.local(v), nil
}

// note compares a session's record with its last sighting.
func (w *watcher) note(id string, v *view) {
	now, ttl := w.o.Elapsed(), max(w.o.TTL, v.rec.ttl())
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen[id]
	switch {
	case s == nil:
		if len(w.seen) >= maxSeen {
			clear(w.seen)
		}
		s = &sighting{version: v.version, since: now}
		w.seen[id] = s
	case s.version != v.version:
		*s = sighting{version: v.version, since: now, beaten: now-s.looked <= ttl}
	}
	s.looked = now
	unchanged := now - max(s.since, w.undisturbed(now))
	v.expired = !v.free && unchanged >= ttl
	// After a renewal, a session is in doubt only once it misses the next one.
	if !v.free && !(s.beaten && unchanged <= ttl/2) {
		v.pending = max(ttl-unchanged, 0)
	}
	s.last = *v
}

// undisturbed is the time from which on this process has renewed its own session without delay. Observations from
// before then prove nothing: other sessions may have been late for the same reason.
func (w *watcher) undisturbed(now time.Duration) time.Duration {
	if renewed := time.Duration(w.renewed.Load()); renewed != 0 && now-renewed > w.tardy() {
		return now
	}
	return time.Duration(w.disturbed.Load())
}

// tardy is the greatest age of this process's last renewal at which deaths are believed. If it is older, an outage may
// make other sessions seem dead, which renew every third of a lease.
func (w *watcher) tardy() time.Duration { return w.o.TTL / 3 * 2 }

// local adds the knowledge of this machine's kernel about the session's process.
func (w *watcher) local(v view) view {
	if v.version == refstore.Absent || v.rec.State == ended {
		return v
	}
	if v.rec.State == dead && v.rec.Death.Gone {
		v.gone = true
		return v
	}
	lives, known := w.o.Alive(v.rec.Owner.process())
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
func (w *watcher) judge(ctx context.Context, id string) (view, error) {
	v, err := w.look(ctx, id)
	return w.markExpired(ctx, id, v, err)
}

// judgeNow is judge, but always reads the record.
func (w *watcher) judgeNow(ctx context.Context, id string) (view, error) {
	v, err := w.lookNow(ctx, id)
	return w.markExpired(ctx, id, v, err)
}

// markExpired marks a session dead if it has expired.
func (w *watcher) markExpired(ctx context.Context, id string, v view, err error) (view, error) {
	for err == nil && v.expired {
		v, err = w.markDead(ctx, id, v)
	}
	return v, err
}

// markDead marks a session dead, if its record is still the judged version.
func (w *watcher) markDead(ctx context.Context, id string, v view) (view, error) {
	rec := v.rec
	slog.DebugContext(ctx, "declare dead", "topic", "leases", "session", id, "holder", rec.Owner)
	rec.State = dead
	rec.Death = &deathRecord{By: w.own.words(), Gone: v.gone}
	if now, err := w.now(ctx); err == nil { // otherwise the first call of settled sets the date
		rec.Death.At = now.UnixNano()
	}
	_, err := w.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(rec), Version: v.version})
	// The record says whether the write took effect.
	now, lookErr := w.lookNow(ctx, id)
	switch {
	case lookErr != nil:
		return view{}, errors.Join(err, lookErr)
	case err != nil && !errors.Is(err, refstore.ErrConflict) && now.version == v.version:
		return view{}, fmt.Errorf("declare session %.60q dead: %w", id, readOnly(err))
	}
	return now, nil
}

// lingers is the time for which requests of a process may still arrive after its end: the kernel and the server
// complete what they have accepted, though its connections are closed.
const lingers = 30 * time.Second

// settling returns the time, wait, for which requests of a session may still arrive, 0 if none can. For a live session
// the time is unknown, and wait is Options.Settle. If wait equals most, the death should be dated.
func (t *table) settling(ctx context.Context, v view) (wait, most time.Duration, err error) {
	if most = t.o.Settle; v.gone {
		most = min(most, lingers)
	}
	switch {
	case v.version == refstore.Absent, v.rec.State == ended:
		return 0, most, nil
	case v.rec.State != dead:
		return most, most, nil
	}
	now, err := t.now(ctx)
	if err != nil {
		return 0, most, err
	}
	if passed := now.Sub(time.Unix(0, v.rec.Death.At)); v.rec.Death.At != 0 && passed > -t.o.Settle {
		return min(max(most-passed, 0), most), most, nil
	}
	return most, most, nil
}

// settled is settling, and also dates a death that has no date.
func (w *watcher) settled(ctx context.Context, id string, v view) (wait time.Duration, err error) {
	wait, most, err := w.settling(ctx, v)
	if err == nil && wait > 0 && wait == most {
		w.date(ctx, id, v)
	}
	return wait, err
}

// date gives a death a time, unless it has a plausible one. A failure is ignored; a later call tries again.
func (w *watcher) date(ctx context.Context, id string, v view) {
	if v.rec.State != dead {
		return
	}
	now, err := w.now(ctx)
	if err != nil {
		return
	}
	if at := v.rec.Death.At; at != 0 && time.Unix(0, at).Sub(now) < w.o.Settle {
		return
	}
	death := *v.rec.Death
	death.At = now.UnixNano()
	v.rec.Death = &death
	_, _ = w.store.Put(ctx, refstore.Record{Key: sessionKey(id), Value: encode(v.rec), Version: v.version})
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, id) // the cached view is out of date
}
