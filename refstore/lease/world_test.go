package lease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

var errFault = errors.New("the store failed")

// wire is one machine's connection to the store. It can fail, hang and count.
type wire struct {
	refstore.Store

	mu     sync.Mutex
	mended chan struct{} // calls hang while it is open
	before func(op string, key refstore.Key) error
	after  func(op string, key refstore.Key) error
	calls  map[string]int // by operation and kind: "put claims"
}

// cut makes all calls hang until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mended = make(chan struct{})
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.mended)
	w.mended = nil
}

// fail installs hooks that decide, before and after a call takes effect, whether it fails.
func (w *wire) fail(before, after func(op string, key refstore.Key) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// counted returns the calls since its last call, by operation and kind.
func (w *wire) counted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func (w *wire) enter(ctx context.Context, op string, key refstore.Key) (after func() error, err error) {
	w.mu.Lock()
	if w.calls == nil {
		w.calls = make(map[string]int)
	}
	_, kind, _ := strings.Cut(key.Partition, "/")
	kind, _, _ = strings.Cut(kind, "/")
	w.calls[op+" "+kind]++
	mended, beforeHook, afterHook := w.mended, w.before, w.after
	w.mu.Unlock()
	if mended != nil {
		select {
		case <-mended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if beforeHook != nil {
		if err := beforeHook(op, key); err != nil {
			return nil, err
		}
	}
	return func() error {
		if afterHook != nil {
			return afterHook(op, key)
		}
		return nil
	}, nil
}

func (w *wire) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	after, err := w.enter(ctx, "get", key)
	if err != nil {
		return refstore.Record{}, err
	}
	r, err := w.Store.Get(ctx, key, fields...)
	if fault := after(); fault != nil {
		return refstore.Record{}, fault
	}
	return r, err
}

func (w *wire) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	after, err := w.enter(ctx, "put", r.Key)
	if err != nil {
		return "", err
	}
	v, err := w.Store.Put(ctx, r)
	if fault := after(); fault != nil {
		return "", fault
	}
	return v, err
}

// Create is that of the store, if it has one.
func (w *wire) Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	s, ok := w.Store.(interface {
		Create(context.Context, refstore.Record) (refstore.Version, bool, error)
	})
	if !ok {
		v, err = w.Put(ctx, r)
		return v, false, err
	}
	after, err := w.enter(ctx, "put", r.Key)
	if err != nil {
		return "", false, err
	}
	v, late, err = s.Create(ctx, r)
	if fault := after(); fault != nil {
		return "", late, fault
	}
	return v, late, err
}

func (w *wire) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	after, err := w.enter(ctx, "delete", key)
	if err != nil {
		return err
	}
	err = w.Store.Delete(ctx, key, v)
	return errors.Join(after(), err)
}

func (w *wire) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		after, err := w.enter(ctx, "list", refstore.Key{Partition: q.Partition})
		if err == nil {
			err = after()
		}
		if err != nil {
			yield(refstore.Record{}, err)
			return
		}
		w.Store.List(ctx, q)(yield)
	}
}

// world is a store with machines around it, in a synctest bubble.
type world struct {
	t     testing.TB
	store refstore.Store
	start time.Time
	mu    sync.Mutex
	dead  map[int]bool // processes, by pid, that machines of their host know to be gone
	pids  int
}

func newWorld(t testing.TB) *world {
	return &world{t: t, store: mem.New(), start: time.Now(), dead: make(map[int]bool)}
}

// machine is one process with leases.
type machine struct {
	*lease.Leases
	wire  *wire
	pid   int
	mu    sync.Mutex
	slept time.Duration // while the clock of timers stood still
	ahead time.Duration // difference of the objects' clock, as this machine sees it
}

// on starts a process on a host.
func (w *world) on(host string, tune ...func(*lease.Options)) *machine {
	w.pids++
	m := &machine{wire: &wire{Store: w.store}, pid: w.pids}
	o := lease.Options{
		TTL:   ttl,
		Owner: lease.Owner{Process: process.ID{PID: m.pid, StartTime: 1, Host: host, BootID: host}, Words: fmt.Sprintf("process %d on %s", m.pid, host)},
		Clock: func(context.Context) (time.Time, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Now().Add(m.ahead), nil
		},
		Elapsed: func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return time.Since(w.start) + m.slept
		},
		Alive: func(p process.ID) (alive, known bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.dead[p.PID], p.Host == host
		},
	}
	for _, f := range tune {
		f(&o)
	}
	m.Leases = lease.New(m.wire, o)
	w.t.Cleanup(func() { m.Close() })
	return m
}

// kill ends a process like SIGKILL: nothing more reaches the store.
func (w *world) kill(m *machine) {
	m.wire.cut()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[m.pid] = true
}

// sleep lets a machine sleep.
func (m *machine) sleep(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slept += d
}

// patiently calls try until it succeeds, at the leases' pace, and returns how long that took.
func (m *machine) patiently(t testing.TB, most time.Duration, try func() error) time.Duration {
	t.Helper()
	start := time.Now()
	first, slowest := m.Pace()
	for pause := first; ; pause = min(2*pause, slowest) {
		err := try()
		if err == nil {
			return time.Since(start)
		}
		var locked *refstore.LockedError
		if !errors.Is(err, refstore.ErrClaimed) && !errors.As(err, &locked) {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if time.Since(start) > most {
			t.Fatalf("still held after %v: %v", time.Since(start), err)
		}
		time.Sleep(pause)
	}
}

func (m *machine) lost() bool {
	select {
	case <-m.Lost():
		return true
	default:
		return false
	}
}

// lock takes a lock that must be free.
func (m *machine) lock(t testing.TB, name, text string) refstore.Lock {
	t.Helper()
	l, err := m.TryLock(t.Context(), name, refstore.Exclusive, []byte(text))
	if err != nil {
		t.Fatalf("lock %q: %v", name, err)
	}
	return l
}

func (m *machine) claim(t testing.TB, key byte, text string) refstore.Lock {
	t.Helper()
	l, err := m.TryClaim(t.Context(), [32]byte{key}, []byte(text))
	if err != nil {
		t.Fatalf("claim %d: %v", key, err)
	}
	return l
}

// remaining lists the records of a partition.
func (w *world) remaining(t testing.TB, partition string) []string {
	t.Helper()
	var keys []string
	for r, err := range w.store.List(context.Background(), refstore.Query{Partition: partition}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.Key.Sort)
	}
	return keys
}
