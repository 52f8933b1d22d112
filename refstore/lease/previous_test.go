package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/host/process"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// line is a process's connection to the store.
type line struct {
	*mem.Store
	cut  atomic.Bool
	once atomic.Bool // the next put takes effect, and then the line is cut: its answer is lost
}

var errCut = errors.New("no route to host")

func (l *line) Get(ctx context.Context, k refstore.Key, fields ...string) (refstore.Record, error) {
	if l.cut.Load() {
		return refstore.Record{}, errCut
	}
	return l.Store.Get(ctx, k, fields...)
}

func (l *line) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if l.cut.Load() {
		return refstore.Absent, errCut
	}
	v, err := l.Store.Put(ctx, r)
	if err == nil && r.Key.Partition != "LEASE/sessions" && l.once.CompareAndSwap(true, false) {
		l.cut.Store(true)
		return refstore.Absent, errCut
	}
	return v, err
}

func (l *line) Delete(ctx context.Context, k refstore.Key, v refstore.Version) error {
	if l.cut.Load() {
		return errCut
	}
	return l.Store.Delete(ctx, k, v)
}

// peer is a process that has leases in a store.
type peer struct {
	*lease.Leases
	line *line
}

const ttl = 15 * time.Second

func newProcess(t *testing.T, store *mem.Store) *peer {
	t.Helper()
	start := time.Now()
	p := &peer{line: &line{Store: store}}
	p.Leases = lease.New(p.line, lease.Options{
		TTL: ttl, Elapsed: func() time.Duration { return time.Since(start) },
		Alive: func(process.ID) (alive, known bool) { return false, false },
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// try tries once to take a claim or a lock.
func (p *peer) try(t *testing.T, what, holder string) (refstore.Lock, error) {
	if what == "claim" {
		return p.TryClaim(t.Context(), [32]byte{7}, []byte(holder))
	}
	return p.TryLock(t.Context(), what, refstore.Exclusive, []byte(holder))
}

// isTaken tells whether another process has it.
func isTaken(err error) bool {
	locked, ok := errors.AsType[*refstore.LockedError](err)
	return errors.Is(err, refstore.ErrClaimed) || ok && locked.Holder != nil
}

// eachHold runs a test for a claim and for a lock.
func eachHold(t *testing.T, test func(t *testing.T, what string)) {
	for _, what := range []string{"claim", "lock"} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, what) }) })
	}
}

// take takes a claim or lock for a holder, waiting for the leases of others, and checks the previous holders that it
// reports.
func (p *peer) take(t *testing.T, what, holder, previous string) refstore.Lock {
	t.Helper()
	for range 1000 {
		lock, err := p.try(t, what, holder)
		if isTaken(err) {
			time.Sleep(ttl / 50)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := string(lock.Previous()); got != previous || (lock.Previous() == nil) != (previous == "") {
			t.Errorf("%s gets the previous holders %q, want %q", holder, got, previous)
		}
		return lock
	}
	t.Fatalf("%s does not get the %s", holder, what)
	return nil
}

// A process that takes over a claim or lock gets the texts of all its holders since the last release.
func TestPreviousOfTakersWhoDied(t *testing.T) {
	eachHold(t, func(t *testing.T, what string) {
		store := mem.New()
		a, b, c, d := newProcess(t, store), newProcess(t, store), newProcess(t, store), newProcess(t, store)
		a.take(t, what, "a", "")
		a.line.cut.Store(true)
		b.take(t, what, "b", "a")
		b.line.cut.Store(true)
		lock := c.take(t, what, "c", "b\na")
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		d.take(t, what, "d", "")
	})
}

// A taker that ends in an orderly way without having released its hold passes the texts on to the next.
func TestPreviousOfTakerWhoLeft(t *testing.T) {
	eachHold(t, func(t *testing.T, what string) {
		store := mem.New()
		a, b, c := newProcess(t, store), newProcess(t, store), newProcess(t, store)
		a.take(t, what, "a", "")
		a.line.cut.Store(true)
		b.take(t, what, "b", "a")
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.SweepClaims(t.Context()); err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		c.take(t, what, "c", "b\na")
	})
}

// A taker that does not know whether it got the hold returns it: to itself, or to others with the texts of previous
// holders.
func TestPreviousOfTakerWhoGaveUp(t *testing.T) {
	for _, next := range []string{"itself", "itself, later", "another"} {
		t.Run(next, func(t *testing.T) {
			eachHold(t, func(t *testing.T, what string) {
				store := mem.New()
				a, b, c := newProcess(t, store), newProcess(t, store), newProcess(t, store)
				a.take(t, what, "a", "")
				a.line.cut.Store(true)
				time.Sleep(ttl / 2)
				for { // until the lease of a has run out for b
					_, err := b.try(t, what, "b")
					if errors.Is(err, errCut) {
						break
					}
					if !isTaken(err) {
						t.Fatal(err)
					}
					if v, err := c.try(t, what, "c"); !isTaken(err) {
						t.Fatalf("the third got %v, %v", v, err)
					}
					time.Sleep(ttl / 50)
					b.line.once.Store(true)
				}
				b.line.cut.Store(false)
				switch next {
				case "itself":
					b.take(t, what, "b again", "a")
				case "itself, later":
					time.Sleep(ttl)
					b.take(t, what, "b again", "b\na")
				default:
					c.take(t, what, "c", "b\na")
				}
			})
		})
	}
}

// However many holders have died, the next process gets the hold, with the texts of the latest of them.
func TestPreviousOfMany(t *testing.T) {
	eachHold(t, func(t *testing.T, what string) {
		store := mem.New()
		text := func(i int) string { return fmt.Sprint(i, " ", strings.Repeat("x", 20<<10)) }
		var told []string
		for i := range 8 {
			p := newProcess(t, store)
			p.take(t, what, text(i), strings.Join(told, "\n"))
			p.line.cut.Store(true)
			told = slices.Insert(told, 0, text(i))
			told = told[:min(len(told), 3)] // each has 20 KiB, and a record holds 64
		}
	})
}
