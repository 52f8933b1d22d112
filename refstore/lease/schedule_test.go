package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// eachSchedule runs a test with different random seeds, each in a synctest bubble. E3_TEST_SCHEDULES is their number,
// E3_TEST_SEED the first one.
func eachSchedule(t *testing.T, run func(t *testing.T, chance *chance)) {
	setting := func(name string, n uint64) uint64 {
		if text := os.Getenv(name); text != "" {
			var err error
			if n, err = strconv.ParseUint(text, 10, 32); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return n
	}
	count, first := setting("E3_TEST_SCHEDULES", 50), setting("E3_TEST_SEED", 1)
	if testing.Short() {
		count = min(count, 5)
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				run(t, &chance{r: rand.New(rand.NewPCG(seed, 1))})
			})
		})
	}
}

// chance is a source of randomness for several goroutines.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

// in reports true once in n times on average.
func (c *chance) in(n int) bool { return c.below(n) == 0 }

func (c *chance) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

// upTo is a duration, short ones more often.
func (c *chance) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.r.Float64()
	return time.Duration(f * f * f * float64(d))
}

// rough makes a machine's connection slow, and lossy or late once in the given number of calls.
func (w *world) rough(m *machine, c *chance, calls int) {
	m.wire.Store = &late{Store: w.store, chance: c, calls: calls}
	m.wire.fail(func(string, refstore.Key) error {
		time.Sleep(c.upTo(200 * time.Millisecond))
		if c.in(calls) {
			return errFault
		}
		return nil
	}, func(string, refstore.Key) error {
		time.Sleep(c.upTo(200 * time.Millisecond))
		if c.in(calls) {
			return errFault
		}
		return nil
	})
}

// late is a store whose callers may not wait for an answer: the write still takes effect, some time later.
type late struct {
	refstore.Store
	chance *chance
	calls  int
}

func (l *late) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if l.chance.in(l.calls) {
		time.AfterFunc(l.chance.upTo(time.Minute), func() { _, _ = l.Store.Put(context.Background(), r) })
		return "", errFault
	}
	return l.Store.Put(ctx, r)
}

// Create is Put, of which another try may be in transit.
func (l *late) Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	v, err = l.Put(ctx, r)
	if err == nil && l.chance.in(l.calls) {
		time.AfterFunc(l.chance.upTo(time.Minute), func() { _, _ = l.Store.Put(context.Background(), r) })
		late = true
	}
	return v, late, err
}

func (l *late) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if l.chance.in(l.calls) {
		time.AfterFunc(l.chance.upTo(time.Minute), func() { _ = l.Store.Delete(context.Background(), key, v) })
		return errFault
	}
	return l.Store.Delete(ctx, key, v)
}

// entry is a hold that the test knows of.
type entry struct {
	m      *machine
	text   string
	shared bool
}

// ledger knows the holder of each lock.
type ledger struct {
	mu    sync.Mutex
	held  map[string]map[string]entry // by what, by text
	ended map[*machine]bool
	took  int
}

// end marks a process as ended, although some of its goroutines may still run.
func (l *ledger) end(m *machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[m] = true
}

// enter checks that a hold excludes all others, except those whose holders know that they are lost, and that it reports
// these.
func (l *ledger) enter(t *testing.T, what string, e entry, previous []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended[e.m] {
		return
	}
	l.took++
	if l.held[what] == nil {
		l.held[what] = make(map[string]entry)
	}
	for text, other := range l.held[what] {
		if e.shared && other.shared {
			continue
		}
		ended := l.ended[other.m] // it was killed, or has ended
		if other.m.Held() == nil && !ended {
			t.Errorf("%s is held by %s, and was given to %s", what, text, e.text)
		}
		if !ended && !strings.Contains(string(previous), text) && !e.shared && !other.shared {
			t.Errorf("%s was taken over from %s by %s, with the previous holders %q", what, text, e.text, previous)
		}
		delete(l.held[what], text)
	}
	l.held[what][e.text] = e
}

func (l *ledger) leave(what, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held[what], text)
}

// TestScheduleOfHolds: machines that take locks and claims over a faulty network, and are disconnected, suspended and
// killed, exclude each other, and no lock stays taken.
func TestScheduleOfHolds(t *testing.T) {
	eachSchedule(t, func(t *testing.T, c *chance) {
		w := newWorld(t)
		l := &ledger{held: make(map[string]map[string]entry), ended: make(map[*machine]bool)}
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
		defer stop()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for life := 0; ctx.Err() == nil; life++ {
					w.mu.Lock()
					m := w.on(fmt.Sprintf("host%d", i%3))
					w.mu.Unlock()
					w.rough(m, c, 40)
					w.live(ctx, t, c, l, m, fmt.Sprintf("m%d.%d", i, life))
				}
			})
		}
		all.Wait()
		// Afterwards a machine with a good connection gets everything.
		m := w.on("after")
		for what := range l.held {
			took := m.patiently(t, 3*ttl, func() error { _, err := m.take(t.Context(), what, false, "after"); return err })
			if took > 2*ttl {
				t.Errorf("%s could be had after %v", what, took)
			}
		}
		if l.took < 20 {
			t.Errorf("only %d holds in four minutes", l.took)
		}
	})
}

// take takes a lock or a claim by a name.
func (m *machine) take(ctx context.Context, what string, shared bool, text string) (refstore.Lock, error) {
	if n, ok := strings.CutPrefix(what, "claim "); ok {
		return m.TryClaim(ctx, [32]byte{n[0]}, []byte(text))
	}
	mode := refstore.Exclusive
	if shared {
		mode = refstore.Shared
	}
	return m.TryLock(ctx, what, mode, []byte(text))
}

// live is the life of one process.
func (w *world) live(ctx context.Context, t *testing.T, c *chance, l *ledger, m *machine, id string) {
	var workers sync.WaitGroup
	for worker := range 2 {
		workers.Go(func() {
			for n := 0; ctx.Err() == nil && m.Held() == nil; n++ {
				what := []string{"claim 1", "claim 2", "lock 1", "lock 2"}[c.below(4)]
				e := entry{m: m, text: fmt.Sprintf("<%s %d.%d>", id, worker, n), shared: what == "lock 2" && c.in(2)}
				call, cancel := context.WithTimeout(ctx, 2*time.Second+c.upTo(10*time.Second))
				lock, err := m.take(call, what, e.shared, e.text)
				cancel()
				if err == nil {
					l.enter(t, what, e, lock.Previous())
					if c.in(5) {
						time.Sleep(c.upTo(time.Minute))
					}
					time.Sleep(c.upTo(4 * time.Second))
					l.leave(what, e.text)
					if err := lock.Unlock(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(c.upTo(3 * time.Second))
			}
		})
	}
	time.Sleep(c.upTo(4 * time.Minute))
	killed := false
	switch c.below(3) {
	case 0: // disconnected, for a time or until it is lost
		m.wire.cut()
		time.Sleep(c.upTo(3 * ttl))
		m.wire.mend()
	case 1: // killed
		if began := m.Confirm(ctx) == nil; began && len(w.remaining(t, "LEASE/sessions")) > 0 {
			killed = true
			l.end(m)
			w.kill(m)
			time.Sleep(2 * ttl) // its goroutines have to end
			m.wire.mend()
		}
	}
	if !killed && c.in(2) {
		workers.Wait() // until the end, or until it is lost
	}
	l.end(m)
	_ = m.Close() // with a faulty connection this may fail
	workers.Wait()
}
