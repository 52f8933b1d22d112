package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"e3/refstore"
)

// A session that was found dead can go on under another id, if [Options.Retake] is set, no other process has taken its
// locks, and no collection has passed it over. Until that is certain, the session is suspended.
//
//  1. It begins a new record, which dates from the beginning of the old one. So it protects the same objects.
//  2. No collection may have passed the dead record over: either its requests have still not settled once the new
//     record exists (with [Options.Fenced] a collection does not wait for that), or no collection has begun since the session last looked.
//  3. It writes down every name that it relies on, and takes each hold again by compare-and-swap of the record that
//     still names it. Observers change that record before they rely on a hold being free, so an unchanged one was never
//     another's.
//
// An exclusive lock that another process has taken ends the session. A taken claim does not: the taker has fenced off
// the holder's writes, and their conflicts tell the holder.
type identity struct {
	mu     sync.Mutex
	id     string
	former []string // ids under which holds may still be on record
}

// errBuried is the reason of a suspension after which the session begins anew.
var errBuried = errors.New("another process has declared this session dead")

// name is the id of the session's record.
func (n *identity) name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id
}

// idleEpochs are the numbers of collections that had ended when the session looked; nil if a collection was in
// progress, or the session has not looked.
type idleEpochs struct {
	looked *uint64 // by the last look
	proven *uint64 // by a look before a successful renewal, so the session was alive at the look
	dead   uint64  // a settled collection of a dead collector; used by followLoop and begin alone
}

// is reports whether an id is, or was, this session's.
func (n *identity) is(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return id == n.id || slices.Contains(n.former, id)
}

func (n *identity) rename(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.former, n.id = append(n.former, n.id), id
}

// bury suspends a session whose record says that it is dead, until it has begun anew. It returns false if the session
// has to end. death is nil if the session's record is gone.
func bury(l *Leases, s *session, death *deathRecord) bool {
	if !l.o.Retake || s == nil || death != nil && death.Closed || l.collecting() != 0 || l.unsettled() > 0 {
		return false
	}
	if !l.suspend(s.renewed(), l.o.Elapsed()-s.renewed(), l.o.limit(), true) {
		return false
	}
	slog.Debug("buried", "topic", "leases", "session", s.name())
	signal(s.wake)
	return true
}

// beginAnew gives a buried session another id and record.
func (s *session) beginAnew(ctx context.Context) error {
	l := s.l
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	rec := s.record()
	rec.Beat = s.beat + 1
	openSessions.Store(id.String(), nil)
	sent := l.o.Elapsed()
	v, err := l.store.Put(ctx, refstore.Record{Key: sessionKey(id.String()), Value: encode(rec)})
	if err != nil { // if the record arrives late, nothing renews it
		openSessions.Delete(id.String())
		return fmt.Errorf("begin the session anew: %w", err)
	}
	old := s.name()
	if err := s.continuous(ctx, old); err != nil {
		_ = l.store.Delete(ctx, sessionKey(id.String()), v)
		openSessions.Delete(id.String())
		return err
	}
	s.mu.Lock()
	large := s.anew()
	s.mu.Unlock()
	if err := s.moveLarge(ctx, old, id.String(), large); err != nil {
		_ = l.store.Delete(ctx, sessionKey(id.String()), v)
		openSessions.Delete(id.String())
		return err
	}
	s.rename(id.String())
	openSessions.Delete(old) // other sessions of this process close its record
	s.beat, s.version = rec.Beat, v
	s.retaking = true
	disinter(&l.suspension)
	s.sent.Store(int64(sent))
	_, _ = l.markClosed(ctx, old) // otherwise it blocks collections until it is swept
	return nil
}

// continuous checks that no collection has passed over the objects that a dead record of this session protects.
func (s *session) continuous(ctx context.Context, old string) error {
	r, err := s.l.read(ctx, sessionKey(old))
	if err != nil {
		return err
	}
	epoch, _, err := s.l.epoch(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	idle := s.idle.proven != nil && epoch.Session == "" && *s.idle.proven == epoch.Number
	s.mu.Unlock()
	if idle {
		return nil
	}
	if r.Version != refstore.Absent && !s.l.o.Fenced {
		v := view{version: r.Version}
		if err := decode(r, &v.rec); err != nil {
			return err
		}
		if wait, _, err := s.l.settling(ctx, v); err != nil || wait > 0 {
			return err
		}
	}
	s.l.lose("another process has found it dead, and what it has stored may have been collected since")
	return s.l.final()
}

// anew forgets which of the relied names are on record: all of them are to be written again, and until the session
// has looked it is unknown whether a collection is in progress. It returns the large protected sets. The caller holds
// mu.
func (s *session) anew() (large []uint64) {
	s.tail = s.tail[:0:0]
	for name := range s.relied {
		s.tail = append(s.tail, name)
	}
	s.queue, s.toPublish = nil, nil
	for name, state := range s.relied {
		if state == queued {
			s.toPublish = append(s.toPublish, name)
		}
	}
	s.parts, s.trying, s.public, s.epochWritten, s.answered = 0, 0, 0, 0, 0
	s.epoch = unknownEpoch
	s.idle.looked, s.idle.proven = nil, nil
	_, large = s.protected()
	return large
}

// unknownEpoch is the epoch while it is unknown whether a collection is in progress: names are written down before they
// are relied on.
const unknownEpoch = 1 << 63

// moveLarge copies the records of large protected sets to another id.
func (s *session) moveLarge(ctx context.Context, from, to string, large []uint64) error {
	for _, n := range large {
		r, err := s.l.store.Get(ctx, part(protectedPartition, from, n))
		if errors.Is(err, refstore.ErrNotFound) {
			s.l.lose("another process has found it dead and removed what it protects")
			return s.l.final()
		}
		if err == nil {
			_, err = s.l.store.Put(ctx, refstore.Record{Key: part(protectedPartition, to, n), Value: r.Value})
		}
		if err != nil {
			return fmt.Errorf("begin the session anew: %w", err)
		}
	}
	return nil
}

// retakeAll takes the session's holds again under its new id, and looks for a collection.
func (s *session) retakeAll(ctx context.Context) error {
	rec, _, err := s.l.epoch(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.epoch == unknownEpoch {
		s.epoch = 0
		if rec.Session != "" {
			s.enterLocked(rec.Number)
		}
	}
	s.mu.Unlock()
	s.l.mu.Lock()
	list := make([]*held, 0, len(s.l.holds))
	for _, h := range s.l.holds {
		if h != nil {
			list = append(list, h)
		}
	}
	s.l.mu.Unlock()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, h := range list {
		g.Go(func() error {
			if _, err := s.retake(ctx, h); err != nil {
				return fmt.Errorf("take %q again: %w", h.key, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.retaking = false
	return nil
}

// retake takes a hold of a former record of this session again. It returns false if the hold was released, or is a
// claim that another process has taken since.
func (s *session) retake(ctx context.Context, h *held) (bool, error) {
	h.lapsed.Store(true)
	for try := 0; ; try++ {
		if h.released.Load() {
			return false, nil
		}
		there, err := s.l.read(ctx, h.key)
		if err != nil {
			return false, err
		}
		rec := &lockRecord{}
		if there.Version != refstore.Absent {
			if rec, err = decodeHolds(there); err != nil {
				return false, err
			}
		}
		name := s.name()
		i := slices.IndexFunc(rec.Holders, func(o hold) bool { return s.is(o.Session) && o.Nonce == h.nonce })
		switch {
		case i >= 0 && rec.Holders[i].Session == name:
			h.setVersion(there.Version)
			return true, nil
		case i >= 0:
			rec.Holders[i].Session = name
		case h.claim != nil:
			slog.Debug("lost", "topic", "leases", "record", h.key)
			return false, nil // the taker has fenced off what was made under the claim
		case h.shared && (there.Version == refstore.Absent || rec.Shared):
			rec.Shared = true
			rec.Holders = append(rec.Holders, hold{Session: name, Nonce: h.nonce})
		case h.released.Load():
			return false, nil
		default:
			s.l.lose(fmt.Sprintf("another process has found it dead and taken over %s", h.key.Sort))
			return false, s.l.final()
		}
		value := encode(rec)
		if h.claim != nil {
			value = encode(claimRecord{rec.Holders[0]})
		}
		v, err := s.l.store.Put(ctx, refstore.Record{Key: h.key, Value: value, Version: there.Version})
		if err == nil {
			h.setVersion(v)
			slog.Debug("took again", "topic", "leases", "record", h.key)
			return true, nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return false, err
		}
		if err := s.l.sleep(ctx, backoff(s.l.o.TTL, try)); err != nil {
			return false, err
		}
	}
}

// Lapsed implements [refstore.Lapsing].
func (h *held) Lapsed() bool { return h.lapsed.Load() }
