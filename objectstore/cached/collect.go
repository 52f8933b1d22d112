package cached

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"e3/internal/backoff"
	"e3/objectstore"
)

const (
	// condemnAtOnce is the number of objects that are condemned at a time. It bounds the time for which writers wait.
	condemnAtOnce = 5000
	// deletePerRequest is the number of objects that a request deletes.
	deletePerRequest = 1000
	// settleTime bounds the wait for a store after the caller's context is done.
	settleTime = 10 * time.Second
)

// Walk yields every object of the remote store, shard by shard. Entry.Time is the time at which an object was put, by
// the remote store's clock. After an error the walk continues with the next shard, if the caller continues.
func (s *Store) Walk(ctx context.Context) iter.Seq2[objectstore.Entry, error] {
	return func(yield func(objectstore.Entry, error) bool) {
		for shard := range objectstore.Shards {
			for e, err := range s.remote.List(ctx, byte(shard)) {
				if !yield(e, err) {
					return
				}
				if err != nil {
					break
				}
			}
			if ctx.Err() != nil {
				return // the shard has yielded the error
			}
		}
	}
}

// WalkShard is Walk for the objects whose names begin with one byte.
func (s *Store) WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error] {
	return s.remote.List(ctx, first)
}

// SweepShard removes the objects of a shard that were put before cutoff less a grace, and calls removed for each.
// Objects that keep wants, or on which a session relies, stay. It can be interrupted at any point and repeated.
// While keep is called for an object, Stat of it costs no request. Several shards may be swept at the same time,
// each once. If a deletion may still take effect, the rest of the shard is spared, and its condemned list stays in
// place.
func (s *Store) SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(objectstore.Hash) bool, removed func(objectstore.Entry)) error {
	cutoff = cutoff.Add(-s.o.Grace)
	var old []objectstore.Entry
	late := false
	for e, err := range s.remote.List(ctx, first) {
		if err != nil {
			return fmt.Errorf("sweep objects: %w", err)
		}
		if s.keeps(e, keep) || !e.Time.Before(cutoff) || late {
			continue
		}
		if old = append(old, e); len(old) == condemnAtOnce {
			if late, err = s.sweepSome(ctx, old, removed); err != nil {
				return fmt.Errorf("sweep objects: %w", err)
			}
			old = old[:0]
		}
	}
	if len(old) == 0 {
		return nil
	}
	if _, err := s.sweepSome(ctx, old, removed); err != nil {
		return fmt.Errorf("sweep objects: %w", err)
	}
	return nil
}

func (s *Store) keeps(e objectstore.Entry, keep func(objectstore.Hash) bool) bool {
	at := &s.sweeping[e.Hash[0]]
	at.Store(&e)
	defer at.Store(nil)
	return keep(e.Hash)
}

// sweepSome removes the objects of old on which no session relies. All of them are of one shard. late says that a
// deletion may still take effect, so that the condemned list stays in place.
func (s *Store) sweepSome(ctx context.Context, old []objectstore.Entry, removed func(objectstore.Entry)) (late bool, err error) {
	shard := old[0].Hash[0]
	err = s.condemning[shard].with(ctx, func() (err error) {
		late, err = s.sweepList(ctx, shard, old, removed)
		return err
	})
	return late, err
}

func (s *Store) sweepList(ctx context.Context, shard byte, old []objectstore.Entry, removed func(objectstore.Entry)) (late bool, err error) {
	entries := make(map[objectstore.Hash]objectstore.Entry, len(old))
	names := make([]objectstore.Hash, len(old))
	for i, e := range old {
		entries[e.Hash], names[i] = e, e.Hash
	}
	free, done, err := s.guard.Condemn(ctx, shard, names)
	if err != nil {
		return false, err
	}
	free = slices.DeleteFunc(free, func(h objectstore.Hash) bool {
		_, ok := entries[h]
		return !ok
	})
	for some := range slices.Chunk(free, deletePerRequest) {
		if err := ctx.Err(); err != nil {
			return late, errors.Join(err, settle(ctx, late, done))
		}
		again, err := s.deleteRemote(ctx, some)
		if errors.Is(err, objectstore.ErrRefused) { // some objects may be deleted
			for _, h := range some {
				s.dropCopy(ctx, h)
			}
			return late, errors.Join(err, settle(ctx, late, done))
		}
		if err != nil {
			return true, err
		}
		late = late || again
		for _, h := range some {
			s.dropCopy(ctx, h)
			removed(entries[h])
		}
	}
	return late, settle(ctx, late, done)
}

// deleteRemote deletes condemned objects, while this process holds its lease. When ctx ends, a request under way gets
// some more time, because an unknown outcome makes other processes wait for long. If late, or after an error other than
// objectstore.ErrRefused, a request may still delete an object that a writer has put again. Then the caller must not
// call done, so that no session relies on these names as long as that is possible.
func (s *Store) deleteRemote(ctx context.Context, hs []objectstore.Hash) (late bool, err error) {
	if err := errors.Join(s.guard.Held(), ctx.Err()); err != nil {
		return false, err
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if backoff.Wait(patient, settleTime) == nil {
			cancel()
		}
	})
	defer stop()
	err = s.remote.Delete(patient, hs)
	if errors.Is(err, objectstore.ErrUnanswered) {
		s.warnLate.Do(func() {
			s.o.Warn(fmt.Errorf("a process that stores one of these objects again, and the next gc, must wait until this deletion has settled: %w", err))
		})
		return true, nil
	}
	return false, err
}

// settle calls done, in bounded time, unless a deletion may be late.
func settle(ctx context.Context, late bool, done func(context.Context) error) error {
	if late {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	return done(ctx)
}

// dropCopy removes the copy of a deleted object. A copy that stays is harmless, because it proves nothing.
func (s *Store) dropCopy(ctx context.Context, h objectstore.Hash) {
	s.known.forget(h)
	if err := s.local.Delete(context.WithoutCancel(ctx), h); err != nil {
		s.warn(err)
	}
}

// Delete removes h, whatever its age, and even if sessions rely on it. Removing an absent object succeeds.
func (s *Store) Delete(ctx context.Context, h objectstore.Hash) error {
	_, err := s.delete(ctx, h, func(context.Context, bool) (bool, error) { return true, nil })
	return err
}

// DeleteBefore removes h if it was put before cutoff, by the remote store's clock, and no session relies on it. It
// reports whether it has removed h.
func (s *Store) DeleteBefore(ctx context.Context, h objectstore.Hash, cutoff time.Time) (bool, error) {
	return s.delete(ctx, h, func(ctx context.Context, free bool) (bool, error) {
		if !free {
			return false, nil
		}
		e, err := s.ask(ctx, h)
		if errors.Is(err, objectstore.ErrNotFound) {
			return false, nil
		}
		return err == nil && e.Time.Before(cutoff), err
	})
}

// delete removes h if want returns true. want is called after h was condemned; its argument tells whether no session
// relies on h. No put of h runs in this process meanwhile.
func (s *Store) delete(ctx context.Context, h objectstore.Hash, want func(ctx context.Context, free bool) (bool, error)) (removed bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		led, err := s.uploads.do(ctx, h, func() error {
			return s.condemning[h[0]].with(ctx, func() (err error) {
				removed, err = s.deleteOne(ctx, h, want)
				return err
			})
		})
		if led && err != nil {
			err = fmt.Errorf("delete object %s: %w", h, err)
		}
		if led {
			return removed, err
		}
	}
}

func (s *Store) deleteOne(ctx context.Context, h objectstore.Hash, want func(ctx context.Context, free bool) (bool, error)) (bool, error) {
	free, done, err := s.guard.Condemn(ctx, h[0], []objectstore.Hash{h})
	if err != nil {
		return false, err
	}
	yes, err := want(ctx, slices.Contains(free, h))
	if err != nil || !yes {
		return false, errors.Join(err, settle(ctx, false, done))
	}
	late, err := s.deleteRemote(ctx, []objectstore.Hash{h})
	if errors.Is(err, objectstore.ErrRefused) {
		return false, errors.Join(err, settle(ctx, false, done))
	}
	if err != nil {
		return false, err
	}
	s.dropCopy(ctx, h)
	return true, settle(ctx, late, done)
}
