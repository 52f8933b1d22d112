package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/refstore"
)

// Sweep marks dead sessions, removes the settled ones, and returns the number of removed sessions. It never waits: a
// session that may be alive, or has not settled, stays. Its cost does not depend on the number of claims.
func (l *Leases) Sweep(ctx context.Context) (int, error) {
	own := l.session.Load()
	swept := 0
	var epoch uint64 // sessions that answered it have to stay
	asked := false
	for r, err := range l.store.List(ctx, refstore.Query{Partition: sessionsPartition}) {
		if err != nil {
			return swept, fmt.Errorf("sweep sessions: %w", err)
		}
		if own != nil && r.Key.Sort == own.name() {
			continue
		}
		v, settled, err := l.sweepable(ctx, r)
		if err == nil && settled && v.rec.Epoch != 0 && !asked {
			epoch, err = l.inForce(ctx)
			asked = err == nil
		}
		if err == nil && settled && (v.rec.Epoch == 0 || v.rec.Epoch != epoch) {
			err = l.removeSession(ctx, r.Key.Sort, v.version)
			if err == nil {
				swept++
			}
		}
		if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrNotFound) {
			return swept, fmt.Errorf("sweep session %s: %w", r.Key.Sort, err)
		}
	}
	return swept, nil
}

// sweepable reports whether a session is dead or ended, and none of its requests can still arrive.
func (w *watcher) sweepable(ctx context.Context, r refstore.Record) (view, bool, error) {
	v, err := w.observe(r)
	if err == nil && w.abandoned(r.Key.Sort, v) {
		v, err = w.markClosed(ctx, r.Key.Sort)
	}
	v, err = w.markExpired(ctx, r.Key.Sort, v, err)
	if err != nil || !v.free || v.version == refstore.Absent || v.blocksCollections() {
		return v, false, err
	}
	wait, err := w.settled(ctx, r.Key.Sort, v)
	return v, err == nil && wait == 0, err
}

// inForce returns the epoch of the collection in progress, 0 if there is none.
func (l *Leases) inForce(ctx context.Context) (uint64, error) {
	rec, _, err := l.epoch(ctx)
	if err != nil || rec.Session == "" {
		return 0, err
	}
	if safe, err := l.harmless(ctx, rec.Session); safe || err != nil {
		return 0, err
	}
	return rec.Number, nil
}

// removeSession removes a session's record, and then the records beside it. A reader that misses some of these finds
// that the session is gone. If this is interrupted, [Leases.SweepClaims] removes the rest.
func (t *table) removeSession(ctx context.Context, id string, v refstore.Version) error {
	if err := t.store.Delete(ctx, sessionKey(id), v); err != nil {
		return err
	}
	return t.removeParts(ctx, id+"/", func(context.Context, string) (bool, error) { return true, nil })
}

// removeParts removes additional records of sessions: the records whose sort keys begin with prefix, if goes selects
// the session.
func (t *table) removeParts(ctx context.Context, prefix string, goes func(ctx context.Context, session string) (bool, error)) error {
	for _, partition := range []string{protectedPartition, reliedPartition} {
		for r, err := range t.store.List(ctx, refstore.Query{Partition: partition, Prefix: prefix, KeysOnly: true}) {
			if err != nil {
				return err
			}
			session, _, ok := partNumber(r.Key.Sort)
			if !ok {
				continue
			}
			if yes, err := goes(ctx, session); err != nil {
				return err
			} else if !yes {
				continue
			}
			if _, err := t.remove(ctx, r.Key); err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
				return err
			}
		}
	}
	return nil
}

// SweepClaims removes the claims and additional records of sessions that no longer exist, and returns the number of
// removed claims. It reads all claims, so it belongs in a full pass, after [Leases.Sweep].
func (l *Leases) SweepClaims(ctx context.Context) (int, error) {
	var mu sync.Mutex
	absent := make(map[string]bool)
	goes := func(ctx context.Context, session string) (bool, error) {
		mu.Lock()
		gone, known := absent[session]
		mu.Unlock()
		if known || session == noSession || validSession(session) != nil { // the next holder still has to handle a hold of noSession
			return gone, nil
		}
		r, err := l.read(ctx, sessionKey(session))
		if err != nil {
			return false, err
		}
		mu.Lock()
		defer mu.Unlock()
		absent[session] = r.Version == refstore.Absent
		return absent[session], nil
	}
	if err := l.removeParts(ctx, "", goes); err != nil {
		return 0, fmt.Errorf("sweep the leftovers of sessions: %w", err)
	}
	var swept int
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for shard := range 256 {
		g.Go(func() error {
			n, err := l.sweepClaims(ctx, fmt.Sprintf("%s%02x", claimsPartition, shard), goes)
			mu.Lock()
			defer mu.Unlock()
			swept += n
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return swept, fmt.Errorf("sweep claims: %w", err)
	}
	return swept, nil
}

func (t *table) sweepClaims(ctx context.Context, partition string, goes func(context.Context, string) (bool, error)) (int, error) {
	swept := 0
	for r, err := range t.store.List(ctx, refstore.Query{Partition: partition}) {
		if err != nil {
			return swept, err
		}
		var rec claimRecord
		if err := decode(r, &rec); err != nil {
			return swept, err
		}
		if yes, err := goes(ctx, rec.Session); err != nil {
			return swept, err
		} else if !yes || len(rec.Before) > 0 { // also kept for the texts of earlier holders that were not handled
			continue
		}
		switch err := t.store.Delete(ctx, r.Key, r.Version); {
		case err == nil:
			swept++
		case !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict):
			return swept, err
		}
	}
	return swept, nil
}
