package queue_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// errGone is the store's error for a killed process.
var errGone = errors.New("the process is gone")

// wire is one process's connection to the store. It counts, and fails on request.
type wire struct {
	refstore.Store

	mu    sync.Mutex
	calls map[string]int // by operation and partition: "put jobs"
	// listed is the last query of each partition.
	listed     map[string]refstore.Query
	n          int
	aliases    bool // records have aliases
	overwrites bool // a move that is cut off leaves the new value at the old key, not beside it
	// at, if set, is called at each call, with its number from 1, before and after it takes effect.
	at func(n int, after bool, op string) error
}

// hook sets the function for further calls, and restarts the count.
func (w *wire) hook(at func(n int, after bool, op string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.n, w.calls = at, 0, nil
}

func (w *wire) counted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func (w *wire) enter(op, partition string) (after func() error, err error) {
	w.mu.Lock()
	if !strings.HasPrefix(partition, "QUEUE/") { // leases have tests of their own
		at := w.at
		w.mu.Unlock()
		if at != nil {
			err = at(0, false, op)
		}
		return func() error { return nil }, err
	}
	segments := strings.SplitN(partition, "/", 4)
	if segments[1] == "names" {
		op += " names"
	} else {
		op += " " + strings.Join(segments[2:3], "/")
		if len(segments) > 3 {
			op += "/"
		}
	}
	if w.calls == nil {
		w.calls = make(map[string]int)
	}
	w.calls[op]++
	w.n++
	n, at := w.n, w.at
	w.mu.Unlock()
	if at == nil {
		return func() error { return nil }, nil
	}
	return func() error { return at(n, true, op) }, at(n, false, op)
}

func (w *wire) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	after, err := w.enter("get", key.Partition)
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
	after, err := w.enter("put", r.Key.Partition)
	if err != nil {
		return "", err
	}
	v, err := w.Store.Put(ctx, r)
	if fault := after(); fault != nil {
		return "", fault
	}
	return v, err
}

func (w *wire) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	after, err := w.enter("delete", key.Partition)
	if err != nil {
		return err
	}
	err = w.Store.Delete(ctx, key, v)
	if fault := after(); fault != nil {
		return fault
	}
	return err
}

func (w *wire) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		after, err := w.enter("list", q.Partition)
		if err != nil {
			yield(refstore.Record{}, err)
			return
		}
		w.mu.Lock()
		if w.listed == nil {
			w.listed = make(map[string]refstore.Query)
		}
		w.listed[q.Partition[strings.LastIndex(q.Partition, "/")+1:]] = q
		w.mu.Unlock()
		goes := true
		for r, err := range w.Store.List(ctx, q) {
			if goes = yield(r, err); !goes {
				break
			}
		}
		if err := after(); err != nil && goes { // a later page
			yield(refstore.Record{}, err)
		}
	}
}

// spreading is a store whose queues are in shards.
type spreading struct{ *mem.Store }

// inStore is the store of queues that a store of records is.
func inStore(s refstore.Store) queue.Store {
	_, spread := s.(spreading)
	return queue.Store{Store: s, Spread: spread}
}

// ReadBatch is one call.
func (w *wire) ReadBatch(ctx context.Context, keys []refstore.Key) ([]refstore.Record, error) {
	after, err := w.enter("read", "QUEUE/default/batch")
	if err != nil {
		return nil, err
	}
	records, err := w.Store.(queue.Batcher).ReadBatch(ctx, keys)
	if err != nil {
		return nil, err
	}
	return records, after()
}

// WriteBatch is one call.
func (w *wire) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	after, err := w.enter("write", "QUEUE/default/batch")
	if err != nil {
		return err
	}
	if err := w.Store.(queue.Batcher).WriteBatch(ctx, puts, gone); err != nil {
		return err
	}
	return after()
}

// Move is one call, in the middle of which a process may die.
func (w *wire) Move(ctx context.Context, from refstore.Key, v refstore.Version, r refstore.Record) (refstore.Version, error) {
	after, err := w.enter("move", from.Partition)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	w.n++
	n, at := w.n, w.at
	w.mu.Unlock()
	half := func(after bool) error {
		if at == nil {
			return nil
		}
		return at(n, after, "half of move jobs")
	}
	if err := half(false); err != nil {
		if there, getErr := w.Store.Get(ctx, from); getErr == nil && there.Version == v {
			left := r
			if w.overwrites {
				left.Key, left.Version = from, v
			}
			_, putErr := w.Store.Put(ctx, left)
			err = errors.Join(err, putErr)
		}
		return "", err
	}
	to, err := w.Store.(queue.Files).Move(ctx, from, v, r)
	if fault := errors.Join(half(true), after()); fault != nil {
		return "", fault
	}
	return to, err
}

// Alias is one call.
func (w *wire) Alias(ctx context.Context, key, alias refstore.Key) error {
	if !w.aliases {
		return errors.ErrUnsupported
	}
	after, err := w.enter("alias", alias.Partition)
	if err != nil {
		return err
	}
	if err := w.Store.(queue.Files).Alias(ctx, key, alias); err != nil {
		return errors.Join(err, after())
	}
	return after()
}

// PutUnaliased is one call, in the middle of which a process may die.
func (w *wire) PutUnaliased(ctx context.Context, r refstore.Record, alias refstore.Key) (refstore.Version, bool, error) {
	if !w.aliases {
		return "", false, errors.ErrUnsupported
	}
	after, err := w.enter("put unaliased", r.Key.Partition)
	if err != nil {
		return "", false, err
	}
	w.mu.Lock()
	w.n++
	n, at := w.n, w.at
	w.mu.Unlock()
	half := func(after bool) error {
		if at == nil {
			return nil
		}
		return at(n, after, "half of put unaliased jobs")
	}
	if err := half(false); err != nil {
		_, putErr := w.Store.Put(ctx, r)
		return "", false, errors.Join(err, putErr)
	}
	v, gone, err := w.Store.(queue.Files).PutUnaliased(ctx, r, alias)
	if fault := errors.Join(half(true), after()); fault != nil {
		return "", false, fault
	}
	return v, gone, err
}

// Watch passes on the store's notifications.
func (w *wire) Watch(ctx context.Context, partition string) (<-chan struct{}, error) {
	return w.Store.(refstore.Watcher).Watch(ctx, partition)
}

// WatchNames passes on what the store tells.
func (w *wire) WatchNames(ctx context.Context, partition string) (<-chan struct{}, func() ([]string, bool), error) {
	return w.Store.(queue.Files).WatchNames(ctx, partition)
}

const ttl = 6 * time.Second

// world is a store with processes around it.
type world struct {
	t     testing.TB
	store refstore.Store
	start time.Time
	ttl   time.Duration // of leases

	mu     sync.Mutex
	dead   map[int]bool  // processes that are gone, by pid
	silent map[int]bool  // those not known to be gone
	ahead  time.Duration // of the queues' clock
	pids   int
	ids    int
	peers  []*peer
	// batches makes every process write follow-up records in batches, on a store that can.
	batches bool
	// moves makes every process end jobs in one call, on a store that can.
	moves bool
	// aliases makes every process that ends jobs in one call keep entries as aliases, on a store that can.
	aliases bool
	// spread says that the store takes a bounded number of writes for a partition.
	spread bool
	// hurried makes every process spread the entries of all jobs that it enqueues, in queues with shards.
	hurried bool
}

func newWorld(t testing.TB) *world { return worldOn(t, mem.New()) }

func worldOn(t testing.TB, store refstore.Store) *world {
	return &world{t: t, store: store, start: time.Now(), ttl: ttl, dead: make(map[int]bool), silent: make(map[int]bool)}
}

// peer is a process: one that uses queues.
type peer struct {
	*queue.Queue
	w      *world
	wire   *wire
	leases *lease.Leases
	// takeOver, if set, is Options.TakeOver.
	takeOver func(*queue.Job)
	name     string
	pid      int
}

// on starts a process on a host.
func (w *world) on(host string) *peer {
	return w.onStore(host, w.store, queue.Options{})
}

func (w *world) onStore(host string, store refstore.Store, o queue.Options) *peer {
	w.mu.Lock()
	w.pids++
	p := &peer{w: w, wire: &wire{Store: store}, pid: w.pids, name: fmt.Sprintf("worker %d on %s", w.pids, host)}
	w.mu.Unlock()
	p.leases = lease.New(p.wire, lease.Options{
		TTL:     w.ttl,
		Owner:   lease.Owner{Process: process.ID{PID: p.pid, StartTime: 1, Host: host, BootID: host}, Words: p.name},
		Clock:   func(context.Context) (time.Time, error) { return w.now(), nil },
		Elapsed: func() time.Duration { return time.Since(w.start) },
		Alive: func(other process.ID) (alive, known bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.dead[other.PID], w.dead[other.PID] || !w.silent[other.PID]
		},
	})
	o.Now = w.now
	o.TakeOver = func(_ context.Context, j *queue.Job) {
		if p.takeOver != nil {
			p.takeOver(j)
		}
	}
	at := inStore(store)
	at.Store, at.Spread = p.wire, at.Spread || w.spread
	if w.batches {
		at.Batch = p.wire
	}
	if w.moves {
		at.Files, p.wire.aliases, p.wire.overwrites = p.wire, w.aliases, w.aliases
	}
	p.Queue = queue.New(at, p.leases, o)
	if w.hurried {
		p.Hurry(queue.DefaultQueue)
	}
	w.mu.Lock()
	w.peers = append(w.peers, p)
	w.mu.Unlock()
	w.t.Cleanup(func() {
		p.wire.hook(nil)
		if err := p.leases.Close(); err != nil && !w.isDead(p) {
			w.t.Errorf("close the leases of %s: %v", p.name, err)
		}
	})
	return p
}

// flush returns when all pending follow-up records of all processes were written, or have failed.
func (w *world) flush() {
	w.mu.Lock()
	peers := w.peers
	w.mu.Unlock()
	for _, p := range peers {
		p.Flush(context.Background())
	}
}

// now is the time, including the time that was skipped.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

// kill ends a process like SIGKILL: nothing more reaches the store, and the kernel knows.
func (w *world) kill(p *peer) {
	w.flush() // crash_test.go kills processes earlier
	p.wire.hook(func(int, bool, string) error { return errGone })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[p.pid] = true
}

func (w *world) isDead(p *peer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[p.pid] || w.silent[p.pid]
}

const run = "0197aaaa-bbbb-7ccc-8ddd-eeeeffff0000"

// job returns a job to enqueue.
func job(n int, edit ...func(*queue.Job)) *queue.Job {
	j := &queue.Job{
		Workspace: "prod", Run: run, Task: fmt.Sprintf("task-%d", n), Attempt: 1, TaskHash: fmt.Sprintf("%064x", n), Inputs: []string{fmt.Sprintf("%064x", n+1)},
		MaxAttempts: 3, Policy: record.Policy{CPU: 1}, Host: "front",
	}
	for _, f := range edit {
		f(j)
	}
	return j
}

func priority(n int64) func(*queue.Job) { return func(j *queue.Job) { j.Priority = n } }

func (p *peer) enqueue(t testing.TB, j *queue.Job) queue.Job {
	t.Helper()
	got, err := p.Enqueue(t.Context(), j)
	if err != nil {
		t.Fatalf("enqueue %s: %v", j.Task, err)
	}
	return got
}

func (p *peer) want() queue.Want {
	return queue.Want{Queues: []string{queue.DefaultQueue}, Worker: p.name, NewExecution: p.w.newExecution}
}

func (w *world) newExecution(string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("execution-%d", w.ids), nil
}

// claim claims the next job, which must exist. A job that another process has just enqueued may be seen a little later.
func (p *peer) claim(t testing.TB) *queue.Lease {
	t.Helper()
	return p.claimAs(t, p.want())
}

func (p *peer) claimAs(t testing.TB, want queue.Want) *queue.Lease {
	t.Helper()
	p.w.flush()
	for n := range 1000 {
		l, err := p.Claim(t.Context(), want)
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if l != nil {
			return l
		}
		p.w.pass(time.Duration(1+n/100) * time.Millisecond) // on a busy machine a listing is followed by a long rest
	}
	t.Fatalf("%s: nothing to claim", p.name)
	return nil
}

// claimNone expects no job, even after a fresh listing.
func (p *peer) claimNone(t testing.TB) {
	t.Helper()
	p.w.flush()
	for range 2 {
		l, err := p.Claim(t.Context(), p.want())
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if l != nil {
			t.Fatalf("%s: got job %s, want none", p.name, l.Job().Task)
		}
		p.w.pass(200 * time.Millisecond)
	}
}

func (p *peer) finish(t testing.TB, l *queue.Lease) {
	t.Helper()
	if err := l.Finish(t.Context(), success(l)); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

func success(l *queue.Lease) queue.Outcome {
	return queue.Outcome{State: queue.Succeeded, ExecutionID: l.Job().Execution, Output: "output", Size: 1, Duration: time.Second}
}

func (p *peer) job(t testing.TB, id string) queue.Job {
	t.Helper()
	j, err := p.Job(t.Context(), queue.DefaultQueue, id)
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	return j
}

func (p *peer) reap(t testing.TB) {
	t.Helper()
	if err := p.Reap(t.Context(), queue.DefaultQueue); err != nil {
		t.Fatal(err)
	}
}

func (p *peer) repair(t testing.TB) {
	t.Helper()
	if err := p.Repair(t.Context(), queue.DefaultQueue); err != nil {
		t.Fatal(err)
	}
}

// sorts lists the sort keys of one of the default queue's partitions.
func (w *world) sorts(t testing.TB, what string) []string {
	t.Helper()
	w.flush()
	var keys []string
	for r := range w.records(t, what) {
		if !strings.HasPrefix(r.Key.Sort, "+") { // a mark of a shard
			keys = append(keys, r.Key.Sort)
		}
	}
	slices.Sort(keys)
	return keys
}

// records lists one of the default queue's partitions, with its shards.
func (w *world) records(t testing.TB, what string) iter.Seq[refstore.Record] {
	return func(yield func(refstore.Record) bool) {
		for _, shard := range append([]string{""}, strings.Split("/0 /1 /2 /3 /4 /5 /6 /7 /8 /9 /a /b /c /d /e /f", " ")...) {
			for r, err := range w.store.List(context.Background(), refstore.Query{Partition: "QUEUE/default/" + what + shard}) {
				if err != nil {
					t.Fatal(err)
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}

// place is where the record of a job is, in one of the default queue's partitions or a shard of it.
func (w *world) place(t testing.TB, what, id string) refstore.Key {
	t.Helper()
	for r := range w.records(t, what) {
		if strings.HasSuffix(r.Key.Sort, id) {
			return r.Key
		}
	}
	return refstore.Key{Partition: "QUEUE/default/" + what, Sort: id}
}

// openFolder opens a folder as one process does.
func openFolder(t testing.TB, dir string) *fs.Store {
	t.Helper()
	s, err := fs.Open(dir, fs.Options{BareJobs: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// putsEntry is the call that makes the entry of a job.
func (w *world) putsEntry() string {
	if w.aliases {
		return "alias ready"
	}
	return "put ready"
}
