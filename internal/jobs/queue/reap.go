package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"e3/refstore"
)

// watched is how many holders of a queue a process watches. In a large crowd other processes watch the rest. Each look
// costs a request.
const watched = 3

// Reap makes orphans of the jobs of lost workers, and of jobs that this process has claimed without knowing it. It
// lists jobs only if a worker was lost.
func (k *Keeper) Reap(ctx context.Context, queues ...string) error {
	var errs []error
	for _, queue := range queues {
		if err := errors.Join(k.reap(ctx, queue), k.resolve(ctx, queue)); err != nil {
			errs = append(errs, fmt.Errorf("look after the workers of queue %s: %w", queue, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) reap(ctx context.Context, queue string) error {
	own, err := k.held.members.Session(ctx)
	if err != nil {
		return err
	}
	holders, err := k.holders(ctx, queue)
	if err != nil {
		return err
	}
	k.index.crowded(queue, len(holders))
	var errs []error
	for _, session := range ward(own, holders) {
		ended, _, err := k.held.members.Ended(ctx, session)
		if err == nil && ended {
			err = k.orphanAll(ctx, queue, own, session)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// roster are the holders of a queue in the last listing.
type roster struct {
	holders []string
	at      time.Time
}

// The more holders there are, the less often a process lists them, since each of them lists them all: with 1,000, every
// 20 s. In between it watches the known ones.
const (
	fewHolders = 100
	rosterPace = 20 * time.Millisecond // for each holder
)

// holders returns the sessions that have, or had, jobs in a queue.
func (k *Keeper) holders(ctx context.Context, queue string) ([]string, error) {
	now := k.o.Now()
	k.mu.Lock()
	known := k.rosters[queue]
	k.mu.Unlock()
	if n := len(known.holders); n > fewHolders && now.Sub(known.at) < time.Duration(n)*rosterPace {
		return known.holders, nil
	}
	var holders []string
	for r, err := range k.store.List(ctx, refstore.Query{Partition: partition(queue, "holders"), KeysOnly: true}) {
		if err != nil {
			return nil, err
		}
		holders = append(holders, r.Key.Sort)
	}
	k.mu.Lock()
	k.rosters[queue] = roster{holders, now}
	k.mu.Unlock()
	return holders, nil
}

// ward chooses the holders that a process watches: its successors in a ring, so that each is watched by equally many
// others. If all of these die together, their predecessors find the first ones dead and remove them, and so come to
// watch the next.
func ward(own string, holders []string) []string {
	holders = slices.DeleteFunc(slices.Clone(holders), func(session string) bool { return session == own })
	if len(holders) <= watched {
		return holders
	}
	slices.Sort(holders)
	next, _ := slices.BinarySearch(holders, own)
	return slices.Concat(holders[next:], holders)[:watched]
}

// orphanAll makes orphans of all jobs of a session that has ended, and then removes its holder record. If several
// processes try, one of them succeeds.
func (k *Keeper) orphanAll(ctx context.Context, queue, own, session string) error {
	r, err := k.store.Get(ctx, holderKey(queue, session))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var rec holderRecord
	if err := decode(r.Value, &rec); err != nil {
		return fmt.Errorf("record %q is not what this version of e3 writes: %w", r.Key, err)
	}
	if rec.Reaper != "" && rec.Reaper != own {
		if ended, _, err := k.held.members.Ended(ctx, rec.Reaper); err != nil || !ended {
			return err
		}
	}
	rec.Reaper = own
	v, err := k.store.Put(ctx, refstore.Record{Key: r.Key, Value: encode(rec), Version: r.Version})
	if errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt) {
		return nil
	}
	if err != nil {
		return err
	}
	var malformed []error // nothing can be done about these here, and they must not block the others
	for s, err := range k.jobs(ctx, queue, "") {
		switch {
		case errors.Is(err, ErrMalformed):
			if len(malformed) < maxFaults {
				malformed = append(malformed, err)
			}
			continue
		case err != nil:
			return err
		case s.Status == Running && s.LockedBy == session:
			_, err = k.index.orphan(ctx, s)
		case s.Orphaned(): // a process may have made it an orphan and died
			_, err = k.index.mend(ctx, s)
		}
		if err != nil && !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
	return errors.Join(append(malformed, k.drop(ctx, r.Key, v))...)
}

// maxFaults bounds the unreadable records that are reported at a time.
const maxFaults = 20

// Repair compares the indexes of a queue with its jobs and completes what crashes have interrupted. It reads all of
// them. It returns the records that it could not read or write, after doing the rest.
func (k *Keeper) Repair(ctx context.Context, queue string) error {
	if err := ValidName(queue); err != nil {
		return fmt.Errorf("repair: %w: %w", refstore.ErrInvalid, err)
	}
	var errs []error
	fail := func(err error) {
		if err != nil && !errors.Is(err, refstore.ErrConflict) && len(errs) < maxFaults {
			errs = append(errs, err)
		}
	}
	entries, marked, err := k.entries(ctx, queue)
	if err != nil {
		return fmt.Errorf("repair queue %s: %w", queue, err)
	}
	ended := make(map[string]bool)
	for s, err := range k.jobs(ctx, queue, "") {
		if err != nil {
			fail(err)
			continue
		}
		if key, ok := s.indexKey(); ok {
			if _, there := entries[key]; there {
				entries[key] = true
				continue
			}
			if s.Shard > 0 && !marked[s.Shard] { // its mark was removed while its writer stood still
				marked[s.Shard] = true
				fail(k.index.mark(ctx, queue, s.Shard))
			}
		}
		fail(k.repair(ctx, s, ended))
	}
	for key, confirmed := range entries {
		if confirmed {
			continue
		}
		r, err := k.store.Get(ctx, key)
		if errors.Is(err, refstore.ErrNotFound) {
			continue
		}
		if err == nil {
			_, err = k.index.confirm(ctx, &candidate{key: key, version: r.Version})
		}
		fail(err)
	}
	fail(k.cancels(ctx, queue))
	if len(errs) > 0 {
		return fmt.Errorf("repair queue %s: %w", queue, errors.Join(errs...))
	}
	return nil
}

// entries lists the entries of a queue, none of which is confirmed by a job yet, and the shards that are marked. No
// process reads other shards.
func (k *Keeper) entries(ctx context.Context, queue string) (entries map[refstore.Key]bool, marked map[int64]bool, err error) {
	entries, marked = make(map[refstore.Key]bool), make(map[int64]bool)
	list := func(partition string) error {
		for r, err := range k.store.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
			if err != nil {
				return err
			}
			if shard, ok := markedShard(r.Key); ok {
				marked[shard] = true
			} else {
				entries[r.Key] = false
			}
		}
		return nil
	}
	err = list(partition(queue, "ready"))
	for shard := range maps.Clone(marked) {
		if err == nil {
			err = list(readyPartition(queue, shard))
		}
	}
	if err == nil {
		err = list(partition(queue, "delayed"))
	}
	return entries, marked, err
}

// repair repairs the entries of a job that was just read. ended caches which sessions have ended.
func (k *Keeper) repair(ctx context.Context, s stored, ended map[string]bool) error {
	if s.Status == Running && s.LockedBy != "" {
		is, known := ended[s.LockedBy]
		if !known {
			var err error
			if is, _, err = k.held.members.Ended(ctx, s.LockedBy); err != nil {
				return err
			}
			ended[s.LockedBy] = is
		}
		if is || k.held.astray(&s.Job) {
			_, err := k.index.orphan(ctx, s)
			return err
		}
		return nil
	}
	if !s.Status.Terminal() { // its writer may be about to write its entry
		if k.held.isMaking(s.Ref()) {
			return nil
		}
		now, err := k.load(ctx, s.Queue, s.ID)
		if isNotFound(err) || err == nil && now.version != s.version {
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := k.index.mend(ctx, s)
	return err
}

// sighting is when this process first saw a version of another process's record.
type sighting struct {
	version refstore.Version
	at      time.Time
}

// resolve determines the outcome of claims without a response, and makes orphans of the jobs that they have locked. The
// adopter determines whether an execution was begun.
func (k *Keeper) resolve(ctx context.Context, queue string) error {
	var errs []error
	for ref, over := range k.held.doubts(queue) {
		_, id, _ := strings.Cut(ref, "/")
		s, err := k.load(ctx, queue, id)
		switch {
		case err != nil:
		case k.held.astray(&s.Job):
			_, err = k.index.orphan(ctx, s)
		case s.version == over:
			continue // the claim may still take effect
		case s.Orphaned(): // an earlier try of this call may have made it an orphan
			_, err = k.index.mend(ctx, s)
		}
		if err == nil || isNotFound(err) || errors.Is(err, ErrMalformed) { // Repair reports malformed ones
			k.held.resolved(ref, over)
		} else if !errors.Is(err, refstore.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
