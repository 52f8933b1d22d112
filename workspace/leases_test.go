package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"e3/executions"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

// A leaseTable holds the locks and claims of several machines. It has no clock: a test decides when a session is lost.
type leaseTable struct {
	mu    sync.Mutex
	holds map[string][]*leaseHold
	// pending is reported to processes that find a lock held, while it is not 0.
	pending atomic.Int64
}

type leaseHold struct {
	s      *leaseSession
	shared bool
	text   []byte
}

// A leaseSession is what one machine holds. It learns of its death only when it asks, or when the test calls notice.
type leaseSession struct {
	t        *leaseTable
	dead     bool // under t.mu
	lost     chan struct{}
	once     sync.Once
	confirms atomic.Int64
}

func newLeaseTable() *leaseTable { return &leaseTable{holds: map[string][]*leaseHold{}} }

func (t *leaseTable) session() *leaseSession { return &leaseSession{t: t, lost: make(chan struct{})} }

// expire makes all other sessions consider this one dead.
func (s *leaseSession) expire() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.dead = true
}

// notice tells the session that it is lost.
func (s *leaseSession) notice() { s.once.Do(func() { close(s.lost) }) }

// holds tells whether the session has a lock.
func (s *leaseSession) holds(name string) bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return slices.ContainsFunc(s.t.holds["lock "+name], func(h *leaseHold) bool { return h.s == s })
}

func (s *leaseSession) Lost() <-chan struct{} { return s.lost }

func (s *leaseSession) Held() error {
	select {
	case <-s.lost:
		return refstore.ErrLost
	default:
		return nil
	}
}

func (s *leaseSession) Pace() (first, most time.Duration) {
	return 100 * time.Millisecond, time.Second
}

func (s *leaseSession) Confirm(context.Context) error {
	s.confirms.Add(1)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.dead {
		s.notice()
		return refstore.ErrLost
	}
	return nil
}

func (s *leaseSession) take(name string, shared bool, text []byte) (refstore.Lock, *leaseHold) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	l := &leaseLock{s: s, name: name, hold: &leaseHold{s, shared, bytes.Clone(text)}}
	var living []*leaseHold
	for _, h := range s.t.holds[name] {
		if h.s.dead && h.s != s {
			l.previous = h.text
			if l.previous == nil {
				l.previous = []byte{}
			}
			continue
		}
		living = append(living, h)
	}
	for _, h := range living {
		if !shared || !h.shared {
			return nil, h
		}
	}
	s.t.holds[name] = append(living, l.hold)
	return l, nil
}

func (s *leaseSession) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.t.mu.Lock()
	dead := s.dead
	s.t.mu.Unlock()
	if dead { // taking a lock checks the clock
		return nil, refstore.ErrLost
	}
	l, by := s.take("lock "+name, mode == refstore.Shared, holder)
	if by != nil {
		return nil, &refstore.LockedError{Name: name, Holder: by.text, Pending: time.Duration(s.t.pending.Load())}
	}
	return l, nil
}

func (s *leaseSession) TryClaim(_ context.Context, key [32]byte, holder []byte) (refstore.Lock, error) {
	l, by := s.take(fmt.Sprintf("claim %x", key), false, holder)
	if by != nil {
		return nil, refstore.ErrClaimed
	}
	return l, nil
}

func (s *leaseSession) Holder(_ context.Context, name string) ([]byte, bool, error) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	for _, h := range s.t.holds["lock "+name] {
		if !h.s.dead {
			return h.text, true, nil
		}
	}
	return nil, false, nil
}

type leaseLock struct {
	s        *leaseSession
	name     string
	hold     *leaseHold
	previous []byte
}

func (l *leaseLock) Previous() []byte { return l.previous }

func (l *leaseLock) Unlock() error {
	l.s.t.mu.Lock()
	defer l.s.t.mu.Unlock()
	l.s.t.holds[l.name] = slices.DeleteFunc(l.s.t.holds[l.name], func(h *leaseHold) bool { return h == l.hold })
	return nil
}

// A remoteStore is a store as one machine sees it. From its n-th call on, calls block until it is woken.
type remoteStore struct {
	*mem.Store
	mu      sync.Mutex
	calls   []string // the calls so far
	stopAt  int      // 0: never
	stopped chan struct{}
	wake    chan struct{}
}

func newRemoteStore(s *mem.Store, stopAt int) *remoteStore {
	return &remoteStore{Store: s, stopAt: stopAt, stopped: make(chan struct{}), wake: make(chan struct{})}
}

func (s *remoteStore) call(ctx context.Context, what string, name any) error {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprint(what, " ", name))
	n := len(s.calls)
	s.mu.Unlock()
	if s.stopAt == 0 || n < s.stopAt {
		return ctx.Err()
	}
	if n == s.stopAt {
		close(s.stopped)
	}
	<-s.wake
	return ctx.Err()
}

func (s *remoteStore) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if err := s.call(ctx, "get", key); err != nil {
		return refstore.Record{}, err
	}
	return s.Store.Get(ctx, key, fields...)
}

func (s *remoteStore) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := s.call(ctx, "put", r.Key); err != nil {
		return "", err
	}
	return s.Store.Put(ctx, r)
}

func (s *remoteStore) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

func (s *remoteStore) Sync(context.Context) error { return nil }

func (s *remoteStore) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := s.call(ctx, "delete", key); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key, v)
}

func (s *remoteStore) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		if err := s.call(ctx, "list", q.Partition); err != nil {
			yield(refstore.Record{}, err)
			return
		}
		s.Store.List(ctx, q)(yield)
	}
}

func (s *remoteStore) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := s.call(ctx, "append", key); err != nil {
		return err
	}
	return s.Store.Append(ctx, key, offset, data)
}

func (s *remoteStore) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := s.call(ctx, "open", key); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, key, offset)
}

func (s *remoteStore) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	if err := s.call(ctx, "size", key); err != nil {
		return refstore.StreamInfo{}, err
	}
	return s.Store.Size(ctx, key)
}

func (s *remoteStore) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := s.call(ctx, "cut", key); err != nil {
		return err
	}
	return s.Store.Cut(ctx, key, size)
}

func (s *remoteStore) Seal(ctx context.Context, key refstore.Key) error {
	if err := s.call(ctx, "seal", key); err != nil {
		return err
	}
	return s.Store.Seal(ctx, key)
}

// StreamPace makes writers gather events, as if appends were expensive.
func (s *remoteStore) StreamPace() time.Duration { return time.Second }

// A machine is a process on the stage whose locks are leases.
type machine struct {
	*remoteStore
	dir      string // of the project
	session  *leaseSession
	ws       *workspace.Workspaces
	executor *executions.Executor
}

// machine makes a machine that stops at a call; 0: never.
func (st *stage) machine(t *leaseTable, stopAt int) *machine {
	st.mu.Lock()
	st.pids++
	holder := fmt.Sprintf(".process (pid=%d)", st.pids)
	st.mu.Unlock()
	m := &machine{dir: st.dir, remoteStore: newRemoteStore(st.records, stopAt), session: t.session()}
	stores := workspace.Stores{
		Records: m.remoteStore, Locks: m.session, Objects: st.objects, Local: m.remoteStore, Lookups: 8, Now: time.Now,
		Holder: func() string { return holder }, Sweep: func(context.Context) error { return nil },
	}
	if st.shared {
		stores.Derived = m.remoteStore
	}
	m.ws = workspace.New(stores)
	m.executor = executions.NewExecutor(executions.NewStore(m.remoteStore, st.objects), st.objects, m.session, st, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: func(string) (string, bool) { return "", false },
		Scratch: func() (string, error) { return st.t.TempDir(), nil }, Now: time.Now,
	})
	return m
}

func (m *machine) start(ctx context.Context) (*workspace.RunResult, error) {
	return m.ws.Runner.Start(ctx, "w0", workspace.StartOptions{Executor: m.executor, Concurrency: 2})
}

var errNoEnd = errors.New("it has not ended")
