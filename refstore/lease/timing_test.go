package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

// TestTakeover: a dead holder costs any observer one lease, once, however much it held.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.on("a"), w.on("b"), w.on("c")
		for _, name := range []string{"one", "two"} {
			a.lock(t, name, "a holds "+name)
		}
		for key := range byte(5) {
			a.claim(t, key, fmt.Sprint("a claims ", key))
		}
		time.Sleep(time.Minute)
		a.wire.cut()
		var l refstore.Lock
		took := b.patiently(t, 2*ttl, func() (err error) {
			l, err = b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
			return err
		})
		if _, pace := b.Pace(); took < ttl || took > ttl+ttl/3+2*pace {
			t.Errorf("took over after %v, want about a lease of %v", took, ttl)
		}
		if got := string(l.Previous()); got != "a holds one" {
			t.Errorf("previous holder: got %q", got)
		}
		start := time.Now()
		if got := string(c.lock(t, "two", "c").Previous()); got != "a holds two" {
			t.Errorf("previous holder of the other lock: got %q", got)
		}
		for key := range byte(5) {
			if got, want := string(c.claim(t, key, "c").Previous()), fmt.Sprint("a claims ", key); got != want {
				t.Errorf("previous claimant: got %q, want %q", got, want)
			}
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the dead one's other holds cost %v", waited)
		}
		a.wire.mend()
		if err := a.Confirm(t.Context()); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("the dead one: got %v, want ErrLost", err)
		}
	})
}

// TestNoTakeover: a session that renews keeps its holds, and is known to be alive after one renewal.
func TestNoTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		a.lock(t, "one", "a")
		a.claim(t, 1, "a")
		known := time.Duration(-1)
		for start := time.Now(); time.Since(start) < 10*ttl; time.Sleep(300 * time.Millisecond) {
			_, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
			var locked *refstore.LockedError
			if !errors.As(err, &locked) || string(locked.Holder) != "a" {
				t.Fatalf("after %v: got %v, want that a holds it", time.Since(start), err)
			}
			if locked.Pending < 0 || locked.Pending > ttl {
				t.Fatalf("after %v: open for %v whether a lives", time.Since(start), locked.Pending)
			}
			if locked.Pending == 0 && known < 0 {
				known = time.Since(start)
			}
			if locked.Pending > 0 && known >= 0 {
				t.Fatalf("after %v: open for %v whether a lives, which was known", time.Since(start), locked.Pending)
			}
			if _, err := b.TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrClaimed) {
				t.Fatalf("after %v: got %v, want ErrClaimed", time.Since(start), err)
			}
			if holder, held, err := b.Holder(t.Context(), "one"); string(holder) != "a" || !held || err != nil {
				t.Fatalf("holder: got %q, %v, %v", holder, held, err)
			}
		}
		if known < 0 || known > ttl/3+2*time.Second {
			t.Errorf("it took %v to know that a lives, want less than a beat of %v", known, ttl/3)
		}
		if a.lost() {
			t.Error("a lost its lease")
		}
	})
}

// TestLostInTime: a session that cannot renew itself stops before a takeover.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 20 { // renewals are at random times
			w := newWorld(t)
			a, b := w.on("a"), w.on("b")
			l := a.lock(t, "one", "a")
			time.Sleep(ttl + time.Duration(i)*ttl/40)
			a.wire.cut()
			start := time.Now()
			b.patiently(t, 3*ttl, func() error {
				_, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
				if err == nil && !a.lost() {
					t.Errorf("taken over after %v, and the holder does not know", time.Since(start))
				}
				return err
			})
			if err := a.Held(); !errors.Is(err, refstore.ErrLost) {
				t.Errorf("held: got %v, want ErrLost", err)
			}
			if err := l.Unlock(); err != nil {
				t.Errorf("release of what is another's: %v", err)
			}
			a.wire.mend()
			if _, held, err := b.Holder(t.Context(), "one"); !held || err != nil {
				t.Errorf("after that release: held %v, %v, want that b still holds it", held, err)
			}
		}
	})
}

// TestWhatLostMeans: every call that relies on the session fails with an explanation.
func TestWhatLostMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		a.lock(t, "one", "a")
		start := time.Now()
		a.wire.cut()
		<-a.Lost()
		if took := time.Since(start); took < ttl/5*4-time.Second || took > ttl/5*4+ttl/15+time.Second {
			t.Errorf("lost after %v, want four fifths of %v", took, ttl)
		}
		a.wire.mend()
		ctx := t.Context()
		for what, call := range map[string]func() error{
			"lock":    func() error { _, err := a.TryLock(ctx, "x", refstore.Shared, nil); return err },
			"claim":   func() error { _, err := a.TryClaim(ctx, [32]byte{}, nil); return err },
			"began":   func() error { _, err := a.SessionBegan(ctx); return err },
			"protect": func() error { _, err := a.Protect(ctx, []string{"x"}); return err },
			"rely":    func() error { return a.Rely(ctx, [32]byte{}) },
			"quiesce": func() error { _, err := a.Quiesce(ctx); return err },
			"condemn": func() error { _, _, err := a.Condemn(ctx, 0, make([][32]byte, 1)); return err },
			"confirm": func() error { return a.Confirm(ctx) },
			"held":    a.Held,
		} {
			if err := call(); !errors.Is(err, refstore.ErrLost) {
				t.Errorf("%s: got %v, want ErrLost", what, err)
			}
		}
		t.Log(a.Held())
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		// A later taker need not wait.
		b := w.on("b")
		if got := string(b.lock(t, "one", "b").Previous()); got != "a" {
			t.Errorf("previous holder: got %q, want a", got)
		}
	})
}

// TestWake: a machine that slept notices that before it does anything.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		a.lock(t, "one", "a")
		a.wire.counted()
		a.sleep(time.Hour)
		if _, err := a.TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("claim after waking: got %v, want ErrLost", err)
		}
		if calls := a.wire.counted(); len(calls) > 0 {
			t.Errorf("a process that slept too long asked the store: %v", calls)
		}
		if !a.lost() {
			t.Error("Lost is open")
		}
		// It also notices without any call.
		b := w.on("b")
		b.lock(t, "two", "b")
		b.sleep(time.Hour)
		time.Sleep(ttl / 15)
		synctest.Wait()
		if !b.lost() {
			t.Error("a process that slept and calls nothing does not know that it is lost")
		}
	})
}

// TestFaultsThatPass: faults that are shorter than the lease lose nothing, whether or not the failed call took effect.
func TestFaultsThatPass(t *testing.T) {
	hooks := map[string]func(w *wire){
		"before": func(w *wire) { w.fail(func(string, refstore.Key) error { return errFault }, nil) },
		"after":  func(w *wire) { w.fail(nil, func(string, refstore.Key) error { return errFault }) },
		"writes whose answers get lost": func(w *wire) {
			w.fail(nil, func(op string, _ refstore.Key) error {
				if op == "get" {
					return nil
				}
				return errFault
			})
		},
		"hanging": func(w *wire) { w.cut() },
	}
	for name, fail := range hooks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.on("a"), w.on("b")
				a.lock(t, "one", "a")
				for range 20 {
					time.Sleep(ttl / 2)
					fail(a.wire)
					time.Sleep(ttl / 3)
					if a.wire.mended != nil {
						a.wire.mend()
					}
					a.wire.fail(nil, nil)
					if _, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil); err == nil {
						t.Fatal("taken over")
					}
				}
				if err := a.Confirm(t.Context()); err != nil || a.lost() {
					t.Errorf("confirm: %v", err)
				}
			})
		})
	}
}

// TestLostAnswersForever: a session whose writes take effect but always fail lives as long as it can read.
func TestLostAnswersForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		a.wire.fail(nil, func(op string, _ refstore.Key) error {
			if op == "put" || op == "delete" {
				return errFault
			}
			return nil
		})
		l := a.lock(t, "one", "a")
		c := a.claim(t, 1, "a")
		time.Sleep(5 * ttl)
		if err := a.Confirm(t.Context()); err != nil {
			t.Errorf("confirm: %v", err)
		}
		for _, l := range []refstore.Lock{l, c} {
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Logf("close: %v", err)
		}
		for _, partition := range []string{"LEASE/locks", "LEASE/claims/01", "LEASE/sessions"} {
			if remaining := w.remaining(t, partition); len(remaining) > 0 {
				t.Errorf("%s has %q left", partition, remaining)
			}
		}
	})
}

// TestLateWrites: abandoned writes that arrive later do not stay.
func TestLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		if _, err := a.SessionBegan(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.wire.fail(nil, func(op string, key refstore.Key) error {
			if key.Partition == "LEASE/claims/01" || key.Partition == "LEASE/locks" {
				return errFault
			}
			return nil
		})
		if _, err := a.TryClaim(t.Context(), [32]byte{1}, []byte("a")); !errors.Is(err, errFault) {
			t.Fatalf("claim: got %v, want that it failed", err)
		}
		if _, err := a.TryLock(t.Context(), "one", refstore.Exclusive, []byte("a")); !errors.Is(err, errFault) {
			t.Fatalf("lock: got %v, want that it failed", err)
		}
		a.wire.fail(nil, nil)
		time.Sleep(ttl)
		if a.lost() {
			t.Fatal("lost")
		}
		if was := b.claim(t, 1, "b").Previous(); was != nil {
			t.Errorf("claim: previous holder %q, want none", was)
		}
		if was := b.lock(t, "one", "b").Previous(); was != nil {
			t.Errorf("lock: previous holder %q, want none", was)
		}
	})
}

// TestGiveUp: a caller that gives up during a call leaves nothing behind.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		if _, err := a.SessionBegan(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a.wire.cut()
		if _, err := a.TryClaim(ctx, [32]byte{1}, []byte("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("claim: got %v, want DeadlineExceeded", err)
		}
		a.wire.mend()
		time.Sleep(ttl)
		b.claim(t, 1, "b")
		a.claim(t, 2, "a")
	})
}

// TestGone: on the host of a killed process, takers do not wait.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here, there := w.on("a"), w.on("a"), w.on("b")
		a.lock(t, "one", "a")
		a.claim(t, 1, "a")
		var locked *refstore.LockedError
		if _, err := here.TryLock(t.Context(), "one", refstore.Exclusive, nil); !errors.As(err, &locked) || locked.Pending != 0 {
			t.Errorf("a holder that runs here: got %v, want a LockedError that is sure of it", err)
		}
		w.kill(a)
		if holder, held, err := here.Holder(t.Context(), "one"); held || err != nil {
			t.Errorf("holder: got %q, %v, %v, want none", holder, held, err)
		}
		start := time.Now()
		if was := here.lock(t, "one", "here").Previous(); string(was) != "a" {
			t.Errorf("previous holder: got %q", was)
		}
		if was := there.claim(t, 1, "there").Previous(); string(was) != "a" {
			t.Errorf("previous claimant: got %q", was)
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("took %v", waited)
		}
	})
}

// TestSkew: clocks that differ by an hour change nothing.
func TestSkew(t *testing.T) {
	times := make(map[time.Duration]time.Duration)
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.on("a"), w.on("b")
			b.ahead = ahead
			a.lock(t, "one", "a")
			if _, err := b.SessionBegan(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.wire.cut()
			times[ahead] = b.patiently(t, 3*ttl, func() error {
				_, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
				return err
			})
			if b.lost() {
				t.Error("b is lost")
			}
		})
	}
	if times[time.Hour] != times[0] || times[-time.Hour] != times[0] {
		t.Errorf("a takeover takes %v, want the same for every clock", times)
	}
}

// TestLongerLease: an observer waits for the holder's lease, but not for ever.
func TestLongerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a", func(o *lease.Options) { o.TTL = time.Minute })
		b := w.on("b")
		a.lock(t, "one", "a")
		a.wire.cut()
		took := b.patiently(t, 3*time.Minute, func() error {
			_, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
			return err
		})
		if took < time.Minute || took > 70*time.Second {
			t.Errorf("took over after %v, want the holder's minute", took)
		}
	})
}

// TestCalls checks the costs in the package's comment.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("a"), w.on("b")
		if _, _, err := a.Holder(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.LiveSessions(t.Context()); err != nil {
			t.Fatal(err)
		}
		check := func(what string, m *machine, want map[string]int) {
			t.Helper()
			if got := m.wire.counted(); !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		check("reading", a, map[string]int{"get locks": 1, "list sessions": 1})
		if _, err := a.SessionBegan(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("the session", a, map[string]int{"put sessions": 1, "get epoch": 1})
		c := a.claim(t, 1, "a")
		check("a claim", a, map[string]int{"put claims": 1})
		l := a.lock(t, "one", "a")
		check("a lock", a, map[string]int{"put locks": 1})
		for i := range 1000 {
			if err := a.Rely(t.Context(), [32]byte{byte(i), byte(i >> 8)}); err != nil {
				t.Fatal(err)
			}
		}
		check("names outside of a collection", a, nil)
		if _, err := b.SessionBegan(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.wire.counted()
		for i, want := range []map[string]int{
			{"put claims": 1, "get claims": 1, "get sessions": 1}, {"get claims": 1}, {"get claims": 1},
		} {
			if _, err := b.TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrClaimed) {
				t.Fatal(err)
			}
			check(fmt.Sprintf("try %d of what is claimed", i+1), b, want)
		}
		if err := c.Unlock(); err != nil {
			t.Fatal(err)
		}
		check("a release", a, map[string]int{"delete claims": 1})
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		check("a release of a lock", a, map[string]int{"delete locks": 1})
		release, err := a.Protect(t.Context(), []string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		check("a protection", a, map[string]int{"put sessions": 1})
		release()
		check("its end", a, nil)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		check("the end", a, map[string]int{"delete sessions": 1})
	})
}
