package lease_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
	"e3/refstore/lease"
)

func name(i int) [32]byte { return sha256.Sum256(fmt.Append(nil, i)) }

// quiesce begins a collection that must succeed.
func (m *machine) quiesce(t testing.TB) (end func()) {
	t.Helper()
	end, err := m.Quiesce(t.Context())
	if err != nil {
		t.Fatalf("quiesce: %v", err)
	}
	return end
}

func (m *machine) rely(t testing.TB, names ...[32]byte) {
	t.Helper()
	for _, name := range names {
		if err := m.Rely(t.Context(), name); err != nil {
			t.Fatalf("rely: %v", err)
		}
	}
}

// condemn condemns one name, and returns whether it may be deleted.
func (m *machine) condemn(t testing.TB, name [32]byte) (free bool, done func()) {
	t.Helper()
	names, finish, err := m.Condemn(t.Context(), name[0], [][32]byte{name})
	if err != nil {
		t.Fatalf("condemn: %v", err)
	}
	return slices.Equal(names, [][32]byte{name}), func() {
		t.Helper()
		if err := finish(t.Context()); err != nil {
			t.Errorf("done: %v", err)
		}
	}
}

// TestQuiesce: names that sessions relied on before are recorded once all have answered, however many they are.
func TestQuiesce(t *testing.T) {
	for _, n := range []int{0, 1, 128, 129, 20_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, c := w.on("a"), w.on("c")
				a.rely(t, name(-1))
				for i := range n {
					a.rely(t, name(i))
				}
				live(t, c, 1)
				start := time.Now()
				end := c.quiesce(t)
				if took := time.Since(start); took > ttl/3+2*time.Second {
					t.Errorf("took %v, want a beat and a pause", took)
				}
				list := live(t, c, 2)
				got := append(list[0].Protected, list[1].Protected...)
				if len(got) != n+1 {
					t.Errorf("got %d names, want %d", len(got), n+1)
				}
				for _, i := range []int{-1, 0, n - 1} {
					if want := fmt.Sprintf("%x", name(i)); i < n && !slices.Contains(got, want) {
						t.Errorf("name %d is not among the relied names", i)
					}
				}
				if free, done := c.condemn(t, name(-1)); free {
					t.Error("a relied name was condemned")
				} else {
					done()
				}
				if free, done := c.condemn(t, name(-2)); !free {
					t.Error("a name without a session was spared")
				} else {
					done()
				}
				end()
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if remaining := append(w.remaining(t, "LEASE/relied"), w.remaining(t, "LEASE/condemned")...); len(remaining) > 0 {
					t.Errorf("left %q", remaining)
				}
			})
		})
	}
}

// TestRelyDuringCollection: Rely waits for a condemned name, but for no other; names that were written down are spared.
func TestRelyDuringCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		end := c.quiesce(t)
		defer end()
		free, done := c.condemn(t, name(1))
		if !free {
			t.Fatal("a name without a session was spared")
		}
		relied := make(chan error, 1)
		go func() { relied <- a.Rely(t.Context(), name(1)) }()
		a.rely(t, name(2), name(0))
		time.Sleep(time.Minute)
		select {
		case err := <-relied:
			t.Fatalf("relied on a condemned name: %v", err)
		default:
		}
		done()
		if err := <-relied; err != nil {
			t.Error(err)
		}
		for _, i := range []int{0, 1, 2} {
			free, done := c.condemn(t, name(i))
			if free {
				t.Errorf("the relied name %d was condemned", i)
			}
			done()
		}
		// A session that begins during the collection takes part in it, even after its end.
		b := w.on("b")
		b.rely(t, name(3))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if free, done := c.condemn(t, name(3)); free {
			t.Error("a name of an ended session was condemned")
		} else {
			done()
		}
		list := live(t, c, 2)
		if all := append(list[0].Protected, list[1].Protected...); !slices.Contains(all, fmt.Sprintf("%x", name(3))) {
			t.Error("a name of an ended session is not listed")
		}
		if n, err := a.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v during the collection, want none", n, err)
		}
		end()
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 2 {
			t.Errorf("sessions %q are left, want those of a and c", remaining)
		}
	})
}

// TestSharedWrite: concurrent callers of Rely share writes.
func TestSharedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		defer c.quiesce(t)()
		a.wire.fail(func(op string, _ refstore.Key) error { time.Sleep(10 * time.Millisecond); return nil }, nil)
		a.wire.counted()
		const n = 100
		errs := make(chan error)
		for i := range n {
			go func() { errs <- a.Rely(t.Context(), name(i+1)) }()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		calls := a.wire.counted()
		if calls["put sessions"] > 3 || calls["get condemned"] != n {
			t.Errorf("%d names took %v, want a few writes and a read for each", n, calls)
		}
		a.rely(t, name(1), name(2))
		if calls := a.wire.counted(); len(calls) > 0 {
			t.Errorf("names again took %v", calls)
		}
	})
}

// hook holds up one of a machine's calls of one kind.
type hook struct{ reached, release chan struct{} }

// hold makes a machine wait before its next call of a kind, such as "put sessions".
func (m *machine) hold(op, partition string) hook {
	h := hook{make(chan struct{}), make(chan struct{})}
	var once atomic.Bool
	m.wire.fail(func(did string, key refstore.Key) error {
		if did == op && key.Partition == partition && !once.Swap(true) {
			close(h.reached)
			<-h.release
		}
		return nil
	}, nil)
	return h
}

// TestOneSeesTheOther: if a writer and a collector handle the same name at the same time, one sees the other, wherever
// either is held up.
func TestOneSeesTheOther(t *testing.T) {
	start := func(t *testing.T) (writer, collector *machine) {
		w := newWorld(t)
		writer, collector = w.on("a"), w.on("c")
		return writer, collector
	}
	rely := func(t *testing.T, m *machine) <-chan error {
		done := make(chan error, 1)
		go func() { done <- m.Rely(t.Context(), name(1)) }()
		return done
	}
	// waits continues a writer that was held up before its write reached the store. The name is condemned by then, and
	// the writer waits until the list is removed.
	waits := func(t *testing.T, c *machine, h hook, relied <-chan error) {
		t.Helper()
		free, done := c.condemn(t, name(1))
		if !free {
			t.Error("a name without a session was spared")
		}
		close(h.release)
		time.Sleep(ttl / 2)
		select {
		case err := <-relied:
			t.Fatalf("the writer got %v, though the name is condemned", err)
		default:
		}
		done()
		if err := <-relied; err != nil {
			t.Error(err)
		}
	}
	t.Run("the writer's word is held up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := start(t)
			a.rely(t, name(0))
			defer c.quiesce(t)()
			h := a.hold("put", "LEASE/sessions")
			relied := rely(t, a)
			<-h.reached
			waits(t, c, h, relied)
		})
	})
	t.Run("the list is held up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := start(t)
			a.rely(t, name(0))
			defer c.quiesce(t)()
			h := c.hold("put", "LEASE/condemned")
			condemned := make(chan bool)
			go func() {
				free, done := c.condemn(t, name(1))
				done()
				condemned <- free
			}()
			<-h.reached
			a.rely(t, name(1))
			close(h.release)
			if <-condemned {
				t.Error("a relied name was condemned")
			}
		})
	})
	t.Run("the writer's session is held up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := start(t)
			h := a.hold("put", "LEASE/sessions")
			relied := rely(t, a)
			<-h.reached
			defer c.quiesce(t)()
			waits(t, c, h, relied)
		})
	})
	t.Run("the writer's answer is held up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, c := start(t)
			a.rely(t, name(0))
			h := a.hold("get", "LEASE/epoch")
			<-h.reached
			quiesced := make(chan func())
			go func() { quiesced <- c.quiesce(t) }()
			time.Sleep(ttl / 3)
			select {
			case <-quiesced:
				t.Fatal("the collector did not wait for the answer")
			default:
			}
			a.rely(t, name(1))
			close(h.release)
			defer (<-quiesced)()
			if free, done := c.condemn(t, name(1)); free {
				t.Error("a name that was relied on before the answer was condemned")
			} else {
				done()
			}
		})
	})
}

// TestUnsettled: a session that died without an answer blocks collections until its requests have settled.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c, here := w.on("a"), w.on("c"), w.on("a")
		a.rely(t, name(0))
		w.kill(a)
		_, err := c.Quiesce(t.Context())
		var unsettled *refstore.UnsettledError
		if !errors.As(err, &unsettled) || unsettled.Wait <= settle-time.Minute || unsettled.Wait > settle {
			t.Fatalf("got %v, want an UnsettledError of about %v", err, settle)
		}
		t.Log(unsettled)
		time.Sleep(unsettled.Wait - time.Second)
		if _, err := c.Quiesce(t.Context()); !errors.As(err, &unsettled) {
			t.Fatalf("a second early: got %v, want an UnsettledError", err)
		}
		time.Sleep(2 * time.Second)
		c.quiesce(t)()
		// On the host of a process that is gone, the collector waits for its requests.
		b := w.on("a")
		b.rely(t, name(0))
		w.kill(b)
		here.quiesce(t)()
	})
}

// TestFenced: where the store refuses late writes of the dead, a dead session blocks no collection, but a dead collector's
// deletions do.
func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fenced := func(o *lease.Options) { o.Fenced = true }
		a, b, c := w.on("a", fenced), w.on("b", fenced), w.on("c", fenced)
		a.rely(t, name(0))
		w.kill(a)
		begin := time.Now()
		b.quiesce(t)
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the collection waited for %v, want no more than a lease or two", took)
		}
		w.kill(b)
		var unsettled *refstore.UnsettledError
		var locked *refstore.LockedError // until it is known to be dead
		if _, err := c.Quiesce(t.Context()); !errors.As(err, &locked) {
			t.Errorf("after a collector fell silent: got %v, want a LockedError", err)
		}
		time.Sleep(time.Minute)
		if _, err := c.Quiesce(t.Context()); !errors.As(err, &unsettled) {
			t.Errorf("after a collector that died: got %v, want an UnsettledError", err)
		}
	})
}

// TestDiedAfterAnswer: a session that died after its answer blocks nothing; its names stay protected.
func TestDiedAfterAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c, here := w.on("a"), w.on("c"), w.on("a")
		a.rely(t, name(0))
		end := c.quiesce(t)
		w.kill(a)
		if n, err := here.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v during the collection, want none", n, err)
		}
		for _, n := range []int{2, 1} { // its requests may still arrive; then they have settled, but the collection continues
			told := false
			for _, s := range live(t, c, n) {
				told = told || slices.Contains(s.Protected, fmt.Sprintf("%x", name(0)))
			}
			if !told {
				t.Errorf("%d live: the dead session's name is not listed", n)
			}
			time.Sleep(31 * time.Second)
		}
		if free, done := c.condemn(t, name(0)); free {
			t.Error("the dead session's name was condemned")
		} else {
			done()
		}
		end()
		if n, err := here.Sweep(t.Context()); n != 0 || err != nil { // the end of the collection has swept it
			t.Errorf("swept %d, %v", n, err)
		}
		if remaining := w.remaining(t, "LEASE/sessions"); len(remaining) != 1 {
			t.Errorf("sessions %q are left, want that of c", remaining)
		}
	})
}

// TestReleasedDuringCollection: a name that is released during a collection counts until its end, since it may have
// passed to a session that the collector has already read; so do the names of a session that ends.
func TestReleasedDuringCollection(t *testing.T) {
	for _, large := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b, c := w.on("a"), w.on("b"), w.on("c")
			names := []string{"file of a"}
			if large {
				for i := range 1000 {
					names = append(names, fmt.Sprintf("file %d", i))
				}
			}
			before, err := a.Protect(t.Context(), []string{"before"})
			if err != nil {
				t.Fatal(err)
			}
			end := c.quiesce(t)
			before()
			release, err := a.Protect(t.Context(), names)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if _, err := b.Protect(t.Context(), []string{"file of b"}); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ttl)
			var told []string
			for _, s := range live(t, c, 2) {
				told = append(told, s.Protected...)
			}
			for _, want := range []string{"before", "file of a", "file of b"} {
				if !slices.Contains(told, want) {
					t.Errorf("large %v: %q is not listed during the collection: %d names", large, want, len(told))
				}
			}
			end()
			time.Sleep(2 * ttl)
			for _, s := range live(t, c, 2) {
				if len(s.Protected) > 0 {
					t.Errorf("large %v: after the collection %d names are protected", large, len(s.Protected))
				}
			}
			if remaining := w.remaining(t, "LEASE/protected"); len(remaining) > 0 {
				t.Errorf("left %q", remaining)
			}
		})
	}
}

// TestCollectorDies: its list makes others wait until its requests have settled; then the epoch ends for all.
func TestCollectorDies(t *testing.T) {
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local %v", local), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				host := "c"
				if local {
					host = "a"
				}
				a, c := w.on("a"), w.on(host)
				a.rely(t, name(0))
				c.quiesce(t)
				c.condemn(t, name(1))
				w.kill(c)
				start := time.Now()
				a.rely(t, name(1))
				took := time.Since(start)
				if local && (took < 30*time.Second || took > 33*time.Second) {
					t.Errorf("waited %v for a collector that is known to be gone, want 30 s for its requests", took)
				}
				if !local && (took < ttl+settle-5*time.Second || took > ttl+settle+10*time.Second) {
					t.Errorf("waited %v for a dead collector, want its lease and %v", took, settle)
				}
				time.Sleep(ttl)
				a.wire.counted()
				a.rely(t, name(2))
				if calls := a.wire.counted(); len(calls) > 0 {
					t.Errorf("after the collection a name took %v", calls)
				}
				b := w.on("b")
				b.rely(t, name(1))
				d := w.on(host)
				end := d.quiesce(t)
				if remaining := w.remaining(t, "LEASE/condemned"); len(remaining) > 0 {
					t.Errorf("lists %q are left", remaining)
				}
				if free, done := d.condemn(t, name(1)); free {
					t.Error("a relied name was condemned")
				} else {
					done()
				}
				end()
			})
		})
	}
}

// TestCollectorStops: a suspended collector must not continue when it resumes.
func TestCollectorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, d := w.on("c"), w.on("d")
		end := c.quiesce(t)
		if free, _ := c.condemn(t, name(1)); !free {
			t.Fatal("spared")
		}
		c.wire.cut()
		_, err := d.Quiesce(t.Context())
		var locked *refstore.LockedError
		if !errors.As(err, &locked) || locked.Pending <= 0 {
			t.Errorf("beside another: got %v, want a LockedError that is not sure", err)
		}
		for {
			_, err := d.Quiesce(t.Context())
			var unsettled *refstore.UnsettledError
			if errors.As(err, &unsettled) {
				time.Sleep(unsettled.Wait)
			} else if err == nil {
				break
			} else if !errors.As(err, &locked) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		c.wire.mend()
		if err := c.Held(); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("held: got %v, want ErrLost", err)
		}
		if _, _, err := c.Condemn(t.Context(), 0, make([][32]byte, 1)); !errors.Is(err, refstore.ErrLost) {
			t.Errorf("condemn: got %v, want ErrLost", err)
		}
		end()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		// The other collector's epoch is in force.
		if _, err := w.on("e").Quiesce(t.Context()); !errors.As(err, &locked) {
			t.Errorf("beside the other: got %v, want a LockedError", err)
		}
	})
}

// TestAbandonedList: a collector that does not know whether a deletion will arrive leaves its list and an unsettled
// session.
func TestAbandonedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		end := c.quiesce(t)
		if free, _ := c.condemn(t, name(1)); !free {
			t.Fatal("spared")
		}
		end()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		var unsettled *refstore.UnsettledError
		if _, err := a.Quiesce(t.Context()); !errors.As(err, &unsettled) {
			t.Errorf("quiesce: got %v, want an UnsettledError", err)
		}
		time.Sleep(settle)
		a.quiesce(t)()
		a.rely(t, name(1))
		if remaining := w.remaining(t, "LEASE/condemned"); len(remaining) > 0 {
			t.Errorf("lists %q are left", remaining)
		}
	})
}

// TestLateDeletion: after a collection whose deletions may still arrive, writers wait for these, but no longer.
func TestLateDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		end := c.quiesce(t)
		if free, _ := c.condemn(t, name(1)); !free {
			t.Fatal("spared")
		}
		end()
		start := time.Now()
		var unsettled *refstore.UnsettledError
		if _, err := c.Quiesce(t.Context()); !errors.As(err, &unsettled) {
			t.Errorf("its next collection: got %v, want an UnsettledError", err)
		}
		b := w.on("b")
		b.rely(t, name(2))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a name on no list took %v", took)
		}
		b.rely(t, name(1))
		if took := time.Since(start); took < settle || took > settle+ttl {
			t.Errorf("relied on a name that may still be deleted after %v, want %v", took, settle)
		}
		time.Sleep(ttl)
		if remaining := w.remaining(t, "LEASE/condemned"); len(remaining) > 0 {
			t.Errorf("lists %q are left", remaining)
		}
		b.wire.counted()
		b.rely(t, name(3))
		if calls := b.wire.counted(); len(calls) > 0 {
			t.Errorf("after all that a name took %v", calls)
		}
		c.quiesce(t)()
	})
}

// TestCondemnAlone: Condemn without a collection begins one, which concurrent calls share.
func TestCondemnAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		results := make(chan bool)
		for i := range 4 {
			go func() {
				free, done := c.condemn(t, name(i))
				time.Sleep(time.Duration(i) * time.Second)
				done()
				results <- free == (i > 0)
			}()
		}
		for range 4 {
			if !<-results {
				t.Error("a relied name was condemned, or an unused one spared")
			}
		}
		w.on("d").quiesce(t)()
	})
}

// TestCondemnMisuse: invalid calls are refused.
func TestCondemnMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.on("c")
		defer c.quiesce(t)()
		n := name(1)
		if _, _, err := c.Condemn(t.Context(), n[0]+1, [][32]byte{n}); !errors.Is(err, refstore.ErrInvalid) {
			t.Errorf("a name of another shard: got %v, want ErrInvalid", err)
		}
		_, done := c.condemn(t, n)
		if _, _, err := c.Condemn(t.Context(), n[0], [][32]byte{n}); !errors.Is(err, refstore.ErrInvalid) {
			t.Errorf("a second list: got %v, want ErrInvalid", err)
		}
		done()
		_, done = c.condemn(t, n)
		done()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.Condemn(ctx, n[0], [][32]byte{n}); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: got %v, want Canceled", err)
		}
	})
}
