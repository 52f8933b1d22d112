package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"e3/refstore"
)

// session is this process's session. One goroutine writes its record, one checks the epoch and loose ends, one
// watches the clock.
type session struct {
	identity
	l     *Leases
	began time.Time
	ahead time.Duration // lead of the wall clock over the lease's clock at the beginning, see Sending
	sent  atomic.Int64  // when the last successful renewal was sent, by Options.Elapsed

	ctx  context.Context // ends with the session
	end  context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // makes the writer write at once
	look chan struct{} // makes the follower check the epoch at once

	mu       sync.Mutex
	wanted   uint64        // number of the last requested write
	written  uint64        // number of the last completed write
	progress chan struct{} // closed, and replaced, when written grows
	roots
	epoch    uint64 // the collection in progress; 0 if there is none
	answered uint64 // the last collection that this session answers
	idle     idleEpochs
	loose    []looseEnd

	writer // used by renewLoop, and while the session begins or closes
}

// roots protect objects from collection. session.mu guards them.
type roots struct {
	protects map[*protection]struct{}
	released []*protection // end with the collection
	larges   uint64        // numbers given to records of protected names
	relied   map[[32]byte]reliance
	queue    [][32]byte // relied on, to be written
}

// writer is the known state of the session's records.
type writer struct {
	version      refstore.Version
	beat         uint64
	parts        uint64     // parts in the store
	tail         [][32]byte // names that are not in a part
	trying       int        // names in the part that is being written; it may already exist
	public       int        // names in the record
	toPublish    [][32]byte // names that become public with the next write
	epochWritten uint64     // the last collection that the record answers
	retaking     bool       // the record is new, and not all holds name it
}

func (s *session) renewed() time.Duration { return time.Duration(s.sent.Load()) }

// begin creates the session's record and then looks for an epoch. So if a collector does not see the record, it has
// raised its epoch before, and begin sees the epoch.
func (l *Leases) begin(ctx context.Context) (*session, error) {
	began, err := l.now(ctx)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	s := &session{
		l: l, identity: identity{id: id.String()}, began: began, ahead: l.ahead(time.Now()),
		wake: make(chan struct{}, 1), look: make(chan struct{}, 1), progress: make(chan struct{}),
		roots: roots{protects: make(map[*protection]struct{}), relied: make(map[[32]byte]reliance)},
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	openSessions.Store(s.name(), nil)
	err = s.write(ctx)
	if err == nil {
		err = s.follow(ctx)
	}
	if err != nil {
		s.end()
		openSessions.Delete(s.name())
		// If the record arrives late, nothing renews it.
		ctx, cancel := l.o.detached(ctx)
		defer cancel()
		if r, getErr := l.store.Get(ctx, sessionKey(s.name())); getErr == nil {
			err = errors.Join(err, l.store.Delete(ctx, r.Key, r.Version))
		}
		return nil, err
	}
	l.session.Store(s)
	s.done.Go(s.renewLoop)
	s.done.Go(s.followLoop)
	s.done.Go(s.watch)
	return s, nil
}

// watch detects a lost session while a request hangs, and after the machine or the process has slept.
func (s *session) watch() {
	for {
		if s.l.Held() != nil && s.l.final() != nil {
			s.end()
		}
		t := time.NewTimer(max(s.l.o.TTL/15, time.Millisecond))
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// renewLoop renews the session every third of a lease, and for every wanted write. It renews a little early, so that
// sessions spread out.
func (s *session) renewLoop() {
	failed := 0
	looked := s.l.o.Elapsed()
	for {
		wait, wake := s.l.o.TTL/3*time.Duration(80+rand.IntN(20))/100, s.wake
		if failed > 0 {
			wait, wake = s.l.o.TTL/150<<min(failed, 3)*time.Duration(50+rand.IntN(50))/100, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-wake:
			t.Stop()
		case <-t.C:
		}
		// Do not wait for a lost request: its connection backs off for longer than the outage.
		patience := s.l.o.TTL / 4
		if s.l.Held() == nil {
			patience = min(s.renewed()+s.l.o.limit()-s.l.o.Elapsed(), patience)
		} else if s.l.final() != nil {
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		err := s.write(ctx)
		cancel()
		slog.Debug("renew", "topic", "leases", "session", s.name(), "lease", s.l.o.TTL, "error", err)
		if err != nil {
			s.l.failure.Store(&err)
			failed++
			continue
		}
		s.l.failure.Store(nil)
		failed = 0
		if now := s.l.o.Elapsed(); now-looked >= s.l.o.TTL/4 { // not after each write in between
			looked = now
			signal(s.look)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is already pending
	}
}

// want requests a write, and returns the number to wait for. The caller holds mu.
func (s *session) want() uint64 {
	s.wanted++
	signal(s.wake)
	return s.wanted
}

// wait returns once the wanted write is in the store.
func (s *session) wait(ctx context.Context, wanted uint64) error {
	for {
		s.mu.Lock()
		written, progress := s.written, s.progress
		s.mu.Unlock()
		if written >= wanted {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.l.lost:
			return s.l.final()
		case <-s.ctx.Done():
			if err := s.l.final(); err != nil {
				return err
			}
			return s.ctx.Err()
		}
	}
}

// write updates the records. If parts are slow, the rest waits for the next write, so that the renewal is not delayed.
func (s *session) write(ctx context.Context) error {
	if s.l.buried() {
		if err := s.beginAnew(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	wanted, answered := s.wanted, s.answered
	s.tail, s.toPublish = append(s.tail, s.queue...), append(s.toPublish, s.queue...)
	s.queue = nil
	rec := s.record()
	rec.Protected, rec.Large = s.protected()
	s.mu.Unlock()
	all, partsErr := s.writeParts(ctx)
	rec.Parts, rec.Epoch = s.parts, s.epochWritten
	names := s.tail[:s.public]
	if all {
		names, rec.Epoch = s.tail, answered
	}
	rec.Relied = flat(names)
	if err := s.put(ctx, rec); err != nil {
		return err
	}
	if !all {
		signal(s.wake)
		return partsErr
	}
	if s.retaking {
		if err := s.retakeAll(ctx); err != nil {
			return err
		}
		s.l.resume(time.Duration(s.sent.Load()))
	}
	s.public, s.epochWritten = len(s.tail), answered
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.toPublish {
		if s.relied[name] == queued {
			s.relied[name] = public
		}
	}
	s.toPublish = nil
	s.idle.proven = s.idle.looked
	s.written = wanted
	close(s.progress)
	s.progress = make(chan struct{})
	return nil
}

// record returns the session's record with its constant fields.
func (s *session) record() sessionRecord {
	return sessionRecord{Owner: s.l.own, Began: s.began.UnixNano(), TTL: s.l.o.TTL.Milliseconds(), At: time.Now().UnixNano(), State: alive}
}

// The session's record holds up to maxTail relied names, and each part up to maxPart. So the record stays small, since
// it is written with each beat, and so does the number of parts.
const (
	maxTail = 128
	maxPart = 8192
)

// writeParts writes parts until few names are left for the record. all says whether it finished within a tenth of a
// lease. Parts never change.
func (s *session) writeParts(ctx context.Context) (all bool, err error) {
	for began := s.l.o.Elapsed(); len(s.tail) > maxTail; {
		if s.l.o.Elapsed()-began > s.l.o.TTL/10 {
			return false, nil
		}
		if s.trying == 0 {
			s.trying = min(len(s.tail), maxPart)
		}
		r := refstore.Record{Key: part(reliedPartition, s.name(), s.parts), Value: flat(s.tail[:s.trying])}
		if _, err := s.l.store.Put(ctx, r); err != nil {
			there, getErr := s.l.store.Get(ctx, r.Key)
			if getErr != nil || !bytes.Equal(there.Value, r.Value) {
				return false, fmt.Errorf("write down the names that the session relies on: %w", err)
			}
		}
		s.tail = slices.Clone(s.tail[s.trying:])
		s.public = max(0, s.public-s.trying)
		s.trying = 0
		s.parts++
	}
	return true, nil
}

// put writes the session's record. If a failed write may have taken effect, a read decides.
func (s *session) put(ctx context.Context, rec sessionRecord) error {
	key := sessionKey(s.name())
	s.beat++
	rec.Beat = s.beat
	value := encode(rec)
	for {
		sent := s.l.o.Elapsed()
		v, err := s.l.store.Put(ctx, refstore.Record{Key: key, Value: value, Version: s.version})
		if err == nil {
			s.succeeded(v, sent)
			return nil
		}
		r, getErr := s.l.store.Get(ctx, key)
		switch {
		case errors.Is(getErr, refstore.ErrNotFound) && s.version == refstore.Absent:
			return err
		case getErr != nil && !errors.Is(getErr, refstore.ErrNotFound):
			return fmt.Errorf("renew the session: %w", errors.Join(err, getErr))
		}
		there, standErr := s.l.checkOwn(r, getErr)
		if standErr != nil {
			return standErr
		}
		if s.l.buried() {
			return errBuried
		}
		if bytes.Equal(r.Value, value) { // it took effect
			s.succeeded(r.Version, sent)
			return nil
		}
		if r.Version == s.version {
			return fmt.Errorf("renew the session: %w", err)
		}
		if there.Beat >= rec.Beat {
			s.l.lose("its record was written by another process")
			return s.l.final()
		}
		// An earlier write has arrived late.
		s.version = r.Version
	}
}

// succeeded notes a successful renewal that was sent at the given time.
func (s *session) succeeded(v refstore.Version, sent time.Duration) {
	now := s.l.o.Elapsed() // this answer may have taken long, and so may the answers to other sessions' renewals
	if before := time.Duration(s.sent.Load()); before != 0 && now-before > s.l.tardy() {
		s.l.disturbed.Store(int64(now))
	}
	s.l.watcher.renewed.Store(int64(sent))
	s.version = v
	s.sent.Store(int64(sent))
	s.l.o.Renewed(sent)
	if !s.retaking {
		s.l.resume(sent)
	}
}

// flat joins names.
func flat(names [][32]byte) []byte {
	data := make([]byte, 0, 32*len(names))
	for _, name := range names {
		data = append(data, name[:]...)
	}
	return data
}
