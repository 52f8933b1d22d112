package lease_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/refstoretest"
)

const settle = 5 * time.Minute

func live(t testing.TB, m *machine, want int) []refstore.SessionInfo {
	t.Helper()
	list, err := m.LiveSessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != want {
		t.Errorf("live sessions: got %d, want %d", len(list), want)
	}
	return list
}

// TestLiveSessions: a session counts until its requests have settled.
func TestLiveSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.on("a"), w.on("b"), w.on("a")
		began, err := a.SessionBegan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Protect(t.Context(), []string{"node 1"}); err != nil {
			t.Fatal(err)
		}
		if list := live(t, b, 1); !list[0].Began.Equal(began) || !slices.Equal(list[0].Protected, []string{"node 1"}) {
			t.Errorf("got %+v, want one that began at %v", list, began)
		}
		a.wire.cut()
		time.Sleep(2 * ttl)
		live(t, b, 1)
		time.Sleep(2 * ttl)
		if n, err := b.Sweep(t.Context()); n != 0 || err != nil { // marks it
			t.Errorf("swept %d, %v, want none", n, err)
		}
		time.Sleep(settle - time.Second)
		live(t, b, 1)
		if n, err := b.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d before it has settled, %v", n, err)
		}
		time.Sleep(2 * time.Second)
		live(t, b, 0)
		live(t, c, 0)
		if n, err := c.Sweep(t.Context()); n != 0 || err != nil { // it knows that the process exists, and may continue
			t.Errorf("swept %d on its host, %v, want none", n, err)
		}
		if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
			t.Errorf("swept %d, %v, want 1", n, err)
		}
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) > 0 {
			t.Errorf("left %q", remaining)
		}
	})
}

// TestLiveSessionsGone: a process that is known to be gone no longer counts.
func TestLiveSessionsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here, there := w.on("a"), w.on("a"), w.on("b")
		if _, err := a.SessionBegan(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.kill(a)
		live(t, here, 0)
		live(t, there, 1)
		if n, err := there.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		if n, err := here.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v: its requests may still arrive", n, err)
		}
		live(t, there, 0)
		time.Sleep(31 * time.Second)
		if n, err := there.Sweep(t.Context()); n != 1 || err != nil {
			t.Errorf("swept %d, %v, want 1", n, err)
		}
	})
}

// TestUndatedDeath: a death without a time is dated by the next observer, and settles from then on.
func TestUndatedDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		blind := func(o *lease.Options) {
			o.Clock = func(context.Context) (time.Time, error) { return time.Time{}, errFault }
		}
		a, b, c := w.on("a"), w.on("b", blind), w.on("c")
		a.lock(t, "one", "a")
		a.wire.cut()
		for range 20 {
			if _, err := b.Sweep(t.Context()); err != nil && !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			time.Sleep(ttl / 10)
		}
		live(t, c, 1)
		if n, err := c.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		time.Sleep(settle + time.Second)
		live(t, c, 0)
	})
}

// TestLargeProtection: sets that are too large for the session's record get a record of their own.
func TestLargeProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		var names []string
		for i := range 3000 {
			names = append(names, fmt.Sprintf("node %064d", i))
		}
		release, err := a.Protect(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		small, err := a.Protect(t.Context(), []string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		if err := refstoretest.WantProtected(t.Context(), b, append(slices.Clone(names), "x")...); err != nil {
			t.Error(err)
		}
		release()
		small()
		if err := refstoretest.WantProtected(t.Context(), a); err != nil {
			t.Errorf("own: %v", err)
		}
		time.Sleep(ttl)
		if err := refstoretest.WantProtected(t.Context(), b); err != nil {
			t.Error(err)
		}
		if remaining := w.remaining(t, "LEASE/protected"); len(remaining) > 0 {
			t.Errorf("left %q", remaining)
		}
		if _, err := a.Protect(t.Context(), names); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if remaining := w.remaining(t, "LEASE/protected"); len(remaining) > 0 {
			t.Errorf("left %q after the end", remaining)
		}
	})
}

// TestReadOnly: a process that may not write has no session, and reads.
func TestReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		a.lock(t, "one", "a")
		b.wire.fail(func(op string, _ refstore.Key) error {
			if op == "put" || op == "delete" {
				return fmt.Errorf("put: %w", iofs.ErrPermission)
			}
			return nil
		}, nil)
		if _, err := b.SessionBegan(t.Context()); !errors.Is(err, refstore.ErrReadOnly) {
			t.Errorf("session: got %v, want ErrReadOnly", err)
		}
		if _, err := b.Protect(t.Context(), []string{"x"}); !errors.Is(err, refstore.ErrReadOnly) {
			t.Errorf("protect: got %v, want ErrReadOnly", err)
		}
		if holder, held, err := b.Holder(t.Context(), "one"); string(holder) != "a" || !held || err != nil {
			t.Errorf("holder: got %q, %v, %v", holder, held, err)
		}
		live(t, b, 1)
		if b.lost() {
			t.Error("a process without a session lost it")
		}
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// TestClose: holds are free at once, calls fail, and a store that does not answer delays nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.on("a"), w.on("b"), w.on("c")
		a.lock(t, "one", "a")
		shared, err := a.TryLock(t.Context(), "two", refstore.Shared, nil)
		if err != nil {
			t.Fatal(err)
		}
		for key := range byte(40) {
			a.claim(t, key, "a")
		}
		if err := errors.Join(a.Close(), a.Close(), shared.Unlock()); err != nil {
			t.Error(err)
		}
		if remaining := append(append(w.remaining(t, "LEASE/locks"), w.remaining(t, "LEASE/sessions")...), w.remaining(t, "LEASE/claims/01")...); len(remaining) > 0 {
			t.Errorf("left %q", remaining)
		}
		if _, err := a.TryClaim(t.Context(), [32]byte{}, nil); !errors.Is(err, iofs.ErrClosed) {
			t.Errorf("claim after close: got %v, want ErrClosed", err)
		}
		if was := b.lock(t, "one", "b").Previous(); was != nil {
			t.Errorf("previous: got %q, want none", was)
		}

		b.wire.cut()
		start := time.Now()
		err = b.Close()
		if took := time.Since(start); err == nil || took > 11*time.Second {
			t.Errorf("close without a store: got %v after %v, want an error within seconds", err, took)
		}
		took := c.patiently(t, 3*ttl, func() error {
			_, err := c.TryLock(t.Context(), "one", refstore.Exclusive, nil)
			return err
		})
		if took < ttl/2 {
			t.Errorf("taken over after %v", took)
		}
	})
}

// TestAbsentSession: a hold of a removed session is free; its text is passed on.
func TestAbsentSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		a.lock(t, "one", "a")
		a.claim(t, 1, "a")
		a.claim(t, 2, "a")
		a.wire.fail(func(op string, key refstore.Key) error {
			if strings.HasPrefix(key.Partition, "LEASE/claims") || strings.HasPrefix(key.Partition, "LEASE/locks") {
				return errFault
			}
			return nil
		}, nil)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, held, err := b.Holder(t.Context(), "one"); held || err != nil {
			t.Errorf("held %v, %v", held, err)
		}
		if was := b.lock(t, "one", "b").Previous(); string(was) != "a" {
			t.Errorf("previous holder: got %q", was)
		}
		if was := b.claim(t, 1, "b").Previous(); string(was) != "a" {
			t.Errorf("previous claimant: got %q", was)
		}
		if n, err := b.SweepClaims(t.Context()); n != 1 || err != nil {
			t.Errorf("swept %d claims, %v, want 1", n, err)
		}
		if remaining := w.remaining(t, "LEASE/claims/01"); len(remaining) != 1 {
			t.Errorf("claims of the living: %q left, want 1", remaining)
		}
		if remaining := w.remaining(t, "LEASE/claims/02"); len(remaining) != 0 {
			t.Errorf("claims of the dead: %q left", remaining)
		}
	})
}

// TestShared: shared holders come and go beside each other; a dead one blocks no other.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.on("a"), w.on("b"), w.on("c")
		share := func(m *machine) refstore.Lock {
			l, err := m.TryLock(t.Context(), "one", refstore.Shared, nil)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		one, two, three := share(a), share(b), share(b)
		a.wire.cut()
		if err := errors.Join(two.Unlock(), three.Unlock()); err != nil {
			t.Fatal(err)
		}
		took := c.patiently(t, 3*ttl, func() error {
			l, err := c.TryLock(t.Context(), "one", refstore.Exclusive, nil)
			if err == nil {
				err = l.Unlock()
			}
			return err
		})
		if took < ttl/2 || took > ttl+5*time.Second {
			t.Errorf("a dead holder kept others for %v", took)
		}
		a.wire.mend()
		if err := one.Unlock(); err != nil {
			t.Error(err)
		}
		if l := share(c); l.Previous() != nil {
			t.Errorf("previous: got %q", l.Previous())
		}
	})
}
