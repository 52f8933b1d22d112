package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/refstoretest"
)

// retaking is a machine whose session may begin anew after it was found dead.
func (w *world) retaking(host string) *outlasting {
	m := &outlasting{machine: w.on(host, func(o *lease.Options) { o.Retake = true })}
	m.Outlast(24 * time.Hour)
	return m
}

// bury cuts a machine off for a while, in which another finds it dead.
func (w *world) bury(t *testing.T, a *outlasting, by *machine, meanwhile func()) {
	t.Helper()
	a.wire.cut()
	for range 30 { // an observer needs several looks
		if _, err := by.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 10)
	}
	if meanwhile != nil {
		meanwhile()
	}
	a.wire.mend()
}

// A session that was found dead goes on under another id, with all that it held and protected.
func TestRetake(t *testing.T) {
	for _, how := range []string{"unsettled", "settled", "swept"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.retaking("a"), w.on("b")
				lock := a.lock(t, "one", "a")
				claim := a.claim(t, 1, "a")
				shared, err := a.TryLock(t.Context(), "two", refstore.Shared, nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				many := 3000
				if how == "swept" { // a sweep also removes a large set
					many = 3
				}
				for i := range many {
					names = append(names, fmt.Sprintf("node %064d", i))
				}
				for _, list := range [][]string{names, {"x"}} {
					if _, err := a.Protect(t.Context(), list); err != nil {
						t.Fatal(err)
					}
				}
				if err := a.Rely(t.Context(), [32]byte{7}); err != nil {
					t.Fatal(err)
				}
				session, _ := a.Session(t.Context())
				time.Sleep(time.Minute)
				w.bury(t, a, b, func() {
					if how != "unsettled" {
						time.Sleep(settle * 2)
					}
					if how == "swept" {
						if n, err := b.Sweep(t.Context()); n != 1 || err != nil {
							t.Fatalf("swept %d, %v", n, err)
						}
					}
				})
				if err := a.Confirm(t.Context()); err != nil || a.lost() {
					t.Fatalf("after the outage: %v", err)
				}
				if now, _ := a.Session(t.Context()); now == session {
					t.Error("the id is that of a dead session")
				}
				for name, l := range map[string]refstore.Lock{"lock": lock, "claim": claim, "shared lock": shared} {
					if l, ok := l.(refstore.Lapsing); !ok || !l.Lapsed() {
						t.Errorf("the %s has not lapsed", name)
					}
				}
				var locked *refstore.LockedError
				if _, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil); !errors.As(err, &locked) || string(locked.Holder) != "a" {
					t.Errorf("lock of another: got %v, want that a holds it", err)
				}
				if _, err := b.TryLock(t.Context(), "two", refstore.Exclusive, nil); !errors.As(err, &locked) {
					t.Errorf("lock of another: got %v, want that it is shared", err)
				}
				if _, err := b.TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrClaimed) {
					t.Errorf("claim of another: got %v, want ErrClaimed", err)
				}
				if how == "unsettled" { // the dead session counts too
					time.Sleep(settle)
					if _, err := b.Sweep(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := refstoretest.WantProtected(t.Context(), b, append(slices.Clone(names), "x", fmt.Sprintf("%x", [32]byte{7}))...); err != nil {
					t.Error(err)
				}
				if err := errors.Join(lock.Unlock(), claim.Unlock(), shared.Unlock()); err != nil {
					t.Error(err)
				}
				if was := b.lock(t, "one", "b").Previous(); was != nil {
					t.Errorf("previous: %q", was)
				}
				if was := b.claim(t, 1, "b").Previous(); was != nil {
					t.Errorf("previous: %q", was)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * settle)
				if _, err := b.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				if left := w.remaining(t, "LEASE/sessions"); len(left) != 1 {
					t.Errorf("sessions left: %q", left)
				}
			})
		})
	}
}

// A claim that another process has taken meanwhile is that one's; the session goes on. A lock ends it.
func TestRetakeTaken(t *testing.T) {
	for _, what := range []string{"claim", "lock"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.retaking("a"), w.on("b")
				a.lock(t, "one", "a")
				claim := a.claim(t, 1, "a")
				time.Sleep(time.Minute)
				w.bury(t, a, b, func() {
					var was []byte
					if what == "lock" {
						was = b.lock(t, "one", "b").Previous()
					} else {
						was = b.claim(t, 1, "b").Previous()
					}
					if string(was) != "a" {
						t.Errorf("previous: %q", was)
					}
				})
				err := a.Confirm(t.Context())
				if lost := errors.Is(err, refstore.ErrLost); lost != (what == "lock") || err != nil && !lost {
					t.Fatalf("got %v", err)
				}
				if what == "lock" {
					return
				}
				if err := claim.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(ttl)
				if _, err := w.on("c").TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrClaimed) {
					t.Errorf("its release has freed the claim of another: %v", err)
				}
			})
		})
	}
}

// A session does not begin anew where a collection may have removed what it had stored, after its requests had settled.
func TestRetakeCollected(t *testing.T) {
	for _, when := range []string{"over", "in progress"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.retaking("a"), w.on("b")
				a.lock(t, "one", "a")
				time.Sleep(time.Minute)
				w.bury(t, a, b, func() {
					time.Sleep(2 * settle)
					end, err := b.Quiesce(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if when == "over" {
						end()
					} else {
						t.Cleanup(end)
					}
				})
				if err := a.Confirm(t.Context()); !errors.Is(err, refstore.ErrLost) {
					t.Errorf("got %v, want ErrLost", err)
				}
			})
		})
	}
}

// A cancelled process does not begin anew.
func TestRetakeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.retaking("a"), w.on("b")
		a.lock(t, "one", "a")
		time.Sleep(time.Minute)
		w.bury(t, a, b, func() { a.Outlast(0) })
		if err := a.Confirm(t.Context()); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}
