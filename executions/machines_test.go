package executions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// A site is a repository that several machines share. Its leases expire on a test's command.
type site struct {
	records *mem.Store
	objects *objectstore.Dir
	leases  leases
	demands executions.Demands // of later machines
}

func newSite(t *testing.T) *site {
	t.Helper()
	objects, err := objectstore.OpenDir(filepath.Join(t.TempDir(), "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &site{records: mem.New(), objects: objects, leases: leases{claims: map[[32]byte]*hold{}, locks: map[string][]*hold{}}}
}

// leases are the claims and locks of a site.
type leases struct {
	mu     sync.Mutex
	claims map[[32]byte]*hold
	locks  map[string][]*hold
}

// hold is a claim or lock that is held.
type hold struct {
	by        *lessee
	text      []byte
	exclusive bool
}

// lessee is a machine's side of the leases. Once it is dead, any process may take over its holds. It learns of that by
// Confirm, or through the channel.
type lessee struct {
	site *leases
	lost chan struct{}
	dead bool // under site.mu
}

var _ refstore.Leased = (*lessee)(nil)

func (l *leases) join() *lessee { return &lessee{site: l, lost: make(chan struct{})} }

// expire ends the lease without the machine's knowledge.
func (l *lessee) expire() {
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	l.dead = true
}

// tell informs the machine that its lease has expired.
func (l *lessee) tell() { close(l.lost) }

func (l *lessee) Lost() <-chan struct{} { return l.lost }

func (l *lessee) Held() error { return heldUntil(l.lost) }

// heldUntil is the Held of a lessee that learns of a loss only through a channel.
func heldUntil(lost <-chan struct{}) error {
	select {
	case <-lost:
		return refstore.ErrLost
	default:
		return nil
	}
}

func (l *lessee) Confirm(ctx context.Context) error {
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	if l.dead {
		return fmt.Errorf("another process presumed this one dead: %w", refstore.ErrLost)
	}
	return ctx.Err()
}

func (l *lessee) Pace() (first, most time.Duration) { return time.Millisecond, 10 * time.Millisecond }

func (l *lessee) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	mine := &hold{by: l, text: holder, exclusive: mode == refstore.Exclusive}
	var live []*hold
	for _, h := range l.site.locks[name] {
		if h.by.dead {
			continue
		}
		if h.exclusive || mine.exclusive {
			return nil, &refstore.LockedError{Name: name, Holder: h.text}
		}
		live = append(live, h)
	}
	l.site.locks[name] = append(live, mine)
	return &grant{hold: mine, free: func() {
		var left []*hold
		for _, h := range l.site.locks[name] {
			if h != mine {
				left = append(left, h)
			}
		}
		l.site.locks[name] = left
	}}, ctx.Err()
}

func (l *lessee) Holder(ctx context.Context, name string) ([]byte, bool, error) {
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	for _, h := range l.site.locks[name] {
		if !h.by.dead {
			return h.text, true, nil
		}
	}
	return nil, false, ctx.Err()
}

// TryClaim also grants claims to a dead machine that does not know it: a request that was under way when the lease
// expired may arrive later.
func (l *lessee) TryClaim(ctx context.Context, key [32]byte, holder []byte) (refstore.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	mine := &hold{by: l, text: bytes.Clone(holder)}
	var previous []byte
	if h := l.site.claims[key]; h != nil {
		if !h.by.dead {
			return nil, refstore.ErrClaimed
		}
		previous = bytes.Clone(h.text)
		mine.text = append(append(mine.text, '\n'), h.text...)
	}
	l.site.claims[key] = mine
	return &grant{hold: mine, previous: previous, free: func() {
		if l.site.claims[key] == mine {
			delete(l.site.claims, key)
		}
	}}, nil
}

type grant struct {
	*hold
	previous []byte
	free     func()
}

func (l *grant) Previous() []byte { return l.previous }

func (l *grant) Unlock() error {
	l.by.site.mu.Lock()
	defer l.by.site.mu.Unlock()
	l.free()
	return nil
}

// A machine executes on a site. Its calls to the stores pass a gate.
type machine struct {
	*executions.Executor
	*lessee
	site *site
	gate *gate
	name string
}

// requests returns the calls of the machine so far, with those that its requests have left behind.
func (m *machine) requests() []string {
	m.Released()
	return m.gate.list()
}

// gate records the calls of a machine, and can hold it up at one of them, before or after the call takes effect.
type gate struct {
	mu     sync.Mutex
	calls  []string
	stopAt int // the number of that call, from 1; 0: none
	after  bool

	halt    sync.Once
	stopped chan struct{} // closed when it is held up
	resume  chan struct{} // lets it go on
}

// stop says that the machine is held up, or has come to its end.
func (g *gate) stop() { g.halt.Do(func() { close(g.stopped) }) }

// gated makes a call through the gate.
func gated[T any](g *gate, name string, call func() (T, error)) (T, error) {
	g.mu.Lock()
	g.calls = append(g.calls, name)
	stop := len(g.calls) == g.stopAt
	g.mu.Unlock()
	hold := func() {
		g.stop()
		<-g.resume
	}
	if stop && !g.after {
		hold()
	}
	v, err := call()
	if stop && g.after {
		hold()
	}
	return v, err
}

func gatedErr(g *gate, name string, call func() error) error {
	_, err := gated(g, name, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// list returns the calls so far.
func (g *gate) list() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.calls...)
}

// kind names the record of a call without its key: "EXECUTION", "LOG stdout.txt".
func kind(k refstore.Key) string {
	name, _, _ := strings.Cut(k.Partition, "/")
	if name == "LOG" {
		name += " " + k.Sort
	}
	return name
}

type gatedRecords struct {
	*mem.Store
	g *gate
}

func (r gatedRecords) Get(ctx context.Context, k refstore.Key, fields ...string) (refstore.Record, error) {
	return gated(r.g, "get "+kind(k), func() (refstore.Record, error) { return r.Store.Get(ctx, k, fields...) })
}

func (r gatedRecords) Put(ctx context.Context, rec refstore.Record) (refstore.Version, error) {
	name := "put " + kind(rec.Key)
	if s, err := record.DecodeStatus(rec.Value); err == nil && kind(rec.Key) == "EXECUTION" {
		name += " " + s.State.String()
	}
	return gated(r.g, name, func() (refstore.Version, error) { return r.Store.Put(ctx, rec) })
}

func (r gatedRecords) Delete(ctx context.Context, k refstore.Key, v refstore.Version) error {
	return gatedErr(r.g, "delete "+kind(k), func() error { return r.Store.Delete(ctx, k, v) })
}

func (r gatedRecords) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	name := "list "
	if q.KeysOnly {
		name += "keys of "
	}
	_, _ = gated(r.g, name+kind(refstore.Key{Partition: q.Partition}), func() (int, error) { return 0, nil })
	return r.Store.List(ctx, q)
}

func (r gatedRecords) Append(ctx context.Context, k refstore.Key, offset int64, data []byte) error {
	return gatedErr(r.g, "append "+kind(k), func() error { return r.Store.Append(ctx, k, offset, data) })
}

func (r gatedRecords) Seal(ctx context.Context, k refstore.Key) error {
	return gatedErr(r.g, "seal "+kind(k), func() error { return r.Store.Seal(ctx, k) })
}

func (r gatedRecords) Remove(ctx context.Context, k refstore.Key) error {
	return gatedErr(r.g, "remove "+kind(k), func() error { return r.Store.Remove(ctx, k) })
}

func (r gatedRecords) Size(ctx context.Context, k refstore.Key) (refstore.StreamInfo, error) {
	return gated(r.g, "size "+kind(k), func() (refstore.StreamInfo, error) { return r.Store.Size(ctx, k) })
}

type gatedLeases struct {
	*lessee
	g *gate
}

func (l gatedLeases) TryClaim(ctx context.Context, key [32]byte, holder []byte) (refstore.Lock, error) {
	lock, err := gated(l.g, "claim", func() (refstore.Lock, error) { return l.lessee.TryClaim(ctx, key, holder) })
	if err != nil {
		return nil, err
	}
	return gatedLock{lock, l.g}, nil
}

func (l gatedLeases) Confirm(ctx context.Context) error {
	return gatedErr(l.g, "confirm", func() error { return l.lessee.Confirm(ctx) })
}

type gatedLock struct {
	refstore.Lock
	g *gate
}

func (l gatedLock) Unlock() error { return gatedErr(l.g, "release", l.Lock.Unlock) }

type gatedObjects struct {
	*objectstore.Dir
	g *gate
}

func (o gatedObjects) Adopt(ctx context.Context, in objectstore.Folder, name string) (objectstore.Info, error) {
	return gated(o.g, "store output", func() (objectstore.Info, error) { return o.Dir.Adopt(ctx, in, name) })
}

func (o gatedObjects) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	return gated(o.g, "stat output", func() (int64, error) { return o.Dir.Stat(ctx, h) })
}

// Presumes is true as for a store over S3.
func (o gatedObjects) Presumes() bool { return true }

// commands is a runner that calls a function in place of processes.
type commands func(ctx context.Context, spec runner.Spec) (runner.Result, error)

func (c commands) Run(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	res, err := c(ctx, spec)
	res.PID = 4711
	if ctx.Err() != nil {
		res.Cancelled, res.Signal = true, syscall.SIGTERM
	}
	return res, err
}

// writes is a command that leaves text as its output.
func writes(text string) commands {
	return func(_ context.Context, spec runner.Spec) (runner.Result, error) {
		return runner.Result{}, os.WriteFile(filepath.Join(spec.Dir, "out"), []byte(text), 0o644)
	}
}

// announced is c after it was announced and has printed something.
func announced(c commands) commands {
	return func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
		spec.OnStart(process.ID{PID: 4711, StartTime: 1, BootID: "boot"})
		_, err := spec.Stdout.WriteString("said\n")
		res, runErr := c(ctx, spec)
		return res, errors.Join(err, runErr)
	}
}

// machine adds a machine that runs c.
func (s *site) machine(t *testing.T, name string, c commands, changes ...func(*executions.Options)) *machine {
	t.Helper()
	g := &gate{stopped: make(chan struct{}), resume: make(chan struct{})}
	m := &machine{lessee: s.leases.join(), site: s, gate: g, name: name}
	opts := executions.Options{
		Worker: "ann@" + name, Version: "test", Path: os.Getenv("PATH"), Now: time.Now, LogEvery: time.Hour,
		Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false },
	}
	for _, change := range changes {
		change(&opts)
	}
	objects := gatedObjects{s.objects, g}
	m.Executor = executions.NewExecutor(executions.NewStore(gatedRecords{s.records, g}, objects).Requiring(s.demands), objects, gatedLeases{m.lessee, g}, c, opts)
	return m
}

func scratch(t *testing.T) func() (string, error) {
	dir := t.TempDir()
	return func() (string, error) { return dir, nil }
}

// request asks for the result of a task that has the file out as its output.
func (s *site) request(t *testing.T) *executions.Request {
	t.Helper()
	task := script("whatever")
	h, err := objectstore.PutBytes(t.Context(), s.objects, task.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return &executions.Request{
		Task: h, Attempt: 1, RunID: "run", Workspace: "ws", Name: "task",
		Load: func(context.Context) (*record.Task, error) { return task, nil },
	}
}

// all returns the recorded executions of a request, latest first.
func (s *site) all(t *testing.T, req *executions.Request) []*executions.Execution {
	t.Helper()
	var list []*executions.Execution
	for e, err := range executions.NewStore(s.records, s.objects).List(t.Context(), keyOf(req)) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func (s *site) successes(t *testing.T, req *executions.Request) (ids []string) {
	t.Helper()
	for _, e := range s.all(t, req) {
		if e.State == record.Success {
			ids = append(ids, e.ExecutionID)
		}
	}
	return ids
}
