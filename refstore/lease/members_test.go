package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/host/process"
	"e3/refstore"
	"e3/refstore/lease"
)

// ended asks whether a session has ended.
func (m *machine) ended(t *testing.T, id string) (ended bool, pending time.Duration) {
	t.Helper()
	ended, pending, err := m.Ended(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ended, pending
}

func TestSessionIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("here"), w.on("there")
		id, err := a.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := a.Session(t.Context()); err != nil || again != id {
			t.Fatalf("the session, again: got %q, %v, want %q", again, err, id)
		}
		if ended, pending := a.ended(t, id); ended || pending != 0 {
			t.Errorf("of its own: got %v, %v, want false, 0", ended, pending)
		}
		if ended, pending := b.ended(t, id); ended || pending <= 0 || pending > ttl {
			t.Errorf("at first sight: got %v, %v, want false and up to a lease", ended, pending)
		}
		for began := time.Now(); time.Since(began) < 3*ttl; time.Sleep(ttl / 5) {
			if ended, _ := b.ended(t, id); ended {
				t.Fatal("a session that is renewed is over")
			}
		}
		if _, pending := b.ended(t, id); pending != 0 {
			t.Errorf("once it was seen to be renewed: got %v pending, want 0", pending)
		}

		// A silent session has ended after a lease, for all observers: it is marked.
		a.wire.cut()
		silent := time.Now()
		for {
			ended, _ := b.ended(t, id)
			if took := time.Since(silent); ended && took < ttl*2/3 || !ended && took > 2*ttl {
				t.Fatalf("silent for %v: got %v", took, ended)
			}
			if ended {
				break
			}
			time.Sleep(ttl / 20)
		}
		a.wire.mend()
		<-a.Lost()
		if _, err := a.Session(t.Context()); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("the session, once it is lost: got %v, want ErrLost", err)
		}
		if ended, _ := w.on("else").ended(t, id); !ended {
			t.Error("a process that never saw it: got that it is alive")
		}
	})
}

func TestSessionOfAGoneProcessIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("here"), w.on("here")
		id, err := a.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ended, pending := b.ended(t, id); ended || pending != 0 {
			t.Errorf("of a process that is there: got %v, %v, want false, 0", ended, pending)
		}
		time.Sleep(ttl)
		w.kill(a)
		if ended, _ := b.ended(t, id); !ended {
			t.Error("of a process that is gone: got that it lives")
		}
	})
}

func TestSessionThatWasNeverIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newWorld(t).on("here")
		if ended, _ := a.ended(t, "0197aaaa-bbbb-7ccc-8ddd-eeeeffff0000"); !ended {
			t.Error("got that it lives")
		}
		for _, bad := range []string{"", string(make([]byte, 2000)), "\xff"} {
			if _, _, err := a.Ended(t.Context(), bad); err == nil {
				t.Errorf("session %.10q: got no error", bad)
			}
		}
	})
}

func TestSessionThatHasEndedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := lease.New(w.store, lease.Options{TTL: ttl, Owner: lease.Owner{Process: process.ID{PID: 9, StartTime: 1, Host: "here", BootID: "here"}}})
		id, err := a.Session(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		b := w.on("there")
		if ended, _ := b.ended(t, id); ended {
			t.Error("before its end: got that it is over")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 10) // it is read no more often than is useful
		if ended, _ := b.ended(t, id); !ended {
			t.Error("after its end: got that it lives")
		}
	})
}
