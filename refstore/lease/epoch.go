package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"e3/refstore"
)

// followLoop checks the epoch and the loose ends after each renewal.
func (s *session) followLoop() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.look:
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.l.o.TTL)
		_ = s.follow(ctx) // on failure the next beat tries again; until then the collector waits
		s.resolveLooseEnds(ctx)
		cancel()
	}
}

// follow checks whether a collection is in progress, and answers it.
func (s *session) follow(ctx context.Context) error {
	rec, _, err := s.l.epoch(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.idle.looked = nil
	if rec.Session == "" {
		s.idle.looked = &rec.Number
	}
	s.mu.Unlock()
	switch {
	case rec.Session == "" || rec.Number == s.idle.dead:
		s.leave(rec.Number)
	case rec.Session == s.name():
		if s.l.collecting() == rec.Number {
			s.enter(rec.Number)
		} else if s.l.unsettled() > 0 {
			s.enter(rec.Number) // this session answers its own collection too
		} else { // an earlier lower failed or had to wait
			return s.l.endEpoch(ctx, s, rec.Number)
		}
	default:
		safe, err := s.l.harmless(ctx, rec.Session)
		if err != nil {
			return err
		}
		if safe {
			s.idle.dead = rec.Number
			s.leave(rec.Number)
		} else {
			s.enter(rec.Number)
		}
	}
	return nil
}

// epoch reads the record of the epoch.
func (t *table) epoch(ctx context.Context) (epochRecord, refstore.Version, error) {
	var rec epochRecord
	r, err := t.read(ctx, epochKey)
	if err == nil && r.Version != refstore.Absent {
		err = decode(r, &rec)
	}
	if err != nil {
		return rec, "", fmt.Errorf("is a collection under way: %w", err)
	}
	return rec, r.Version, nil
}

// collection is a collection run by this process.
type collection struct {
	l     *Leases
	s     *session
	epoch uint64

	shared  bool // begun by Condemn; Leases.joining guards sharers
	sharers int

	mu    sync.Mutex
	lists map[byte]uint64 // nonces of the lists of condemned names that are in place

	reading chan struct{}         // holds a token while parts are read, or their names are used
	relied  map[[32]byte]struct{} // names that any session relies on, as read from parts
	parts   map[string]uint64     // number of parts read of each session
}

// collecting returns the epoch of this process's collection, 0 if there is none.
func (l *Leases) collecting() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.collect == nil {
		return 0
	}
	return l.collect.epoch
}

// Quiesce implements [refstore.Barrier]. The caller ensures that there is one collection at a time; if another is
// nevertheless in progress, the error is a [*refstore.LockedError].
func (l *Leases) Quiesce(ctx context.Context) (end func(), err error) {
	c, err := l.quiesce(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin a collection: %w", readOnly(err))
	}
	return sync.OnceFunc(c.end), nil
}

func (l *Leases) quiesce(ctx context.Context) (*collection, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	c := &collection{l: l, s: s, lists: make(map[byte]uint64), reading: make(chan struct{}, 1), relied: make(map[[32]byte]struct{}), parts: make(map[string]uint64)}
	if err := c.raise(ctx); err != nil {
		return nil, err
	}
	s.enter(c.epoch)
	err = c.clear(ctx)
	if err == nil {
		err = c.gather(ctx)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// raise sets the epoch, which begins a collection.
func (c *collection) raise(ctx context.Context) error {
	for try := 0; ; try++ {
		rec, version, err := c.l.epoch(ctx)
		if err != nil {
			return err
		}
		switch rec.Session {
		case "":
		case c.s.name():
			if c.l.collecting() != 0 {
				return &refstore.LockedError{Name: "collection", Holder: []byte(c.l.own.words())}
			}
			if wait := c.l.unsettled(); wait > 0 {
				return &refstore.UnsettledError{Session: c.l.own.words(), Wait: wait}
			}
		default:
			if err := c.settled(ctx, rec.Session); err != nil {
				return err
			}
		}
		next := epochRecord{Number: rec.Number + 1, Session: c.s.name()}
		c.l.mu.Lock()
		if c.l.collect != nil {
			c.l.mu.Unlock()
			return &refstore.LockedError{Name: "collection", Holder: []byte(c.l.own.words())}
		}
		c.epoch = next.Number
		c.l.collect = c
		c.l.mu.Unlock()
		_, err = c.l.store.Put(ctx, refstore.Record{Key: epochKey, Value: encode(next), Version: version})
		if err == nil {
			return nil
		}
		now, _, readErr := c.l.epoch(ctx)
		if readErr == nil && now == next {
			return nil
		}
		c.l.mu.Lock()
		c.l.collect = nil
		c.l.mu.Unlock()
		if !errors.Is(err, refstore.ErrConflict) {
			return err // if the write arrives late, follow lowers the epoch
		}
		if err := c.l.sleep(ctx, backoff(c.l.o.TTL, try)); err != nil {
			return err
		}
	}
}

// settled returns nil once no request of another collector can still arrive, else an error with the reason. It waits at
// most [lingers]. A stopped collector sends nothing after it resumes: each request asks Held first.
func (c *collection) settled(ctx context.Context, session string) error {
	for try := 0; ; try++ {
		v, err := c.l.judgeNow(ctx, session)
		if err != nil {
			return err
		}
		if !v.free {
			return &refstore.LockedError{Name: "collection", Holder: []byte(v.rec.Owner.words()), Pending: v.pending}
		}
		wait, err := c.l.settled(ctx, session, v)
		if err != nil || wait == 0 {
			return err
		}
		if !v.gone {
			return &refstore.UnsettledError{Session: v.rec.Owner.words(), Wait: wait}
		}
		if err := c.l.pause(ctx, try); err != nil {
			return err
		}
	}
}

// clear removes the lists of earlier collections.
func (c *collection) clear(ctx context.Context) error {
	for r, err := range c.l.store.List(ctx, refstore.Query{Partition: condemnedPartition}) {
		if err != nil {
			return err
		}
		var rec condemnedRecord
		if err := decode(r, &rec); err != nil {
			return err
		}
		if rec.Session != c.s.name() {
			if err := c.settled(ctx, rec.Session); err != nil {
				return err
			}
		}
		if err := c.l.store.Delete(ctx, r.Key, r.Version); err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
	}
	return nil
}

// gather waits until every session has answered.
func (c *collection) gather(ctx context.Context) error {
	for try := 0; ; try++ {
		waiting := 0
		for r, err := range c.l.store.List(ctx, refstore.Query{Partition: sessionsPartition}) {
			if err != nil {
				return err
			}
			answered, err := c.answered(ctx, r)
			if err != nil {
				return err
			}
			if !answered {
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := c.l.pause(ctx, try); err != nil {
			return err
		}
	}
}

// answered reports whether a session has answered, or need not answer.
func (c *collection) answered(ctx context.Context, r refstore.Record) (bool, error) {
	id := r.Key.Sort
	v, err := c.l.observe(r)
	if err != nil {
		return false, err
	}
	if id == c.s.name() {
		_, err := c.l.checkOwn(r, nil)
		return v.rec.Epoch == c.epoch, err
	}
	if v, err = c.l.markExpired(ctx, id, v, nil); err != nil {
		return false, err
	}
	switch {
	case v.version == refstore.Absent, v.rec.Epoch == c.epoch:
		return true, nil
	case !v.free:
		return false, nil
	case v.blocksCollections():
		return false, &refstore.UnsettledError{Session: v.rec.Owner.words(), PID: v.rec.Owner.PID}
	case c.l.o.Fenced:
		return true, nil
	}
	wait, err := c.l.settled(ctx, id, v)
	if err == nil && wait > 0 && !v.gone {
		err = &refstore.UnsettledError{Session: v.rec.Owner.words(), Wait: wait}
	}
	return err == nil && wait == 0, err
}

// end lowers the epoch and removes the collection's lists. If deletions may still arrive, the epoch stays in force
// until they have settled, so that sessions keep reading the lists.
func (c *collection) end() {
	ctx, cancel := c.l.o.detached(context.Background())
	defer cancel()
	c.mu.Lock()
	unanswered := maps.Clone(c.lists)
	c.mu.Unlock()
	c.l.mu.Lock()
	c.l.collect = nil
	if len(unanswered) > 0 {
		c.l.unanswered, c.l.settledAt = unanswered, c.l.o.Elapsed()+c.l.o.Settle
	}
	c.l.mu.Unlock()
	if len(unanswered) > 0 || c.l.endEpoch(ctx, c.s, c.epoch) != nil {
		return // follow retries it later
	}
	_, _ = c.l.Sweep(ctx) // it removes sessions that ended meanwhile; after a failure a later sweep does
}

// unsettled returns the time for which unanswered deletions of this process may still arrive.
func (l *Leases) unsettled() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unanswered) == 0 {
		return 0
	}
	return max(l.settledAt-l.o.Elapsed(), 0)
}

// endEpoch ends an epoch of this session once its lists are settled.
func (l *Leases) endEpoch(ctx context.Context, s *session, number uint64) error {
	l.mu.Lock()
	unanswered := l.unanswered
	l.mu.Unlock()
	for shard, nonce := range unanswered {
		if _, err := s.release(ctx, condemnedKey(shard), nonce, false); err != nil {
			return err
		}
	}
	if len(unanswered) > 0 && l.unsettled() == 0 {
		l.mu.Lock()
		l.unanswered = nil
		l.mu.Unlock()
	}
	s.leave(number)
	return l.lower(ctx, s, number)
}

// lower ends an epoch of this session.
func (l *Leases) lower(ctx context.Context, s *session, number uint64) error {
	rec, version, err := l.epoch(ctx)
	if err != nil || rec.Session != s.name() || rec.Number != number {
		return err
	}
	rec.Session = ""
	_, err = l.store.Put(ctx, refstore.Record{Key: epochKey, Value: encode(rec), Version: version})
	return err
}
