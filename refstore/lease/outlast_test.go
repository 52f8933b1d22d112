package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// outlasting is a machine whose session may outlast outages, with the suspensions that it reported.
type outlasting struct {
	*machine
	mu   sync.Mutex
	told []refstore.Suspension
}

func (w *world) outlasting(host string) *outlasting {
	m := &outlasting{machine: w.on(host)}
	m.Outlast(24 * time.Hour)
	w.t.Cleanup(m.OnSuspension(func(s refstore.Suspension) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, s)
	}))
	return m
}

// suspended demands that suspensions of about these lengths were reported, each with its end.
func (m *outlasting) suspended(t *testing.T, lengths ...time.Duration) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.told) != 2*len(lengths) {
		t.Fatalf("told %+v, want %d suspensions with their ends", m.told, len(lengths))
	}
	for i, want := range lengths {
		from, to := m.told[2*i], m.told[2*i+1]
		if from.Over || !to.Over || from.For < m.Limit() || from.For > ttl || (to.For-want).Abs() > ttl {
			t.Errorf("told %+v and %+v, want a suspension of about %v", from, to, want)
		}
	}
}

// A session outlasts a store that does not answer, and keeps its holds; meanwhile, calls wait.
func TestOutlast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.outlasting("a"), w.on("b")
		a.lock(t, "one", "a")
		a.claim(t, 1, "a")
		session, _ := a.Session(t.Context())
		time.Sleep(time.Minute)
		a.wire.cut()
		time.Sleep(ttl)
		if err := a.Held(); !errors.Is(err, refstore.ErrSuspended) || errors.Is(err, refstore.ErrLost) {
			t.Errorf("held: got %v, want ErrSuspended", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := a.Confirm(ctx); !errors.Is(err, refstore.ErrSuspended) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("confirm: got %v, want ErrSuspended and the end of the context", err)
		}
		cancel()
		taken := make(chan error, 1)
		go func() {
			_, err := a.TryLock(t.Context(), "two", refstore.Exclusive, nil)
			taken <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-taken:
			t.Fatalf("a lock was taken without the store: %v", err)
		default:
		}
		a.wire.mend()
		if err := <-taken; err != nil {
			t.Errorf("lock after the outage: %v", err)
		}
		if err := errors.Join(a.Held(), a.Confirm(t.Context())); err != nil || a.lost() {
			t.Errorf("after the outage: %v", err)
		}
		if now, err := a.Session(t.Context()); now != session || err != nil {
			t.Errorf("session %s, %v; want %s", now, err, session)
		}
		var locked *refstore.LockedError
		if _, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil); !errors.As(err, &locked) || string(locked.Holder) != "a" {
			t.Errorf("lock of another: got %v, want that a holds it", err)
		}
		if _, err := b.TryClaim(t.Context(), [32]byte{1}, nil); !errors.Is(err, refstore.ErrClaimed) {
			t.Errorf("claim of another: got %v, want ErrClaimed", err)
		}
		a.suspended(t, time.Hour+ttl)
		if all := a.Suspended(); (all - (time.Hour + ttl)).Abs() > ttl {
			t.Errorf("suspended for %v in all, want about an hour", all)
		}
	})
}

// A process that was found dead meanwhile has lost its session, whether it was disconnected or suspended.
func TestOutlastFoundDead(t *testing.T) {
	for _, how := range []string{"cut", "stopped"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.outlasting("a"), w.on("b")
				a.lock(t, "one", "a")
				a.wire.cut()
				if how == "stopped" {
					a.sleep(time.Hour)
				}
				b.patiently(t, 2*ttl, func() error {
					_, err := b.TryLock(t.Context(), "one", refstore.Exclusive, nil)
					if err == nil && a.Held() == nil {
						t.Error("taken over, and the holder believes that it holds")
					}
					return err
				})
				a.wire.mend()
				<-a.Lost()
				if err := a.Held(); !errors.Is(err, refstore.ErrLost) {
					t.Errorf("held: got %v, want ErrLost", err)
				}
			})
		})
	}
}

// After an outage of all machines, none is found dead: an observer that could not renew its own session starts
// observing again.
func TestOutageOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, outage := range []time.Duration{ttl * 3 / 4, ttl, 20 * ttl} {
			w := newWorld(t)
			var all []*outlasting
			for _, host := range []string{"a", "b", "c"} {
				all = append(all, w.outlasting(host))
			}
			all[0].lock(t, "one", "a")
			for _, m := range all[1:] {
				if _, err := m.Session(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			var polling sync.WaitGroup
			for _, m := range all[1:] {
				polling.Go(func() {
					for ctx.Err() == nil {
						if _, err := m.TryLock(ctx, "one", refstore.Exclusive, nil); err == nil {
							t.Errorf("outage of %v: the lock was taken over", outage)
						}
						time.Sleep(ttl / 20)
					}
				})
			}
			time.Sleep(time.Minute)
			for _, m := range all {
				m.wire.cut()
			}
			time.Sleep(outage)
			for _, m := range slices.Backward(all) { // the holder is the last to reach the store
				m.wire.mend()
				time.Sleep(ttl / 10)
			}
			time.Sleep(10 * ttl)
			stop()
			polling.Wait()
			for _, m := range all {
				if err := m.Held(); err != nil {
					t.Errorf("outage of %v: %v", outage, err)
				}
			}
			for _, m := range all {
				m.Close()
			}
		}
	})
}

// A suspension is final after its limit, or when the process gives up.
func TestOutlastBounded(t *testing.T) {
	for name, end := range map[string]func(*outlasting){
		"over":     func(*outlasting) { time.Sleep(time.Hour) },
		"given up": func(m *outlasting) { m.Outlast(0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newWorld(t).outlasting("a")
				a.Outlast(time.Hour)
				a.lock(t, "one", "a")
				a.wire.cut()
				time.Sleep(time.Minute)
				waiting := make(chan error, 1)
				go func() { waiting <- a.Confirm(context.Background()) }()
				synctest.Wait()
				end(a)
				<-a.Lost()
				if err := <-waiting; !errors.Is(err, refstore.ErrLost) {
					t.Errorf("a call that waits: got %v, want ErrLost", err)
				}
				a.wire.mend()
			})
		})
	}
}
