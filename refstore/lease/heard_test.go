package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// TestHeard: an observer on another host learns at once when a session was last written, by that host's clock. For a
// session that is known to be alive here, or has ended, Heard is empty.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		id, err := a.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lock, err := a.TryLock(t.Context(), "w", refstore.Exclusive, []byte("me"))
		if err != nil {
			t.Fatal(err)
		}
		// heard returns the answer that a new observer gets about the session and the lock's holder.
		heard := func(host string) refstore.Heard {
			t.Helper()
			m := w.on(host)
			of, err := m.Heard(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			holder, by, held, err := refstore.HeldBy(t.Context(), m, "w")
			if string(holder) != "me" || by != of || !held || err != nil {
				t.Errorf("the lock: got %q %+v, held: %v, %v, want it held by %q, %+v", holder, by, held, err, "me", of)
			}
			return of
		}
		for range 20 {
			time.Sleep(ttl / 5)
			got := heard("b")
			if ago := time.Since(got.At); ago < 0 || ago > ttl*2/5 || got.Lease != ttl {
				t.Errorf("of one that beats: got %+v, %v ago, want at most %v, and a lease of %v", got, ago, ttl*2/5, ttl)
			}
		}
		if got := heard("a"); got != (refstore.Heard{}) {
			t.Errorf("on its own host: got %+v, want nothing", got)
		}
		last := heard("b")
		a.wire.cut()
		time.Sleep(4 * ttl)
		if got := heard("b"); got.At.Before(last.At) || time.Since(got.At) < 3*ttl {
			t.Errorf("after four leases without a word: got %v, %v ago", got, time.Since(got.At))
		}
		a.wire.mend()
		_, _ = lock, a.Close()
		m := w.on("b")
		if got, err := m.Heard(t.Context(), id); got != (refstore.Heard{}) || err != nil {
			t.Errorf("of one that is over: got %+v, %v, want nothing", got, err)
		}
	})
}
