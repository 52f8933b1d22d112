package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"e3/refstore"
)

// watched is how many holders of a queue a process looks after: all of few, some of many, as others look after the rest.
const watched = 8

// Reap makes orphans of the jobs of workers that were lost, and of those that this process has claimed without being told so. It lists jobs only where a
// worker was lost.
func (q *Queue) Reap(ctx context.Context, queues ...string) error {
	var errs []error
	for _, queue := range queues {
		if err := errors.Join(q.reap(ctx, queue), q.resolve(ctx, queue)); err != nil {
			errs = append(errs, fmt.Errorf("look after the workers of queue %s: %w", queue, err))
		}
	}
	return errors.Join(errs...)
}

func (q *Queue) reap(ctx context.Context, queue string) error {
	own, err := q.members.Session(ctx)
	if err != nil {
		return err
	}
	var holders []string
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(queue, "holders"), KeysOnly: true}) {
		if err != nil {
			return err
		}
		if r.Key.Sort != own {
			holders = append(holders, r.Key.Sort)
		}
	}
	var errs []error
	for _, session := range q.ward(own, holders) {
		over, _, err := q.members.Over(ctx, session)
		if err == nil && over {
			err = q.bury(ctx, queue, own, session)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ward chooses the holders that this process looks after. It changes with each ten minutes, so that nobody is left out for good.
func (q *Queue) ward(own string, holders []string) []string {
	if len(holders) <= watched {
		return holders
	}
	term := q.o.Now().Unix() / 600
	weight := func(session string) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %s %d", own, session, term)
		return h.Sum64()
	}
	slices.SortFunc(holders, func(a, b string) int { return cmp.Compare(weight(a), weight(b)) })
	return holders[:watched]
}

// bury makes orphans of all jobs of a session that is over, and then forgets it. Of several processes that find it, one does so.
func (q *Queue) bury(ctx context.Context, queue, own, session string) error {
	r, err := q.store.Get(ctx, holderKey(queue, session))
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
		if over, _, err := q.members.Over(ctx, rec.Reaper); err != nil || !over {
			return err
		}
	}
	rec.Reaper = own
	v, err := q.store.Put(ctx, refstore.Record{Key: r.Key, Value: encode(rec), Version: r.Version})
	if errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt) {
		return nil
	}
	if err != nil {
		return err
	}
	var malformed []error // about which nothing can be done here: they must not keep the others
	for s, err := range q.jobs(ctx, queue, "") {
		switch {
		case errors.Is(err, ErrMalformed):
			if len(malformed) < maxFaults {
				malformed = append(malformed, err)
			}
			continue
		case err != nil:
			return err
		case s.Status == Running && s.LockedBy == session:
			_, err = q.orphan(ctx, s)
		case s.Orphaned(): // perhaps by one who died here
			_, err = q.mend(ctx, s)
		}
		if err != nil && !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
	return errors.Join(append(malformed, q.drop(ctx, r.Key, v))...)
}

// maxFaults bounds how many records that cannot be read are told of at a time.
const maxFaults = 20

// orphan clears the lock of a job whose worker was lost.
func (q *Queue) orphan(ctx context.Context, s stored) (stored, error) {
	j := s.Job
	j.LockedBy = ""
	s, err := q.swap(ctx, s.version, &j)
	if err != nil {
		return s, err
	}
	_, err = q.index(ctx, s)
	return s, err
}

// expire is orphan, if the job's worker was lost, or is this process and does not know it. Otherwise the job is returned as it is.
func (q *Queue) expire(ctx context.Context, s stored) (stored, error) {
	if !q.astray(&s.Job) {
		over, _, err := q.members.Over(ctx, s.LockedBy)
		if err != nil || !over {
			return s, err
		}
	}
	orphan, err := q.orphan(ctx, s)
	if errors.Is(err, refstore.ErrConflict) { // somebody else has done so, or it has ended
		if now, err := q.find(ctx, s.Queue, s.ID); err == nil || !isNotFound(err) {
			return now, err
		}
		return s, nil
	}
	return orphan, err
}

// Repair compares the indexes of a queue with its jobs and makes good what crashes have left, at whatever point. It reads all of them.
// It returns what it could not read or write, and has then done the rest.
func (q *Queue) Repair(ctx context.Context, queue string) error {
	if err := ValidName(queue); err != nil {
		return fmt.Errorf("repair: %w: %w", refstore.ErrInvalid, err)
	}
	var errs []error
	fail := func(err error) {
		if err != nil && !errors.Is(err, refstore.ErrConflict) && len(errs) < maxFaults {
			errs = append(errs, err)
		}
	}
	entries := make(map[refstore.Key]bool) // whether a job confirms it
	for _, index := range []string{"ready", "delayed"} {
		for r, err := range q.store.List(ctx, refstore.Query{Partition: partition(queue, index), KeysOnly: true}) {
			if err != nil {
				return fmt.Errorf("repair queue %s: %w", queue, err)
			}
			entries[r.Key] = false
		}
	}
	over := make(map[string]bool)
	for s, err := range q.jobs(ctx, queue, "") {
		if err != nil {
			fail(err)
			continue
		}
		if key, ok := s.indexKey(); ok {
			if _, there := entries[key]; there {
				entries[key] = true
				continue
			}
		}
		fail(q.repair(ctx, s, over))
	}
	for key, confirmed := range entries {
		if confirmed {
			continue
		}
		r, err := q.store.Get(ctx, key)
		if errors.Is(err, refstore.ErrNotFound) {
			continue
		}
		if err == nil {
			_, err = q.confirm(ctx, &candidate{key: key, version: r.Version})
		}
		fail(err)
	}
	fail(q.cancels(ctx, queue))
	if len(errs) > 0 {
		return fmt.Errorf("repair queue %s: %w", queue, errors.Join(errs...))
	}
	return nil
}

// repair makes good what there is about one job, as it was read a moment ago. over is what is known of sessions.
func (q *Queue) repair(ctx context.Context, s stored, over map[string]bool) error {
	if s.Status == Running && s.LockedBy != "" {
		is, known := over[s.LockedBy]
		if !known {
			var err error
			if is, _, err = q.members.Over(ctx, s.LockedBy); err != nil {
				return err
			}
			over[s.LockedBy] = is
		}
		if is || q.astray(&s.Job) {
			_, err := q.orphan(ctx, s)
			return err
		}
		return nil
	}
	if !s.Status.Terminal() { // who has just written it may be about to write its entry
		if q.isMaking(s.Ref()) {
			return nil
		}
		now, err := q.load(ctx, s.Queue, s.ID)
		if isNotFound(err) || err == nil && now.version != s.version {
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := q.mend(ctx, s)
	return err
}

// sighting is what this process has seen of a record that others write.
type sighting struct {
	version refstore.Version
	at      time.Time
}

// turn tells whether it is on this process to do what one of all does once in a while: the record has not changed for so long by its own clock.
func (q *Queue) turn(ctx context.Context, queue, work string, every time.Duration) (bool, error) {
	key := turnKey(queue, work)
	r, err := q.store.Get(ctx, key)
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return false, err
	}
	now := q.o.Now()
	q.mu.Lock()
	seen, ok := q.turns[key]
	if !ok || seen.version != r.Version {
		q.turns[key] = sighting{r.Version, now}
	}
	q.mu.Unlock()
	if r.Version != refstore.Absent && (!ok || seen.version != r.Version || now.Sub(seen.at) < every) {
		return false, nil
	}
	v, err := q.store.Put(ctx, refstore.Record{Key: key, Value: encode(turnRecord{At: nanos(now)}), Version: r.Version})
	if errors.Is(err, refstore.ErrConflict) || errors.Is(err, refstore.ErrInDoubt) {
		return false, nil
	}
	if err == nil {
		q.mu.Lock()
		q.turns[key] = sighting{v, now}
		q.mu.Unlock()
	}
	return err == nil, err
}
