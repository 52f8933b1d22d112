package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

// collects tries a collection as gc does: it sweeps first.
func (m *machine) collects(t testing.TB) error {
	t.Helper()
	if _, err := m.Sweep(t.Context()); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	end, err := m.Quiesce(t.Context())
	if err == nil {
		end()
	}
	return err
}

// stands checks that a process of this host, with its pid, stands in the way of a collection.
func (m *machine) stands(t testing.TB, pid int) {
	t.Helper()
	var unsettled *refstore.UnsettledError
	if err := m.collects(t); !errors.As(err, &unsettled) || unsettled.PID != pid {
		t.Errorf("a collection: got %v, want an UnsettledError about process %d", err, pid)
	}
}

// again starts a process's leases anew, as a worker does that has lost its session.
func (w *world) again(host string, before *machine) *machine {
	return w.on(host, func(o *lease.Options) { o.Owner.Process.PID = before.pid })
}

// TestStoppedWriter: a process of this host that lost its lease and is still there stands in the way for as long as it is, however
// often others sweep; one that has found out and has stopped what it did, as long as what it sent may arrive.
func TestStoppedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here := w.on("a"), w.on("a")
		a.rely(t, name(0))
		a.wire.cut()
		time.Sleep(ttl + settle)
		for range 3 {
			here.stands(t, a.pid)
			time.Sleep(2 * settle)
		}
		if left := w.left(t, "LEASE/sessions"); len(left) != 2 {
			t.Errorf("sessions %q are left, want that of the stopped process and one more", left)
		}
		a.wire.mend()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := here.collects(t); err != nil {
			t.Errorf("when it has gone on: %v", err)
		}
	})
}

// TestStoppedWriterGoes: once it is gone, what it sent is waited for, and its record goes.
func TestStoppedWriterGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here := w.on("a"), w.on("a")
		a.rely(t, name(0))
		a.wire.cut()
		time.Sleep(ttl + settle)
		here.stands(t, a.pid)
		w.kill(a)
		if err := here.collects(t); err != nil {
			t.Errorf("when it is gone: %v", err)
		}
		if left := w.left(t, "LEASE/sessions"); len(left) != 1 {
			t.Errorf("sessions %q are left, want the collector's", left)
		}
	})
}

// TestCloseWithoutStore: a process that could not say that its session is over, as the store could not be reached, and goes on in
// another, says so with its next sweep: until then it blocks collections, as no other process can know.
func TestCloseWithoutStore(t *testing.T) {
	for outage, lost := range map[string]bool{"for longer than a lease": true, "for a moment": false} {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, here := w.on("a"), w.on("a")
				a.rely(t, [32]byte{1})
				a.wire.cut()
				if lost {
					time.Sleep(ttl)
				}
				_ = a.Close() // cannot report it
				time.Sleep(ttl + settle)
				here.stands(t, a.pid)
				time.Sleep(settle)
				here.stands(t, a.pid)

				next := w.again("a", a)
				next.rely(t, [32]byte{2})
				if _, err := next.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(settle)
				if err := here.collects(t); err != nil {
					t.Errorf("when its process has said that it is over: %v", err)
				}
				if left := w.left(t, "LEASE/sessions"); len(left) != 2 {
					t.Errorf("sessions %q are left, want the collector's and the new one", left)
				}
				if err := next.Confirm(t.Context()); err != nil {
					t.Errorf("the new session: %v", err)
				}
			})
		})
	}
}

// TestBeginWithoutStore: the same of a session that never began for its process, as no answer came.
func TestBeginWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here := w.on("a"), w.on("a")
		a.wire.fail(nil, func(op string, _ refstore.Key) error {
			a.wire.fail(func(string, refstore.Key) error { return errFault }, nil) // it took effect; from here on nothing does
			return errFault
		})
		if err := a.Rely(t.Context(), name(1)); err == nil {
			t.Fatal("a session began in a store that fails")
		}
		a.wire.fail(nil, nil)
		if left := w.left(t, "LEASE/sessions"); len(left) != 1 {
			t.Fatalf("sessions %q are left, want the one that nobody has", left)
		}
		if err := here.collects(t); err == nil {
			t.Error("a collection went on beside a session that may live")
		}
		a.rely(t, name(1))
		if _, err := a.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle)
		if err := here.collects(t); err != nil {
			t.Errorf("when its process has said that it is over: %v", err)
		}
	})
}

// TestTwoOfOneProcess: a process that has two sessions at a time does not take one for over because the other sweeps.
func TestTwoOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.on("a")
		b := w.again("a", a)
		a.rely(t, name(0))
		b.rely(t, name(1))
		for range 3 {
			for _, m := range []*machine{a, b} {
				if n, err := m.Sweep(t.Context()); n != 0 || err != nil {
					t.Errorf("swept %d, %v, want none", n, err)
				}
				if err := m.Confirm(t.Context()); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(ttl)
		}
		if err := a.collects(t); err != nil {
			t.Error(err)
		}
	})
}
