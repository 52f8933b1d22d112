package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// twice is a store that creates a record with its second try; the first is in transit until arrive.
type twice struct {
	refstore.Store
	late []refstore.Record
}

func (s *twice) Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	v, err = s.Put(ctx, r)
	s.late = append(s.late, r)
	return v, true, err
}

// arrive lets the first try of the last creation arrive, and returns whether it made the record.
func (s *twice) arrive(t *testing.T) bool {
	t.Helper()
	_, err := s.Put(t.Context(), s.late[len(s.late)-1])
	if err != nil && !errors.Is(err, refstore.ErrConflict) {
		t.Fatal(err)
	}
	return err == nil
}

// TestLateCreation delivers the first try of a claim or lock after its release: a live session holds it without
// knowing. Others soon get it all the same.
func TestLateCreation(t *testing.T) {
	for _, what := range []string{"claim", "lock", "shared lock"} {
		take := func(m *machine, shared bool) (refstore.Lock, error) {
			if what == "claim" {
				return m.TryClaim(context.Background(), [32]byte{1}, nil)
			}
			mode := refstore.Exclusive
			if shared {
				mode = refstore.Shared
			}
			return m.TryLock(context.Background(), "l", mode, nil)
		}
		for _, c := range []struct {
			name  string
			after time.Duration // the delay of the release, each time that a try arrives
			times int
			fails bool // the first try to release fails
		}{
			{name: "at once", times: 1},
			{name: "later", after: ttl, times: 1},
			{name: "once and again", after: ttl, times: 2},
			{name: "when the release has failed", after: ttl, times: 1, fails: true},
		} {
			t.Run(what+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					a, b := w.on("here"), w.on("there")
					slow := &twice{Store: w.store}
					a.wire.Store = slow
					lock, err := take(a, what == "shared lock")
					if err != nil {
						t.Fatal(err)
					}
					if slow.arrive(t) {
						t.Fatal("the existing record was made again")
					}
					if c.fails {
						a.wire.fail(func(op string, _ refstore.Key) error {
							if op == "delete" {
								return errFault
							}
							return nil
						}, nil)
					}
					if err := lock.Unlock(); err != nil {
						t.Fatal(err)
					}
					a.wire.fail(nil, nil)
					for range c.times {
						time.Sleep(c.after)
						if !slow.arrive(t) {
							t.Fatal("it was not released")
						}
						b.patiently(t, 3*ttl, func() error {
							lock, err := take(b, false)
							if err == nil {
								err = lock.Unlock()
							}
							return err
						})
					}
					if a.lost() {
						t.Error("its session was lost")
					}
				})
			})
		}
	}
}

// TestLateCondemned delivers the first try of a condemned list after its removal: no waiter waits for it as long as the
// collector's session is alive.
func TestLateCondemned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.on("here"), w.on("there")
		slow := &twice{Store: w.store}
		a.wire.Store = slow
		name := [32]byte{1, 2}
		end, err := a.Quiesce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		_, done, err := a.Condemn(t.Context(), 1, [][32]byte{name})
		if err == nil {
			err = done(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !slow.arrive(t) {
			t.Fatal("the list was not removed")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
		defer cancel()
		if err := b.Rely(ctx, name); err != nil {
			t.Error(err)
		}
	})
}
