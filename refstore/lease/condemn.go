package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/refstore"
)

// MaxCondemned is the limit of objects that are condemned at a time.
const MaxCondemned = 1 << 16

// Condemn announces that objects of one shard (names that begin with that byte) are about to be deleted, and returns
// the names that no session relies on. The caller may delete only these, and only while [Leases.Held] returns nil.
// Condemn is part of the collection that [Leases.Quiesce] began; without a collection it begins one, which lasts
// until done is called. A shard has one list at a time. The caller calls done once every deletion was answered. If an
// answer is missing, the deletion may still arrive: the caller then leaves the list in place, so that no session
// relies on its names before the deletion has settled.
func (l *Leases) Condemn(ctx context.Context, shard byte, names [][32]byte) (free [][32]byte, done func(context.Context) error, err error) {
	free, done, err = l.condemn(ctx, shard, names)
	if err != nil {
		return nil, nil, fmt.Errorf("condemn %d objects of shard %02x: %w", len(names), shard, err)
	}
	return free, done, nil
}

func (l *Leases) condemn(ctx context.Context, shard byte, names [][32]byte) (free [][32]byte, done func(context.Context) error, err error) {
	if err := errors.Join(l.Held(), ctx.Err()); err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, func(context.Context) error { return nil }, nil
	}
	if len(names) > MaxCondemned {
		return nil, nil, fmt.Errorf("%w: at most %d at a time", refstore.ErrInvalid, MaxCondemned)
	}
	c, leave, err := l.join(ctx)
	if err != nil {
		return nil, nil, err
	}
	free, remove, err := c.condemn(ctx, shard, names)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return free, func(ctx context.Context) error {
		defer leave()
		return remove(ctx)
	}, nil
}

// join returns the collection of this process, or begins one that ends when its last sharer leaves.
func (l *Leases) join(ctx context.Context) (c *collection, leave func(), err error) {
	select {
	case l.joining <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-l.joining }()
	l.mu.Lock()
	c = l.collect
	l.mu.Unlock()
	if c == nil {
		if c, err = l.quiesce(ctx); err != nil {
			return nil, nil, err
		}
		c.shared = true
	}
	if !c.shared {
		return c, func() {}, nil
	}
	c.sharers++
	return c, sync.OnceFunc(func() {
		l.joining <- struct{}{}
		defer func() { <-l.joining }()
		if c.sharers--; c.sharers == 0 {
			c.end()
		}
	}), nil
}

func (c *collection) condemn(ctx context.Context, shard byte, names [][32]byte) (free [][32]byte, done func(context.Context) error, err error) {
	for _, name := range names {
		if name[0] != shard {
			return nil, nil, fmt.Errorf("%w: %x is of another shard", refstore.ErrInvalid, name[:8])
		}
	}
	nonce := c.l.nonces.Add(1)
	c.mu.Lock()
	_, busy := c.lists[shard]
	if !busy {
		c.lists[shard] = nonce
	}
	c.mu.Unlock()
	if busy {
		return nil, nil, fmt.Errorf("%w: another list stands", refstore.ErrInvalid)
	}
	var version refstore.Version
	var late bool
	remove := func(ctx context.Context) error {
		err := c.l.store.Delete(ctx, condemnedKey(shard), version)
		if version == refstore.Absent || errors.Is(err, refstore.ErrConflict) {
			_, err = c.s.release(ctx, condemnedKey(shard), nonce, false)
		}
		if errors.Is(err, refstore.ErrNotFound) {
			err = nil
		}
		if err != nil || late {
			c.s.addLooseEnd(looseEnd{key: condemnedKey(shard), nonce: nonce, late: late})
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lists, shard)
		return err
	}
	version, late, err = c.write(ctx, condemnedKey(shard), encode(condemnedRecord{Session: c.s.name(), Nonce: nonce, Names: flat(names)}))
	if err == nil {
		free, err = c.free(ctx, names)
	}
	if err != nil { // nothing was deleted yet
		ctx, cancel := c.l.o.detached(ctx)
		defer cancel()
		return nil, nil, errors.Join(err, remove(ctx))
	}
	return free, remove, nil
}

// free returns the condemned names that no session relies on. It reads the sessions' names after the list was written.
func (c *collection) free(ctx context.Context, names [][32]byte) (free [][32]byte, err error) {
	recent, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.lockReading(ctx); err != nil {
		return nil, err
	}
	defer c.unlockReading()
	for _, name := range names {
		_, before := c.relied[name]
		if _, lately := recent[name]; !before && !lately {
			free = append(free, name)
		}
	}
	if c.l.collecting() != c.epoch {
		return nil, errors.New("the collection has ended")
	}
	return free, c.l.Held()
}

// write creates a list, or replaces an old list of this process whose removal failed. late says that an earlier try of
// the write may still arrive.
func (c *collection) write(ctx context.Context, key refstore.Key, value []byte) (v refstore.Version, late bool, err error) {
	there := refstore.Record{Key: key}
	for {
		v, late, err := c.l.put(ctx, refstore.Record{Key: key, Value: value, Version: there.Version})
		if !errors.Is(err, refstore.ErrConflict) {
			return v, late || err != nil, err
		}
		if there, err = c.l.read(ctx, key); err != nil {
			return v, false, err
		}
		if there.Version == refstore.Absent {
			continue
		}
		var rec condemnedRecord
		if err := decode(there, &rec); err != nil {
			return v, false, err
		}
		if rec.Session != c.s.name() {
			return v, false, fmt.Errorf("a list of session %s stands: %w", rec.Session, refstore.ErrConflict)
		}
	}
}

// read adds the names in the sessions' parts to relied, and returns the names that are not in a part yet. Dead and
// ended sessions count as well: their last writes may have come after the references were read.
func (c *collection) read(ctx context.Context) (recent map[[32]byte]struct{}, err error) {
	recent = make(map[[32]byte]struct{})
	there := false
	for r, err := range c.l.store.List(ctx, refstore.Query{Partition: sessionsPartition}) {
		if err != nil {
			return nil, err
		}
		v, err := c.l.observe(r)
		if err != nil {
			return nil, err
		}
		if r.Key.Sort == c.s.name() {
			there = true
			if _, err := c.l.checkOwn(r, nil); err != nil {
				return nil, err
			}
		}
		if err := c.readParts(ctx, r.Key.Sort, v.rec); err != nil {
			return nil, err
		}
		for i := 0; i+32 <= len(v.rec.Relied); i += 32 {
			recent[[32]byte(v.rec.Relied[i:])] = struct{}{}
		}
	}
	if !there {
		_, err := c.l.checkOwn(refstore.Record{}, refstore.ErrNotFound)
		return nil, err
	}
	return recent, nil
}

// readParts reads the parts of a session that were not read before.
func (c *collection) readParts(ctx context.Context, id string, rec sessionRecord) error {
	if err := c.lockReading(ctx); err != nil {
		return err
	}
	defer c.unlockReading()
	if rec.Parts <= c.parts[id] {
		return nil
	}
	rec.Relied = nil
	parts, err := c.l.eachRelied(ctx, id, rec, c.parts[id], func(name [32]byte) { c.relied[name] = struct{}{} })
	if errors.Is(err, refstore.ErrNotFound) {
		// The session was swept, so it had not answered this collection.
		r, getErr := c.l.read(ctx, sessionKey(id))
		if getErr == nil && r.Version == refstore.Absent {
			return nil
		}
	}
	if err == nil {
		c.parts[id] = parts
	}
	return err
}

// lockReading waits until no other goroutine reads parts.
func (c *collection) lockReading(ctx context.Context) error {
	select {
	case c.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *collection) unlockReading() { <-c.reading }
