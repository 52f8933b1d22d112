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
)

func name(i int) [32]byte { return sha256.Sum256(fmt.Append(nil, i)) }

// quiesce begins a collection that must come about.
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

// condemn asks for one name, and returns whether it may go.
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

// TestQuiesce: what sessions relied on before is on record once all have answered, however much it is.
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
						t.Errorf("name %d is not among what is relied on", i)
					}
				}
				if free, done := c.condemn(t, name(-1)); free {
					t.Error("what is relied on was condemned")
				} else {
					done()
				}
				if free, done := c.condemn(t, name(-2)); !free {
					t.Error("what nobody relies on was spared")
				} else {
					done()
				}
				end()
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if left := append(w.left(t, "LEASE/relied"), w.left(t, "LEASE/condemned")...); len(left) > 0 {
					t.Errorf("left %q", left)
				}
			})
		})
	}
}

// TestRelyDuringCollection: a name that is condemned is waited for; others are not; what was written down is spared.
func TestRelyDuringCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.on("a"), w.on("c")
		a.rely(t, name(0))
		end := c.quiesce(t)
		defer end()
		free, done := c.condemn(t, name(1))
		if !free {
			t.Fatal("what nobody relies on was spared")
		}
		relied := make(chan error, 1)
		go func() { relied <- a.Rely(t.Context(), name(1)) }()
		a.rely(t, name(2), name(0))
		time.Sleep(time.Minute)
		select {
		case err := <-relied:
			t.Fatalf("relied on what is condemned: %v", err)
		default:
		}
		done()
		if err := <-relied; err != nil {
			t.Error(err)
		}
		for _, i := range []int{0, 1, 2} {
			free, done := c.condemn(t, name(i))
			if free {
				t.Errorf("name %d was condemned, which is relied on", i)
			}
			done()
		}
		// A session that begins during the collection takes part, also after its end.
		b := w.on("b")
		b.rely(t, name(3))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if free, done := c.condemn(t, name(3)); free {
			t.Error("what an ended session relied on was condemned")
		} else {
			done()
		}
		list := live(t, c, 2)
		if all := append(list[0].Protected, list[1].Protected...); !slices.Contains(all, fmt.Sprintf("%x", name(3))) {
			t.Error("what an ended session relied on is not among what is told")
		}
		if n, err := a.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("swept %d, %v during the collection, want none", n, err)
		}
		end()
		if left := w.left(t, "LEASE/sessions"); len(left) != 2 {
			t.Errorf("sessions %q are left, want those of a and c", left)
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

// hook is where a machine's calls of one kind are held up, once.
type hook struct{ reached, release chan struct{} }

// hold has a machine wait before its next call of a kind, such as "put sessions".
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

// TestOneSeesTheOther: of a writer and a collector that come to a name at the same time, one sees the other, wherever either is held up.
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
	// waits lets a writer go on who was held up before his word reached the store: the name is condemned by then, and he waits
	// until that is over.
	waits := func(t *testing.T, c *machine, h hook, relied <-chan error) {
		t.Helper()
		free, done := c.condemn(t, name(1))
		if !free {
			t.Error("what nobody relies on was spared")
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
				t.Error("what is relied on was condemned")
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
				t.Error("what was relied on before the answer was condemned")
			} else {
				done()
			}
		})
	})
}

// TestUnsettled: a session that died unanswered blocks a collection until its requests have settled.
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
		// On the host of a process that is gone, what it has sent is waited for.
		b := w.on("a")
		b.rely(t, name(0))
		w.kill(b)
		here.quiesce(t)()
	})
}

// TestDiedAfterAnswer: a session that died after its answer blocks nothing; what it relied on stays protected.
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
		for _, n := range []int{2, 1} { // what it has sent may still arrive; then it has settled, but the collection goes on
			told := false
			for _, s := range live(t, c, n) {
				told = told || slices.Contains(s.Protected, fmt.Sprintf("%x", name(0)))
			}
			if !told {
				t.Errorf("%d live: what the dead one relied on is not among what is told", n)
			}
			time.Sleep(31 * time.Second)
		}
		if free, done := c.condemn(t, name(0)); free {
			t.Error("what the dead one relied on was condemned")
		} else {
			done()
		}
		end()
		if n, err := here.Sweep(t.Context()); n != 0 || err != nil { // end has swept it
			t.Errorf("swept %d, %v", n, err)
		}
		if left := w.left(t, "LEASE/sessions"); len(left) != 1 {
			t.Errorf("sessions %q are left, want that of c", left)
		}
	})
}

// TestReleasedDuringCollection: what is let go while a collection lasts counts until its end, as it may have passed to somebody
// whom the collector has read before; so does what a session protected that ends.
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
					t.Errorf("large %v: %q is not told during the collection: %d names", large, want, len(told))
				}
			}
			end()
			time.Sleep(2 * ttl)
			for _, s := range live(t, c, 2) {
				if len(s.Protected) > 0 {
					t.Errorf("large %v: after the collection %d names are protected", large, len(s.Protected))
				}
			}
			if left := w.left(t, "LEASE/protected"); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// TestCollectorDies: its list keeps others waiting until what it sent has settled; then the epoch is over for all.
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
					t.Errorf("waited %v for a collector that is known to be gone, want 30 s for what it has sent", took)
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
				if left := w.left(t, "LEASE/condemned"); len(left) > 0 {
					t.Errorf("lists %q are left", left)
				}
				if free, done := d.condemn(t, name(1)); free {
					t.Error("what is relied on was condemned")
				} else {
					done()
				}
				end()
			})
		})
	}
}

// TestCollectorStops: one that was stopped, and wakes, may not go on.
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
		// The epoch of the other one stands.
		if _, err := w.on("e").Quiesce(t.Context()); !errors.As(err, &locked) {
			t.Errorf("beside the other: got %v, want a LockedError", err)
		}
	})
}

// TestAbandonedList: a collector that does not know whether a deletion will arrive leaves its list, and a session that has to settle.
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
		if left := w.left(t, "LEASE/condemned"); len(left) > 0 {
			t.Errorf("lists %q are left", left)
		}
	})
}

// TestLateDeletion: after a collection whose deletions may still arrive, writers wait for these, and no longer.
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
			t.Errorf("relied on what may still be deleted after %v, want %v", took, settle)
		}
		time.Sleep(ttl)
		if left := w.left(t, "LEASE/condemned"); len(left) > 0 {
			t.Errorf("lists %q are left", left)
		}
		b.wire.counted()
		b.rely(t, name(3))
		if calls := b.wire.counted(); len(calls) > 0 {
			t.Errorf("after all that a name took %v", calls)
		}
		c.quiesce(t)()
	})
}

// TestCondemnAlone: without a collection one is begun, and shared by concurrent calls of Condemn.
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
				t.Error("what is relied on was condemned, or the other way round")
			}
		}
		w.on("d").quiesce(t)()
	})
}

// TestCondemnMisuse: what makes no sense is refused.
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
