package refstoretest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"e3/refstore"
)

func lockCases() []Case {
	return []Case{
		onStore("exclusive lock", asLocker(exclusiveLock)),
		onStore("shared lock", asLocker(sharedLock)),
		onStore("holder", asLocker(lockHolder)),
		onStore("hostile lock names", asLocker(hostileLocks)),
		onStore("claims", asLocker(claims)),
		onStore("one claimant of many", asLocker(oneClaimant)),
	}
}

func asLocker(run func(context.Context, refstore.Locker) error) func(context.Context, refstore.Store) error {
	return func(ctx context.Context, s refstore.Store) error {
		locker, err := capability[refstore.Locker](s)
		if err != nil {
			return err
		}
		return run(ctx, locker)
	}
}

// wantLocked tries a held lock.
func wantLocked(ctx context.Context, s refstore.Locker, name string, mode refstore.Mode, holders ...string) error {
	l, err := s.TryLock(ctx, name, mode, []byte("intruder"))
	if err == nil {
		return errors.Join(fmt.Errorf("lock %q: got it (%s), want a LockedError", name, mode), l.Unlock())
	}
	locked, ok := errors.AsType[*refstore.LockedError](err)
	if !ok {
		return fmt.Errorf("lock %q: got error %w, want a LockedError", name, err)
	}
	if locked.Name != name || !slices.Contains(holders, string(locked.Holder)) {
		return fmt.Errorf("lock %q: got %q held by %q, want one of %q", name, locked.Name, locked.Holder, holders)
	}
	return nil
}

func exclusiveLock(ctx context.Context, s refstore.Locker) error {
	for _, holder := range []string{"a long first holder", "second", ""} {
		l, err := s.TryLock(ctx, "run", refstore.Exclusive, []byte(holder))
		if err != nil {
			return err
		}
		for _, mode := range []refstore.Mode{refstore.Exclusive, refstore.Shared} {
			if err := wantLocked(ctx, s, "run", mode, holder); err != nil {
				return err
			}
		}
		other, err := s.TryLock(ctx, "other", refstore.Exclusive, nil)
		if err != nil {
			return err
		}
		if err := errors.Join(l.Unlock(), l.Unlock(), other.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

func sharedLock(ctx context.Context, s refstore.Locker) error {
	one, err := s.TryLock(ctx, "run", refstore.Shared, []byte("one"))
	if err != nil {
		return err
	}
	two, err := s.TryLock(ctx, "run", refstore.Shared, []byte("two"))
	if err != nil {
		return err
	}
	if err := wantLocked(ctx, s, "run", refstore.Exclusive, "one", "two"); err != nil {
		return err
	}
	if err := one.Unlock(); err != nil {
		return err
	}
	if err := wantLocked(ctx, s, "run", refstore.Exclusive, "one", "two", ""); err != nil {
		return err
	}
	if err := two.Unlock(); err != nil {
		return err
	}
	l, err := s.TryLock(ctx, "run", refstore.Exclusive, []byte("three"))
	if err != nil {
		return err
	}
	return l.Unlock()
}

func lockHolder(ctx context.Context, s refstore.Locker) error {
	want := func(text string, held bool) error {
		got, is, err := s.Holder(ctx, "run")
		if err != nil {
			return err
		}
		if string(got) != text || is != held {
			return fmt.Errorf("holder: got %q, %v, want %q, %v", got, is, text, held)
		}
		return nil
	}
	if err := want("", false); err != nil {
		return err
	}
	for _, mode := range []refstore.Mode{refstore.Exclusive, refstore.Shared} {
		l, err := s.TryLock(ctx, "run", mode, []byte("me"))
		if err != nil {
			return err
		}
		if err := want("me", true); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
		if err := want("", false); err != nil {
			return err
		}
	}
	return nil
}

func hostileLocks(ctx context.Context, s refstore.Locker) error {
	for _, name := range Hostile() {
		l, err := s.TryLock(ctx, name, refstore.Exclusive, []byte(name))
		if err != nil {
			return err
		}
		defer l.Unlock()
		if err := wantLocked(ctx, s, name, refstore.Exclusive, name); err != nil {
			return err
		}
	}
	_, err := s.TryLock(ctx, "", refstore.Exclusive, nil)
	return wantErr("lock without a name", err, refstore.ErrInvalid)
}

func claims(ctx context.Context, s refstore.Locker) error {
	var held []refstore.Lock
	for i := range 100 {
		key := sha256.Sum256([]byte{byte(i)})
		l, err := s.TryClaim(ctx, key, nil)
		if err != nil {
			return err
		}
		held = append(held, l)
		_, err = s.TryClaim(ctx, key, nil)
		if err := wantErr("claim of what is claimed", err, refstore.ErrClaimed); err != nil {
			return err
		}
	}
	for _, l := range held {
		if err := errors.Join(l.Unlock(), l.Unlock()); err != nil {
			return err
		}
	}
	for _, key := range [][32]byte{{}, {31: 1}, {0: 0xff}, allOnes()} {
		l, err := s.TryClaim(ctx, key, nil)
		if err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func allOnes() (key [32]byte) {
	for i := range key {
		key[i] = 0xff
	}
	return key
}

// oneClaimant lets many goroutines compete for few claims.
func oneClaimant(ctx context.Context, s refstore.Locker) error {
	const claimants, rounds, claims = 8, 200, 3
	var inside [claims]atomic.Int32
	var got atomic.Int32
	errs := make([]error, claimants)
	together(claimants, func(i int) {
		for round := range rounds {
			c := (i + round) % claims
			l, err := s.TryClaim(ctx, sha256.Sum256([]byte{byte(c)}), nil)
			if errors.Is(err, refstore.ErrClaimed) {
				continue
			}
			if err != nil {
				errs[i] = err
				return
			}
			got.Add(1)
			if n := inside[c].Add(1); n != 1 {
				errs[i] = fmt.Errorf("claim %d has %d holders", c, n)
			}
			inside[c].Add(-1)
			if err := l.Unlock(); err != nil {
				errs[i] = err
			}
		}
	})
	if got.Load() == 0 {
		return errors.New("no claim succeeded")
	}
	return errors.Join(errs...)
}
