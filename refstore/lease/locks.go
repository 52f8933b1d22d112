package lease

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"e3/refstore"
)

// maxText bounds the text of a holder.
const maxText = 64 << 10

// held is a lock or claim that this process holds.
type held struct {
	l        *Leases
	key      refstore.Key
	claim    *[32]byte // nil for a lock
	nonce    uint64
	version  refstore.Version // the record's version when it was written
	under    string           // the session's id when the record was written
	shared   bool             // the lock is shared
	sole     bool             // the record has no other hold
	late     bool             // a retry of its creation may still arrive, and recreate the record after its release
	previous []byte
	released atomic.Bool
	lapsed   atomic.Bool // see retake
}

// Previous implements [refstore.Lock].
func (h *held) Previous() []byte { return bytes.Clone(h.previous) }

// Unlock implements [refstore.Lock]. If the store does not answer, the release is retried until the session ends; this
// process no longer has the hold. A lost hold is not released: its process may be disconnected, and has to end soon.
func (h *held) Unlock() error {
	h.l.freeing.begin() // before all else: a second call, by Close, returns at once, and Close then waits for this one
	defer h.l.freeing.end()
	if h.released.Swap(true) {
		return nil
	}
	slog.Debug("release", "topic", "leases", "record", h.key)
	h.l.forget(h.claim, h.nonce)
	if errors.Is(h.l.Held(), refstore.ErrLost) {
		return nil // the end of the session frees it
	}
	s := h.l.session.Load()
	ctx, cancel := h.l.o.detached(context.Background())
	defer cancel()
	var err error
	if h.sole {
		err = h.l.store.Delete(ctx, h.key, h.getVersion())
	}
	if !h.sole || errors.Is(err, refstore.ErrConflict) {
		_, err = s.release(ctx, h.key, h.nonce, false)
	}
	if h.late || err != nil && !errors.Is(err, refstore.ErrNotFound) {
		s.addLooseEnd(looseEnd{key: h.key, nonce: h.nonce, late: h.late})
	}
	return nil
}

func (h *held) getVersion() refstore.Version {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.version
}

func (h *held) setVersion(v refstore.Version) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.version = v
}

// attempt draws a nonce for a hold that is about to be taken.
func (l *Leases) attempt() uint64 {
	nonce := l.nonces.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[nonce] = nil
	return nonce
}

// forget removes a hold from this process's tables.
func (l *Leases) forget(claim *[32]byte, nonce uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, nonce)
	if claim != nil && l.claims[*claim] == nonce {
		delete(l.claims, *claim)
	}
}

// has reports whether this process has a hold, or is taking it. If a record names this session and an unknown hold,
// either a write was abandoned or a release has not arrived.
func (l *Leases) has(nonce uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.holds[nonce]
	return has
}

// acquired registers a hold after its record was written. If the session was lost meanwhile, other processes may
// already treat the record as a dead session's.
func (l *Leases) acquired(ctx context.Context, h *held) (refstore.Lock, error) {
	l.mu.Lock()
	delete(l.refused, h.key)
	l.holds[h.nonce] = h
	l.mu.Unlock()
	if err := l.stands(ctx); err != nil {
		if l.final() == nil { // the caller does not wait for the end of a suspension
			l.giveUp(l.session.Load(), h)
			return nil, err
		}
		l.forget(h.claim, h.nonce)
		return nil, err
	}
	if s := l.session.Load(); h.under != s.name() { // it has begun anew since
		if has, err := s.retake(ctx, h); err != nil || !has {
			l.giveUp(s, h)
			return nil, cmp.Or(err, refstore.ErrClaimed)
		}
	}
	slog.Debug("took", "topic", "leases", "record", h.key)
	return h, nil
}

// giveUp cleans up after a write with an unknown outcome.
func (l *Leases) giveUp(s *session, h *held) {
	l.forget(h.claim, h.nonce)
	s.addLooseEnd(looseEnd{key: h.key, nonce: h.nonce, owed: h.previous != nil, late: true})
}

// maxRefused bounds the number of refused locks and claims that are remembered.
const maxRefused = 1 << 14

// wasRefused reports whether the last try found a holder. If so, a read comes first, since it is cheaper than a write
// that fails.
func (l *Leases) wasRefused(key refstore.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, was := l.refused[key]
	return was
}

func (l *Leases) refuse(key refstore.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) >= maxRefused {
		clear(l.refused)
	}
	l.refused[key] = struct{}{}
}

// TryLock implements [refstore.Locker].
func (l *Leases) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	key := lockKey(name)
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("lock %.100q: %w", name, err)
	}
	if len(holder) > maxText {
		return nil, fmt.Errorf("lock %.100q: %w: %d bytes about the holder, at most %d are kept", name, refstore.ErrInvalid, len(holder), maxText)
	}
	s, err := l.use(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %.100q: %w", name, err)
	}
	h := &held{l: l, key: key, nonce: l.attempt(), shared: mode == refstore.Shared}
	lock, err := l.tryLock(ctx, s, h, mode, holder)
	if err != nil {
		l.forget(nil, h.nonce)
		if locked, ok := errors.AsType[*refstore.LockedError](err); ok {
			locked.Name = name
			if !errors.Is(err, refstore.ErrInDoubt) {
				err = locked
			}
			return nil, err
		}
		return nil, fmt.Errorf("lock %.100q: %w", name, err)
	}
	return lock, nil
}

func (l *Leases) tryLock(ctx context.Context, s *session, h *held, mode refstore.Mode, text []byte) (refstore.Lock, error) {
	there := refstore.Record{Key: h.key}
	unread := true // the state of the record is a guess
	if mode == refstore.Shared || l.wasRefused(h.key) {
		unread = false
		var err error
		if there, err = l.read(ctx, h.key); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		rec := &lockRecord{Shared: mode == refstore.Shared}
		h.previous = nil
		if there.Version != refstore.Absent {
			var old lockRecord
			if err := decode(there, &old); err != nil {
				return nil, err
			}
			living, previous, err := l.living(ctx, s, &old)
			if err != nil {
				return nil, err
			}
			if i := len(living); i > 0 && (mode == refstore.Exclusive || !old.Shared) {
				l.refuse(h.key)
				return nil, l.locked(ctx, s, living)
			}
			rec.Holders = living
			// A shared lock that joins others leaves a dead holder's text to them.
			if mode == refstore.Exclusive || !old.Shared {
				h.previous = previous
			}
		}
		h.under = s.name()
		rec.Holders = append(rec.Holders, hold{Session: h.under, Nonce: h.nonce, Text: text, Before: h.previous})
		v, late, err := l.put(ctx, refstore.Record{Key: h.key, Value: encode(rec), Version: there.Version})
		if err == nil {
			h.version, h.sole, h.late = v, len(rec.Holders) == 1, late
			return l.acquired(ctx, h)
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return l.resolve(ctx, s, h, err)
		}
		if !unread {
			if err := l.sleep(ctx, backoff(l.o.TTL, try)); err != nil {
				return nil, err
			}
		}
		unread = false
		if there, err = l.read(ctx, h.key); err != nil {
			return nil, err
		}
		if s.among(there, h.nonce) { // a retry by the store wrote it twice
			h.late = true
			return l.acquired(ctx, h)
		}
	}
}

// backoff is the pause after a lost compare-and-swap; it grows with each try.
func backoff(ttl time.Duration, try int) time.Duration {
	most := min(time.Millisecond<<min(try, 8), ttl/50)
	return most/2 + rand.N(most/2+1)
}

// latest cuts the texts of dead holders to the size of a record, so that a lock survives any number of deaths. A
// claim's record has room for more than a thousand holders. Each holder has handled the texts before it, or died in
// less time than a command takes.
func latest(previous []byte) []byte {
	if len(previous) <= maxText {
		return previous
	}
	return previous[:max(bytes.LastIndexByte(previous[:maxText+1], '\n'), 0)]
}

// living returns the holders of a lock that are not known to be dead, and the texts of the dead, latest first; nil if
// there were none.
func (l *Leases) living(ctx context.Context, s *session, rec *lockRecord) (living []hold, previous []byte, err error) {
	var dead [][]byte
	for _, h := range rec.Holders {
		if s.is(h.Session) {
			if l.has(h.Nonce) {
				living = append(living, h)
			} else if before := h.before(); before != nil { // left by a write that was given up
				dead = slices.Insert(dead, 0, before)
			}
			continue
		}
		v, err := l.judge(ctx, h.Session)
		if err != nil {
			return nil, nil, err
		}
		if v.free {
			dead = slices.Insert(dead, 0, h.chain())
		} else {
			living = append(living, h)
		}
	}
	if dead == nil {
		return living, nil, nil
	}
	return living, latest(bytes.Join(dead, []byte("\n"))), nil
}

// locked returns the error that names a lock's holder. One holder that is known to be alive suffices.
func (l *Leases) locked(ctx context.Context, s *session, living []hold) error {
	locked := &refstore.LockedError{Holder: living[len(living)-1].Text, Pending: maxTTL}
	for _, h := range living {
		var v view
		if !s.is(h.Session) {
			var err error
			if v, err = l.look(ctx, h.Session); err != nil {
				return err
			}
		}
		locked.Pending = min(locked.Pending, v.pending)
	}
	return locked
}

// resolve finds out whether a failed write took a hold.
func (l *Leases) resolve(ctx context.Context, s *session, h *held, err error) (refstore.Lock, error) {
	err = readOnly(err)
	if ctx.Err() == nil {
		there, getErr := l.read(ctx, h.key)
		if getErr == nil && s.among(there, h.nonce) {
			h.version, h.late = there.Version, true
			return l.acquired(ctx, h)
		}
	}
	l.giveUp(s, h)
	switch {
	case !errors.Is(err, refstore.ErrInDoubt):
		return nil, err
	case h.claim != nil: // another process had it meanwhile: the caller can retry
		return nil, fmt.Errorf("%w: %w", refstore.ErrClaimed, err)
	}
	return nil, fmt.Errorf("%w: %w", &refstore.LockedError{Pending: l.o.TTL / 15}, err)
}

// among reports whether a lock or claim record has a hold of this session.
func (s *session) among(r refstore.Record, nonce uint64) bool {
	rec, err := decodeHolds(r)
	return err == nil && slices.ContainsFunc(rec.Holders, func(h hold) bool { return s.is(h.Session) && h.Nonce == nonce })
}

// decodeHolds reads a lock; it reads a claim or a condemned list as a lock with one holder.
func decodeHolds(r refstore.Record) (*lockRecord, error) {
	switch r.Key.Partition {
	case locksPartition:
		rec := new(lockRecord)
		return rec, decode(r, rec)
	case condemnedPartition:
		var rec condemnedRecord
		err := decode(r, &rec)
		return &lockRecord{Holders: []hold{{Session: rec.Session, Nonce: rec.Nonce}}}, err
	}
	var rec claimRecord
	err := decode(r, &rec)
	return &lockRecord{Holders: []hold{rec.hold}}, err
}

// release removes a hold of this session from a lock, or deletes its claim or list, and returns whether it was there.
// With owed, the leftovers of a dead holder from whom the hold was taken over may not have been cleaned up: the
// record then passes to noSession, so that the next holder gets the text.
func (s *session) release(ctx context.Context, key refstore.Key, nonce uint64, owed bool) (was bool, err error) {
	for try := 0; ; try++ {
		there, err := s.l.read(ctx, key)
		if err != nil || there.Version == refstore.Absent {
			return was, err
		}
		rec, err := decodeHolds(there)
		if err != nil {
			return was, err
		}
		left, has := rec.without(s.is, nonce)
		if !has {
			return was, nil
		}
		was = true
		switch {
		case left == nil && owed:
			_, err = s.l.store.Put(ctx, refstore.Record{Key: key, Value: ownerless(there, rec), Version: there.Version})
		case left == nil:
			err = s.l.store.Delete(ctx, key, there.Version)
		default:
			_, err = s.l.store.Put(ctx, refstore.Record{Key: key, Value: encode(left), Version: there.Version})
		}
		if err == nil || errors.Is(err, refstore.ErrNotFound) {
			return was, nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return was, err
		}
		if err := s.l.sleep(ctx, backoff(s.l.o.TTL, try)); err != nil {
			return was, err
		}
	}
}

// ownerless passes the record of a lock or claim with one holder on to noSession.
func ownerless(r refstore.Record, rec *lockRecord) []byte {
	h := hold{Session: noSession, Text: rec.Holders[0].chain()}
	if r.Key.Partition == locksPartition {
		return encode(&lockRecord{Holders: []hold{h}})
	}
	return encode(claimRecord{h})
}

// Holder implements [refstore.Locker]. It writes nothing. A holder counts as alive unless it is known to be dead.
// Repeated calls notice a death within a lease.
func (l *Leases) Holder(ctx context.Context, name string) (holder []byte, isHeld bool, err error) {
	holder, _, isHeld, err = l.HeldBy(ctx, name)
	return holder, isHeld, err
}

// HeldBy implements [refstore.Hearing]. It costs as much as Holder.
func (l *Leases) HeldBy(ctx context.Context, name string) (holder []byte, heard refstore.Heard, isHeld bool, err error) {
	key := lockKey(name)
	if err := errors.Join(key.Validate(), ctx.Err()); err != nil {
		return nil, heard, false, fmt.Errorf("lock %.100q: %w", name, err)
	}
	there, err := l.read(ctx, key)
	if err != nil || there.Version == refstore.Absent {
		return nil, heard, false, err
	}
	var rec lockRecord
	if err := decode(there, &rec); err != nil {
		return nil, heard, false, err
	}
	s := l.session.Load()
	for _, h := range slices.Backward(rec.Holders) {
		if s != nil && s.is(h.Session) {
			if l.has(h.Nonce) {
				return h.text(), heard, true, nil
			}
			continue
		}
		v, err := l.look(ctx, h.Session)
		if err != nil {
			return nil, heard, false, err
		}
		if !v.free && !v.expired {
			return h.text(), v.heard(), true, nil
		}
	}
	return nil, heard, false, nil
}
