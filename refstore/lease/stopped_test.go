package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

// collects tries a collection as gc does: after a sweep.
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

// stands checks that a process of this host, with its pid, blocks a collection.
func (m *machine) stands(t testing.TB, pid int) {
	t.Helper()
	var unsettled *refstore.UnsettledError
	if err := m.collects(t); !errors.As(err, &unsettled) || unsettled.PID != pid {
		t.Errorf("a collection: got %v, want an UnsettledError about process %d", err, pid)
	}
}

// again starts a process's leases again, as a worker does that has lost its session.
func (w *world) again(host string, before *machine) *machine {
	return w.on(host, func(o *lease.Options) { o.Owner.Process.PID = before.pid })
}

// TestStoppedWriter: a process of this host that lost its lease and still exists blocks collections as long as it
// exists, however often others sweep. Once it has noticed and stopped its work, it blocks them as long as its requests
// may arrive.
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
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 2 {
			t.Errorf("sessions %q are left, want that of the stopped process and one more", remaining)
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

// TestStoppedWriterGoes: after it has ended, its requests are waited for, and its record is removed.
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
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 1 {
			t.Errorf("sessions %q are left, want the collector's", remaining)
		}
	})
}

// TestCloseWithoutStore: a process could not report the end of its session, because the store was unreachable, and
// continues in another session. It reports the end with its next sweep; until then the old session blocks collections,
// since no other process can know.
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
				_ = a.Close() // the report fails
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
					t.Errorf("after its process has reported its end: %v", err)
				}
				if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 2 {
					t.Errorf("sessions %q are left, want the collector's and the new one", remaining)
				}
				if err := next.Confirm(t.Context()); err != nil {
					t.Errorf("the new session: %v", err)
				}
			})
		})
	}
}

// TestBeginWithoutStore: the same for a session whose creation got no answer.
func TestBeginWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, here := w.on("a"), w.on("a")
		a.wire.fail(nil, func(op string, _ refstore.Key) error {
			a.wire.fail(func(string, refstore.Key) error { return errFault }, nil) // this call takes effect; later ones do not
			return errFault
		})
		if err := a.Rely(t.Context(), name(1)); err == nil {
			t.Fatal("a session began in a store that fails")
		}
		a.wire.fail(nil, nil)
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 1 {
			t.Fatalf("sessions %q are left, want the one without a process", remaining)
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
			t.Errorf("after its process has reported its end: %v", err)
		}
	})
}

// TestTwoOfOneProcess: if a process has two sessions at a time, a sweep of one does not end the other.
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
