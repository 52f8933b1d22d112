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

// session is this process's own. One goroutine writes its record, one looks after the epoch and loose ends, one watches the
// clock.
type session struct {
	l     *Leases
	id    string
	began time.Time
	ahead time.Duration // of the lease's clock, when it began: this machine's, see Sending
	sent  atomic.Int64  // when the last renewal that succeeded was sent, by Options.Elapsed

	ctx  context.Context // ends with the session
	end  context.CancelFunc
	done sync.WaitGroup
	wake chan struct{} // has the writer write at once
	look chan struct{} // has the follower look after the epoch at once

	mu       sync.Mutex
	wanted   uint64        // counts what is to be written
	written  uint64        // up to where it was
	progress chan struct{} // closed, and replaced, when written grows
	protects map[*protection]struct{}
	released []*protection // that are to end with the collection
	larges   uint64        // numbers given to records of protected names
	relied   map[[32]byte]reliance
	queue    [][32]byte // relied on, to be written
	epoch    uint64     // the collection that is under way; 0 if there is none
	answered uint64     // the last one that this session answers
	loose    []looseEnd

	past uint64 // a collection whose collector died and has settled; of the goroutine that follows, or of who begins

	writer // of the goroutine that writes, or of who begins or closes the session
}

// writer is what is known of the session's records.
type writer struct {
	version refstore.Version
	beat    uint64
	parts   uint64     // that are written
	tail    [][32]byte // names that are in no part
	trying  int        // how many of them the part has that is being written; it may be there already
	public  int        // how many of them are in the record
	unsaid  [][32]byte // names that are to be called public after the next write
	said    uint64     // the last collection that the record answers
}

func (s *session) renewed() time.Duration { return time.Duration(s.sent.Load()) }

// begin makes the session's record and then looks for an epoch: a collector that does not see the record has raised its
// epoch before, and is found.
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
		l: l, id: id.String(), began: began, ahead: l.ahead(time.Now()),
		wake: make(chan struct{}, 1), look: make(chan struct{}, 1), progress: make(chan struct{}),
		protects: make(map[*protection]struct{}), relied: make(map[[32]byte]reliance),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	openSessions.Store(s.id, nil)
	err = s.write(ctx)
	if err == nil {
		err = s.follow(ctx)
	}
	if err != nil {
		s.end()
		openSessions.Delete(s.id)
		// A record that arrives late is that of a session which never renews it.
		ctx, cancel := l.detached(ctx)
		defer cancel()
		if r, getErr := l.store.Get(ctx, sessionKey(s.id)); getErr == nil {
			err = errors.Join(err, l.store.Delete(ctx, r.Key, r.Version))
		}
		return nil, err
	}
	l.session.Store(s)
	s.done.Go(s.beats)
	s.done.Go(s.follows)
	s.done.Go(s.watch)
	return s, nil
}

// watch finds out when the session is lost though nothing returns, and after the machine or the process has slept.
func (s *session) watch() {
	for {
		if s.l.Held() != nil {
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

// beats renews the session every third of a lease, a little early so that not all do it together, and when there is
// something to be written.
func (s *session) beats() {
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
		if s.l.Held() != nil || s.ctx.Err() != nil {
			return
		}
		// A request that got lost is not waited for: its connection backs off for longer than the network was away.
		ctx, cancel := context.WithTimeout(s.ctx, min(s.renewed()+s.l.limit()-s.l.o.Elapsed(), s.l.o.TTL/4))
		err := s.write(ctx)
		cancel()
		slog.Debug("renew", "topic", "leases", "session", s.id, "lease", s.l.o.TTL, "error", err)
		if err != nil {
			s.l.failure.Store(&err)
			failed++
			continue
		}
		s.l.failure.Store(nil)
		failed = 0
		if now := s.l.o.Elapsed(); now-looked >= s.l.o.TTL/4 { // not with each write in between
			looked = now
			signal(s.look)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting already
	}
}

// want makes the writer write, and returns what wait waits for. It is called under mu.
func (s *session) want() uint64 {
	s.wanted++
	signal(s.wake)
	return s.wanted
}

// wait returns once what was wanted is in the store.
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
			return s.l.Held()
		case <-s.ctx.Done():
			if err := s.l.Held(); err != nil {
				return err
			}
			return s.ctx.Err()
		}
	}
}

// write brings the records up to date. Parts that take long are left to the next write, so that the session is renewed.
func (s *session) write(ctx context.Context) error {
	s.mu.Lock()
	wanted, answered := s.wanted, s.answered
	s.tail, s.unsaid = append(s.tail, s.queue...), append(s.unsaid, s.queue...)
	s.queue = nil
	rec := s.record()
	rec.Protected, rec.Large = s.protected()
	s.mu.Unlock()
	all, partsErr := s.writeParts(ctx)
	rec.Parts, rec.Epoch = s.parts, s.said
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
	s.public, s.said = len(s.tail), answered
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.unsaid {
		if s.relied[name] == queued {
			s.relied[name] = public
		}
	}
	s.unsaid = nil
	s.written = wanted
	close(s.progress)
	s.progress = make(chan struct{})
	return nil
}

// record is what the session's record always says.
func (s *session) record() sessionRecord {
	return sessionRecord{Owner: s.l.own, Began: s.began.UnixNano(), TTL: s.l.o.TTL.Milliseconds(), At: time.Now().UnixNano(), State: alive}
}

// Names that a session relies on are in its record up to maxTail, and up to maxPart in each record beside it: the record
// stays small, as it is written with each beat, and so does the number of parts.
const (
	maxTail = 128
	maxPart = 8192
)

// writeParts writes parts until few names are left for the record, and returns whether it got there in a tenth of a lease.
// Parts never change.
func (s *session) writeParts(ctx context.Context) (all bool, err error) {
	for began := s.l.o.Elapsed(); len(s.tail) > maxTail; {
		if s.l.o.Elapsed()-began > s.l.o.TTL/10 {
			return false, nil
		}
		if s.trying == 0 {
			s.trying = min(len(s.tail), maxPart)
		}
		r := refstore.Record{Key: part(reliedPartition, s.id, s.parts), Value: flat(s.tail[:s.trying])}
		if _, err := s.l.store.Put(ctx, r); err != nil {
			there, getErr := s.l.store.Get(ctx, r.Key)
			if getErr != nil || !bytes.Equal(there.Value, r.Value) {
				return false, fmt.Errorf("write down what the session relies on: %w", err)
			}
		}
		s.tail = slices.Clone(s.tail[s.trying:])
		s.public = max(0, s.public-s.trying)
		s.trying = 0
		s.parts++
	}
	return true, nil
}

// put writes the session's record. A failure that may have taken effect is resolved by reading.
func (s *session) put(ctx context.Context, rec sessionRecord) error {
	key := sessionKey(s.id)
	s.beat++
	rec.Beat = s.beat
	value := encode(rec)
	for {
		sent := s.l.o.Elapsed()
		v, err := s.l.store.Put(ctx, refstore.Record{Key: key, Value: value, Version: s.version})
		if err == nil {
			s.version = v
			s.sent.Store(int64(sent))
			s.l.o.Renewed(sent)
			return nil
		}
		r, getErr := s.l.store.Get(ctx, key)
		switch {
		case errors.Is(getErr, refstore.ErrNotFound) && s.version == refstore.Absent:
			return err
		case getErr != nil && !errors.Is(getErr, refstore.ErrNotFound):
			return fmt.Errorf("renew the session: %w", errors.Join(err, getErr))
		}
		there, standErr := s.l.standing(r, getErr)
		if standErr != nil {
			return standErr
		}
		if bytes.Equal(r.Value, value) { // it took effect
			s.version = r.Version
			s.sent.Store(int64(sent))
			s.l.o.Renewed(sent)
			return nil
		}
		if r.Version == s.version {
			return fmt.Errorf("renew the session: %w", err)
		}
		if there.Beat >= rec.Beat {
			s.l.lose("its record was written by somebody else")
			return s.l.Held()
		}
		// An earlier write has arrived after all.
		s.version = r.Version
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
