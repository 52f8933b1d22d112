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

// over asks whether a session is over.
func (m *machine) over(t *testing.T, id string) (over bool, pending time.Duration) {
	t.Helper()
	over, pending, err := m.Ended(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return over, pending
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
		if over, pending := a.over(t, id); over || pending != 0 {
			t.Errorf("of its own: got %v, %v, want false, 0", over, pending)
		}
		if over, pending := b.over(t, id); over || pending <= 0 || pending > ttl {
			t.Errorf("at first sight: got %v, %v, want false and up to a lease", over, pending)
		}
		for began := time.Now(); time.Since(began) < 3*ttl; time.Sleep(ttl / 5) {
			if over, _ := b.over(t, id); over {
				t.Fatal("a session that is renewed is over")
			}
		}
		if _, pending := b.over(t, id); pending != 0 {
			t.Errorf("once it was seen to be renewed: got %v pending, want 0", pending)
		}

		// One that is silent is over after a lease, for all: it is marked.
		a.wire.cut()
		silent := time.Now()
		for {
			over, _ := b.over(t, id)
			if took := time.Since(silent); over && took < ttl*2/3 || !over && took > 2*ttl {
				t.Fatalf("silent for %v: got %v", took, over)
			}
			if over {
				break
			}
			time.Sleep(ttl / 20)
		}
		a.wire.mend()
		<-a.Lost()
		if _, err := a.Session(t.Context()); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("the session, once it is lost: got %v, want ErrLost", err)
		}
		if over, _ := w.on("else").over(t, id); !over {
			t.Error("somebody who never saw it: got that it lives")
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
		if over, pending := b.over(t, id); over || pending != 0 {
			t.Errorf("of a process that is there: got %v, %v, want false, 0", over, pending)
		}
		time.Sleep(ttl)
		w.kill(a)
		if over, _ := b.over(t, id); !over {
			t.Error("of a process that is gone: got that it lives")
		}
	})
}

func TestSessionThatWasNeverIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newWorld(t).on("here")
		if over, _ := a.over(t, "0197aaaa-bbbb-7ccc-8ddd-eeeeffff0000"); !over {
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
		if over, _ := b.over(t, id); over {
			t.Error("before its end: got that it is over")
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 10) // it is looked at no more often than is of use
		if over, _ := b.over(t, id); !over {
			t.Error("after its end: got that it lives")
		}
	})
}
