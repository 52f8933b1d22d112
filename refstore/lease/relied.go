package lease

import (
	"context"
	"fmt"
	"slices"

	"e3/refstore"
)

// reliance tells how far the use of a name has been published.
type reliance uint8

const (
	unknown    reliance = iota
	remembered          // in this process only
	queued              // to be written during a collection
	public              // written; the condemned lists have not been read yet
	relied              // collectors spare it
)

// Rely announces that this process relies on an object from now on, so that collections spare it. The caller checks
// afterwards that the object exists. Outside of a collection it sends no request. During one it waits as long as the
// object is about to be deleted.
func (l *Leases) Rely(ctx context.Context, name [32]byte) error {
	s, err := l.use(ctx)
	if err == nil {
		err = s.rely(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("rely on %x: %w", name[:8], err)
	}
	return nil
}

func (s *session) rely(ctx context.Context, name [32]byte) error {
	s.mu.Lock()
	state := s.relied[name]
	switch {
	case state == relied:
		s.mu.Unlock()
		return nil
	case s.epoch == 0:
		if state == unknown {
			s.relied[name] = remembered
		}
		s.mu.Unlock()
		return nil
	}
	var wanted uint64
	if state != public {
		if state != queued {
			s.relied[name] = queued
			s.queue = append(s.queue, name)
		}
		wanted = s.want()
	}
	s.mu.Unlock()
	if err := s.wait(ctx, wanted); err != nil {
		return err
	}
	if err := s.l.spared(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relied[name] = relied
	return nil
}

// spared returns once a name is on no condemned list whose deletions may still be carried out.
func (l *Leases) spared(ctx context.Context, name [32]byte) error {
	for try := 0; ; try++ {
		r, err := l.read(ctx, condemnedKey(name[0]))
		if err != nil {
			return err
		}
		if r.Version == refstore.Absent {
			return nil
		}
		var rec condemnedRecord
		if err := decode(r, &rec); err != nil {
			return err
		}
		if !rec.has(name) {
			return nil
		}
		if safe, err := l.harmless(ctx, rec.Session); safe || err != nil {
			return err
		}
		if err := l.pause(ctx, try); err != nil {
			return err
		}
	}
}

// harmless reports whether no deletion of a collector can still arrive.
func (l *Leases) harmless(ctx context.Context, collector string) (bool, error) {
	if own := l.session.Load(); own != nil && own.name() == collector {
		return false, nil
	}
	v, err := l.judge(ctx, collector)
	if err != nil || !v.free {
		return false, err
	}
	wait, err := l.settled(ctx, collector, v)
	return err == nil && wait == 0, err
}

// enter makes the session answer a collection: from now on it writes down each name before it relies on it. Names that
// it already relied on are written with the answer.
func (s *session) enter(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enterLocked(epoch)
}

// enterLocked is enter for a caller that holds mu.
func (s *session) enterLocked(epoch uint64) {
	if s.epoch >= epoch { // a newer collection has begun
		return
	}
	s.epoch, s.answered = epoch, epoch
	for name, state := range s.relied {
		if state == remembered {
			s.relied[name] = relied // the collector waits for the answer before it condemns anything
			s.queue = append(s.queue, name)
		}
	}
	s.want()
}

// leave ends a collection for this session, and the protections that were kept for it, unless a later collection has
// begun.
func (s *session) leave(epoch uint64) {
	s.mu.Lock()
	if s.epoch > epoch {
		s.mu.Unlock()
		return
	}
	s.epoch = 0
	released := s.released
	s.released = nil
	s.mu.Unlock()
	for _, p := range released {
		s.unprotect(p)
	}
}

// eachRelied calls f with the names that a session has written down, and returns the number of its parts. It omits the
// first skip parts.
func (t *table) eachRelied(ctx context.Context, id string, rec sessionRecord, skip uint64, f func(name [32]byte)) (parts uint64, err error) {
	parts = skip
	if rec.Parts > skip {
		q := refstore.Query{Partition: reliedPartition, Prefix: id + "/"}
		if skip > 0 {
			q.After = part(reliedPartition, id, skip-1).Sort
		}
		for r, err := range t.store.List(ctx, q) {
			switch {
			case err != nil:
				return 0, err
			case r.Key != part(reliedPartition, id, parts) || len(r.Value)%32 != 0:
				return 0, fmt.Errorf("record %q is not what this version of e3 writes", r.Key)
			}
			for name := range slices.Chunk(r.Value, 32) {
				f([32]byte(name))
			}
			parts++
		}
		if parts < rec.Parts {
			return 0, fmt.Errorf("names that session %s relies on: part %d of %d: %w", id, parts, rec.Parts, refstore.ErrNotFound)
		}
	}
	for name := range slices.Chunk(rec.Relied, 32) {
		f([32]byte(name))
	}
	return parts, nil
}
