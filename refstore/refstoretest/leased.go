package refstoretest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/refstore"
)

// HoldCases returns the cases about locks, claims and sessions, for a package that makes these on a store that has
// passed the rest.
func HoldCases() []Case {
	return slices.Concat(lockCases(), leasedCases(), sessionCases())
}

func leasedCases() []Case {
	return []Case{
		onStore("nothing was taken over", asLocker(nothingTakenOver)),
		onStore("holders that say nothing", asLocker(silentHolders)),
		onStore("released claims are free at once", asLocker(reclaim)),
		onStore("leases that hold", asLeased(leasesHold)),
		onStore("a collection without others", asBarrier(loneCollection)),
		onStore("one collection at a time", asBarrier(oneCollection)),
		onStore("a collection that is cancelled", asBarrier(cancelledCollection)),
	}
}

func asLeased(run func(context.Context, refstore.Leased) error) func(context.Context, refstore.Store) error {
	return func(ctx context.Context, s refstore.Store) error {
		leased, err := capability[refstore.Leased](s)
		if err != nil {
			return err
		}
		return run(ctx, leased)
	}
}

// barrier is what a collector needs of a store.
type barrier interface {
	refstore.Barrier
	refstore.Sessions
}

func asBarrier(run func(context.Context, barrier) error) func(context.Context, refstore.Store) error {
	return func(ctx context.Context, s refstore.Store) error {
		b, err := capability[barrier](s)
		if err != nil {
			return err
		}
		return run(ctx, b)
	}
}

// nothingTakenOver takes locks and claims that were never held, or were released.
func nothingTakenOver(ctx context.Context, s refstore.Locker) error {
	take := map[string]func() (refstore.Lock, error){
		"exclusive lock": func() (refstore.Lock, error) { return s.TryLock(ctx, "a", refstore.Exclusive, []byte("me")) },
		"shared lock":    func() (refstore.Lock, error) { return s.TryLock(ctx, "b", refstore.Shared, []byte("me")) },
		"claim":          func() (refstore.Lock, error) { return s.TryClaim(ctx, sha256.Sum256([]byte("a")), []byte("me")) },
	}
	for range 2 {
		for what, try := range take {
			l, err := try()
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if was := l.Previous(); was != nil {
				return fmt.Errorf("%s that was free: got previous holder %q, want none", what, was)
			}
			if err := l.Unlock(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if was := l.Previous(); was != nil {
				return fmt.Errorf("%s after its release: got previous holder %q, want none", what, was)
			}
		}
	}
	return nil
}

func silentHolders(ctx context.Context, s refstore.Locker) error {
	for _, mode := range []refstore.Mode{refstore.Exclusive, refstore.Shared} {
		l, err := s.TryLock(ctx, "run", mode, nil)
		if err != nil {
			return err
		}
		if holder, held, err := s.Holder(ctx, "run"); err != nil || !held || len(holder) != 0 {
			return fmt.Errorf("holder without a text: got %q, %v, %w, want one without a text", holder, held, err)
		}
		if err := wantLocked(ctx, s, "run", refstore.Exclusive, ""); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// reclaim takes the same claim again and again, once after it was refused.
func reclaim(ctx context.Context, s refstore.Locker) error {
	key := sha256.Sum256([]byte("again"))
	for range 20 {
		l, err := s.TryClaim(ctx, key, []byte("me"))
		if err != nil {
			return err
		}
		_, err = s.TryClaim(ctx, key, []byte("intruder"))
		if err := wantErr("claim of what is claimed", err, refstore.ErrClaimed); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func leasesHold(ctx context.Context, s refstore.Leased) error {
	check := func(when string) error {
		select {
		case <-s.Lost():
			return fmt.Errorf("%s: the lease is lost", when)
		default:
		}
		if err := refstore.Confirm(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		return nil
	}
	if first, most := refstore.Pace(s); first <= 0 || most < first || most > time.Minute {
		return fmt.Errorf("pace: got %v, at most %v", first, most)
	}
	if err := check("before anything is held"); err != nil {
		return err
	}
	l, err := s.TryLock(ctx, "run", refstore.Exclusive, []byte("me"))
	if err != nil {
		return err
	}
	if err := check("while a lock is held"); err != nil {
		return err
	}
	locked, err := tryLocked(ctx, s, "run")
	if err != nil {
		return err
	}
	if locked.Pending != 0 {
		return fmt.Errorf("a holder that is this process: it is open for %v whether it lives, want 0", locked.Pending)
	}
	if err := l.Unlock(); err != nil {
		return err
	}
	return check("after the release")
}

// tryLocked tries a held lock.
func tryLocked(ctx context.Context, s refstore.Locker, name string) (*refstore.LockedError, error) {
	_, err := s.TryLock(ctx, name, refstore.Exclusive, nil)
	locked, ok := errors.AsType[*refstore.LockedError](err)
	if !ok {
		return nil, fmt.Errorf("lock %q: got error %w, want a LockedError", name, err)
	}
	return locked, nil
}

func loneCollection(ctx context.Context, s barrier) error {
	for range 3 {
		end, err := s.Quiesce(ctx)
		if err != nil {
			return err
		}
		release, err := s.Protect(ctx, []string{"a"})
		if err != nil {
			return err
		}
		if err := WantProtected(ctx, s, "a"); err != nil {
			return err
		}
		end()
		end()
		if err := WantProtected(ctx, s, "a"); err != nil {
			return err
		}
		release()
		if err := WantProtected(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func oneCollection(ctx context.Context, s barrier) error {
	end, err := s.Quiesce(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.Quiesce(ctx)
	if _, ok := errors.AsType[*refstore.LockedError](err); !ok {
		return fmt.Errorf("a collection during another: got error %w, want a LockedError", err)
	}
	return nil
}

func cancelledCollection(ctx context.Context, s barrier) error {
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Quiesce(cancelled)
	if err := wantErr("a collection after the end", err, context.Canceled); err != nil {
		return err
	}
	end, err := s.Quiesce(ctx)
	if err != nil {
		return err
	}
	end()
	return nil
}
