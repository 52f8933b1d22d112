package lease_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

// TestSending: a request that is signed with a later date than the lease's clock suggests is sent only after a renewal.
func TestSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		ask, other := a.Sending(), a.Sending()
		if err := ask(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Errorf("without a session: %v", err)
		}
		a.lock(t, "one", "a")
		for _, c := range []struct {
			what  string
			ahead time.Duration // of the lease's clock
			want  int           // renewals
		}{
			{"at first", 0, 0},
			{"a little late", 9 * time.Second, 0},
			{"after an hour that the clock has missed", time.Hour, 1},
			{"again", time.Hour, 0},
			{"not much later", time.Hour + 9*time.Second, 0},
			{"by a time that was corrected", time.Hour - time.Minute, 0},
			{"as if it were an hour again", time.Hour, 1},
			{"before", -time.Hour, 0},
			{"back at first", 0, 1},
		} {
			a.wire.counted()
			if err := ask(t.Context(), time.Now().Add(c.ahead)); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			want := map[string]int{}
			if c.want > 0 {
				want["put sessions"] = c.want
			}
			if got := a.wire.counted(); !maps.Equal(got, want) {
				t.Errorf("%s: got calls %v, want %v", c.what, got, want)
			}
		}
		// A new client starts with the difference between the clocks when the session began.
		if err := other(t.Context(), time.Now().Add(time.Hour)); err != nil || a.wire.counted()["put sessions"] != 1 {
			t.Errorf("another client: got %v, want nothing but a renewal", err)
		}
	})
}

// TestSendingOfTheDead: a session that was declared dead while its clock stood still sends nothing, even if Held
// returns nil.
func TestSendingOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		ask := a.Sending()
		a.lock(t, "one", "a")
		endSession(t, w, a)
		if err := a.Held(); err != nil {
			t.Fatalf("it knows: %v", err)
		}
		if err := ask(t.Context(), time.Now()); err != nil {
			t.Errorf("as of the time that it knows: %v", err)
		}
		if err := ask(t.Context(), time.Now().Add(time.Minute)); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("as of later: got %v, want ErrLost", err)
		}
		if !a.lost() {
			t.Error("Lost is open")
		}
	})
}

// TestSendingWithoutStore: while the state of the session is unknown, nothing is sent, and nothing is lost.
func TestSendingWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		ask := a.Sending()
		a.lock(t, "one", "a")
		a.wire.fail(func(string, refstore.Key) error { return errFault }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/3)
		defer cancel()
		if err := ask(ctx, time.Now().Add(time.Hour)); !errors.Is(err, context.DeadlineExceeded) || a.lost() {
			t.Errorf("got %v, lost %v, want that it waits", err, a.lost())
		}
		a.wire.fail(nil, nil)
		if err := ask(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
	})
}

// endSession removes the record of a session, as if others had marked and swept it.
func endSession(t *testing.T, w *world, m *machine) {
	t.Helper()
	id, err := m.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := refstore.Key{Partition: lease.Kind + "/sessions", Sort: id}
	r, err := w.store.Get(t.Context(), key)
	if err == nil {
		err = w.store.Delete(t.Context(), key, r.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
}
