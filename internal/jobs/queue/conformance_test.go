package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
	"e3/refstore/mem"
)

// TestConformance runs all cases on each kind of store.
func TestConformance(t *testing.T) {
	stores := map[string]func(t *testing.T) (refstore.Store, queue.Options){
		"mem": func(*testing.T) (refstore.Store, queue.Options) { return mem.New(), queue.Options{} },
		"fs":  func(t *testing.T) (refstore.Store, queue.Options) { return openFolder(t, t.TempDir()), queue.Options{} },
		"minidyn": func(t *testing.T) (refstore.Store, queue.Options) {
			return openDynamo(t, testserver.Minidyn(t)), polled
		},
		"dynalite": func(t *testing.T) (refstore.Store, queue.Options) {
			return openDynamo(t, testserver.Dynalite(t)), polled
		},
	}
	stores["mem, in moves"], stores["mem, in aliases"], stores["fs, in moves"] = stores["mem"], stores["mem"], stores["fs"]
	stores["mem, in batches"] = func(*testing.T) (refstore.Store, queue.Options) { return mem.New(), polled }
	stores["mem, in shards"] = func(*testing.T) (refstore.Store, queue.Options) { return spreading{mem.New()}, polled }
	stores["mem, entries in shards"] = stores["mem, in shards"]
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) {
					if name != "dynalite" { // a process for each would cost too much
						t.Parallel()
					}
					play := func(t *testing.T) {
						store, o := open(t)
						w := worldOn(t, store)
						w.batches, w.hurried = o.Polled, name == "mem, entries in shards"
						w.aliases = name == "fs" || name == "mem, in aliases"
						w.moves = w.aliases || strings.HasSuffix(name, "in moves")
						c.run(t, w, func(host string) *peer { return w.onStore(host, store, o) })
					}
					if strings.HasPrefix(name, "mem") { // no file and no connection: time can be that of a bubble
						synctest.Test(t, play)
					} else {
						play(t)
					}
				})
			}
		})
	}
}

var polled = queue.Options{Polled: true, Pace: 5 * time.Millisecond, MostPace: 100 * time.Millisecond}

func openDynamo(t testing.TB, endpoint string) refstore.Store {
	t.Helper()
	o := dynamo.Options{Config: testserver.Config(), Endpoint: endpoint, Table: testserver.Name(), Repository: "repository", Blobs: &blobs{data: map[string][]byte{}}}
	if _, err := dynamo.CreateTable(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := dynamo.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blobs stores values that are too large for an item.
type blobs struct {
	mu   sync.Mutex
	data map[string][]byte
}

func (b *blobs) PutBlob(_ context.Context, name string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[name] = bytes.Clone(data)
	return nil
}

func (b *blobs) OpenBlob(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, there := b.data[name]
	if !there {
		return nil, fmt.Errorf("blob %s: %w", name, refstore.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(data[min(offset, int64(len(data))):])), nil
}

func (b *blobs) DeleteBlob(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.data, name)
	return nil
}

func (b *blobs) ListBlobs(context.Context, string) iter.Seq2[dynamo.Blob, error] {
	return func(func(dynamo.Blob, error) bool) {}
}

var conformance = []struct {
	name string
	run  func(t *testing.T, w *world, on func(host string) *peer)
}{
	{"a job's way", jobsWay},
	{"enqueued again", enqueuedAgain},
	{"all that a job says", allThatAJobSays},
	{"order", inOrder},
	{"later", later},
	{"what does not fit", whatDoesNotFit},
	{"adopted", adopted},
	{"lost", lost},
	{"early", early},
	{"released", released},
	{"only", onlyOne},
	{"cancelled", cancelled},
	{"left by the dead", leftByTheDead},
	{"retried", retried},
	{"reprioritised", reprioritised},
	{"several queues", severalQueues},
	{"clean", clean},
	{"overview", overview},
	{"inbox", inbox},
	{"watch", watch},
}

// want fails the test if two things differ.
func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: got %+v, want %+v:\n%s", what, got, want, diff)
	}
}

// empty wants nothing left of a queue except the named parts.
func (w *world) empty(t testing.TB, but ...string) {
	t.Helper()
	for _, what := range []string{"jobs", "ready", "delayed", "cancel", "dead"} {
		if got := w.sorts(t, what); len(got) > 0 && !slices.Contains(but, what) {
			t.Errorf("left in %s: got %q, want nothing", what, got)
		}
	}
}

func jobsWay(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	worker.claimNone(t)
	j := front.enqueue(t, job(1))
	want(t, "status", j.Status, queue.Queued)
	want(t, "id", j.ID, queue.Identity(job(1)))
	w.pass(3 * time.Second)
	l := worker.claim(t)
	got := l.Job()
	session, err := worker.leases.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "status", got.Status, queue.Running)
	want(t, "locked by", got.LockedBy, session)
	want(t, "worker", got.Worker, worker.name)
	want(t, "token", got.Token, 1)
	want(t, "attempts", got.Attempts, 1)
	want(t, "execution", got.Execution, "execution-1")
	want(t, "adopted", l.Adopted(), false)
	want(t, "as it is read", front.job(t, j.ID), got)
	worker.claimNone(t)

	if err := l.Started(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if front.job(t, j.ID).Started.IsZero() {
		t.Error("it is not on record that the command runs")
	}
	for execution, is := range map[string]bool{"execution-1": true, "execution-2": false, "": false} {
		working, err := front.Working(t.Context(), j.Ref(), execution)
		if err != nil || working != is {
			t.Errorf("is execution %q that of the job? got %v, %v, want %v", execution, working, err, is)
		}
	}
	worker.finish(t, l)
	got = front.job(t, j.ID)
	want(t, "status", got.Status, queue.Succeeded)
	outcome := success(l)
	outcome.EndedAt = got.Finished.Time()
	want(t, "outcome", *got.Outcome, outcome)
	want(t, "locked by", got.LockedBy, "")
	if working, err := front.Working(t.Context(), j.Ref(), "execution-1"); err != nil || working {
		t.Errorf("is the execution of a finished job being made? got %v, %v", working, err)
	}
	w.empty(t)

	var transition *queue.TransitionError
	if err := l.Finish(t.Context(), success(l)); !errors.As(err, &transition) {
		t.Errorf("finish again: got %v, want a TransitionError", err)
	}
	if _, err := front.Job(t.Context(), queue.DefaultQueue, run+"."+strings.Repeat("0", 32)); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("another job: got %v, want ErrNotFound", err)
	}
}

func enqueuedAgain(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	first := front.enqueue(t, job(1))
	w.pass(time.Second)
	want(t, "enqueued again", on("front").enqueue(t, job(1, priority(7))), first)
	want(t, "entries", len(w.sorts(t, "ready")), 1)
	l := worker.claim(t)
	want(t, "enqueued while it runs", front.enqueue(t, job(1)), l.Job())
	worker.finish(t, l)
	want(t, "enqueued when it is finished", front.enqueue(t, job(1)).Status, queue.Succeeded)
	w.empty(t)
	worker.claimNone(t)
	for name, other := range map[string]func(*queue.Job){
		"attempt":   func(j *queue.Job) { j.Attempt = 2 },
		"run":       func(j *queue.Job) { j.Run = "another" },
		"workspace": func(j *queue.Job) { j.Workspace = "dev" },
		"step":      func(j *queue.Job) { j.Step = "resume:1" },
		"task hash": func(j *queue.Job) { j.TaskHash = strings.Repeat("9", 64) },
		"inputs":    func(j *queue.Job) { j.Inputs = append(j.Inputs, j.Inputs[0]) },
	} {
		if j := front.enqueue(t, job(1, other)); j.Status != queue.Queued {
			t.Errorf("with another %s: got a job that is %s, want a new one", name, j.Status)
		}
	}
}

func allThatAJobSays(t *testing.T, w *world, on func(string) *peer) {
	front := on("front")
	full := job(1, func(j *queue.Job) {
		j.Step, j.Attempt, j.InputBytes, j.Labels, j.Priority, j.Force, j.MaxAttempts = "resume:7", 3, 1<<40, []string{"gpu", "big"}, -4, true, 5
		j.Policy = record.Policy{
			Description: "what for — „so“", Timeout: time.Minute, Retries: 2, RetryOn: []string{"exit", "3"}, Lost: -1, Backoff: time.Second, CPU: 1.5, Memory: 1 << 33,
			Resources: []record.Amount{{Name: "gpu", Value: 2}}, Priority: -4, OOM: record.Escalation{Factor: 2, Max: 1 << 34}, Approve: true, Suspend: 75,
			Queue: "default", Labels: []string{"gpu"}, Views: []record.View{{Entry: "m", Path: "m.csv", Kind: record.ViewPlot, Plot: record.Plot{X: "x", Y: []string{"y"}}}},
		}
		for len(j.Inputs) < 1000 { // more than an item holds
			j.Inputs = append(j.Inputs, fmt.Sprintf("%064x", len(j.Inputs)))
		}
	})
	got := front.enqueue(t, full)
	expect := *full
	expect.ID, expect.Queue, expect.Status = queue.Identity(full), queue.DefaultQueue, queue.Queued
	expect.Created, expect.Updated, expect.Shard = got.Created, got.Updated, got.Shard
	want(t, "the job", got, expect)
	want(t, "as it is read", front.job(t, got.ID), expect)
	l := on("back").claim(t)
	expect = l.Job()
	want(t, "as it is claimed", front.job(t, got.ID), expect)
	want(t, "policy", expect.Policy, full.Policy)
	want(t, "inputs", expect.Inputs, full.Inputs)
}

func inOrder(t *testing.T, w *world, on func(string) *peer) {
	front := on("front")
	for n, p := range []int64{0, 5, -3, 5, 0, 1 << 30, -1 << 30} {
		front.enqueue(t, job(n, priority(p)))
		w.pass(time.Millisecond)
	}
	gone := on("back")
	orphan := gone.claim(t) // task 5
	second := gone.claim(t) // task 1
	want(t, "first", orphan.Job().Task, "task-5")
	w.kill(gone)
	worker := on("back")
	worker.reap(t)
	var got []string
	for range 7 {
		got = append(got, worker.claim(t).Job().Task)
	}
	want(t, "order", got, []string{"task-5", second.Job().Task, "task-3", "task-0", "task-4", "task-2", "task-6"})
	worker.claimNone(t)
}

func later(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	front.enqueue(t, job(1, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(w.now().Add(10 * time.Second)) }))
	front.enqueue(t, job(2, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(w.now().Add(5 * time.Second)) }))
	worker.claimNone(t)
	want(t, "delayed", len(w.sorts(t, "delayed")), 2)
	w.pass(2 * time.Second) // a busy machine adds seconds of its own
	worker.claimNone(t)
	w.pass(4 * time.Second)
	want(t, "first", worker.claim(t).Job().Task, "task-2")
	worker.claimNone(t)
	w.pass(5 * time.Second)
	l := worker.claim(t)
	want(t, "second", l.Job().Task, "task-1")
	want(t, "available at", l.Job().AvailableAt, queue.Time(0))
	want(t, "delayed", len(w.sorts(t, "delayed")), 0)
}

func whatDoesNotFit(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	const before = 40 // more than a first listing has
	for n := range before {
		front.enqueue(t, job(n, func(j *queue.Job) { j.Labels = []string{"gpu"} }))
	}
	plain := worker.want()
	plain.Fits = func(j *queue.Job) bool { return len(j.Labels) == 0 }
	if l, err := worker.Claim(t.Context(), plain); err != nil || l != nil {
		t.Fatalf("got %v, %v, want nothing", l, err)
	}
	w.pass(time.Second)
	front.enqueue(t, job(before))
	w.pass(5 * time.Second)
	want(t, "behind what does not fit", worker.claimAs(t, plain).Job().Task, fmt.Sprintf("task-%d", before))
}

func adopted(t *testing.T, w *world, on func(string) *peer) {
	front, first := on("front"), on("here")
	j := front.enqueue(t, job(1))
	hosted := func(p *peer, host string) queue.Want {
		want := p.want()
		want.Host, want.Grace = host, 20*time.Second
		return want
	}
	gone := first.claimAs(t, hosted(first, "here"))
	if err := gone.Started(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	second, third := on("here"), on("there")
	second.reap(t)
	second.claimNone(t)
	w.kill(first)
	second.reap(t)
	orphan := front.job(t, j.ID)
	want(t, "is it an orphan", orphan.Orphaned(), true)
	want(t, "status", orphan.Status, queue.Running)
	want(t, "attempts", orphan.Attempts, 1)
	want(t, "holders", len(w.sorts(t, "holders")), 0)

	// On another host it is reserved for its own host for a while.
	if l, err := third.Claim(t.Context(), hosted(third, "there")); err != nil || l != nil {
		t.Fatalf("on another host, at once: got %v, %v, want nothing", l, err)
	}
	w.pass(10 * time.Second)
	if l, err := third.Only(t.Context(), queue.DefaultQueue, j.ID, hosted(third, "there")); err != nil || l != nil {
		t.Fatalf("on another host, a little later: got %v, %v, want nothing", l, err)
	}
	l := second.claimAs(t, hosted(second, "here"))
	want(t, "adopted", l.Adopted(), true)
	want(t, "execution", l.Job().Execution, gone.Job().Execution)
	want(t, "maker", l.Job().Maker, first.name)
	want(t, "worker", l.Job().Worker, second.name)
	want(t, "attempts", l.Job().Attempts, 1)
	want(t, "token", l.Job().Token, 2)

	// A worker that has lost the job can no longer write.
	first.wire.hook(nil)
	for name, late := range map[string]func() error{
		"finish":  func() error { return gone.Finish(context.Background(), success(gone)) },
		"start":   func() error { return gone.Started(context.Background(), time.Now()) },
		"again":   func() error { _, err := gone.Again(context.Background(), "lost", 0); return err },
		"release": func() error { return gone.Release(context.Background()) },
	} {
		var transition *queue.TransitionError
		if err := late(); !errors.Is(err, refstore.ErrLost) && !errors.As(err, &transition) {
			t.Errorf("%s by the worker that lost it: got %v, want ErrLost", name, err)
		}
	}
	want(t, "the job", front.job(t, j.ID), l.Job())
	second.finish(t, l)
	want(t, "status", front.job(t, j.ID).Status, queue.Succeeded)
	w.empty(t)

	// After the grace period any worker may claim it.
	front.enqueue(t, job(2))
	second.claimAs(t, hosted(second, "here"))
	w.kill(second)
	third.reap(t)
	for range 2 {
		if l, err := third.Claim(t.Context(), hosted(third, "there")); err != nil || l != nil {
			t.Fatalf("on another host: got %v, %v, want nothing", l, err)
		}
		w.pass(11 * time.Second)
	}
	want(t, "adopted after the grace", third.claimAs(t, hosted(third, "there")).Adopted(), true)
}

func lost(t *testing.T, w *world, on func(string) *peer) {
	front := on("front")
	j := front.enqueue(t, job(1))
	worker := on("back")
	for attempt := int64(1); attempt <= 3; attempt++ {
		l := worker.claim(t)
		want(t, "attempts", l.Job().Attempts, attempt)
		w.kill(worker)
		maker := worker.name
		worker = on("back")
		worker.reap(t)
		l = worker.claim(t)
		want(t, "adopted", l.Adopted(), true)
		got, err := l.Again(t.Context(), "its worker is gone", 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "lost", len(got.Lost), int(attempt))
		want(t, "lost worker", got.Lost[attempt-1].Worker, maker)
		want(t, "lost execution", got.Lost[attempt-1].Execution, fmt.Sprintf("execution-%d", attempt))
		if attempt == 3 {
			want(t, "status", got.Status, queue.Failed)
			want(t, "reason", got.Outcome.Reason, queue.ReasonLost)
			break
		}
		want(t, "status", got.Status, queue.Queued)
		want(t, "backoff", got.AvailableAt.Time().Sub(got.Lost[attempt-1].At.Time()), 2*time.Second<<(attempt-1))
		worker.claimNone(t)
		w.pass(2*time.Second<<(attempt-1) + time.Second)
	}
	worker.claimNone(t)
	want(t, "as it is read", front.job(t, j.ID).Status, queue.Failed)
	w.empty(t, "dead")
}

// A command at hand ends the backoff of a job only if it is that of the job's last attempt.
func early(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	j := front.enqueue(t, job(1))
	for attempt := range int64(2) {
		got, err := worker.claim(t).Again(t.Context(), "its worker is gone", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "attempts", got.Attempts, attempt+1)
		worker.claimNone(t)
		if attempt == 0 {
			w.pass(time.Hour)
		}
	}
	for _, at := range []int64{0, 1, 3} {
		want := worker.want()
		want.Early = at
		if l, err := worker.Only(t.Context(), j.Queue, j.ID, want); err != nil || l != nil {
			t.Fatalf("with the command of attempt %d at hand: claimed is %t (%v), want nothing", at, l != nil, err)
		}
	}
	last := worker.want()
	last.Early = 2
	l, err := worker.Only(t.Context(), j.Queue, j.ID, last)
	if err != nil || l == nil {
		t.Fatalf("with the command of the last attempt at hand: %v, want the job", err)
	}
	want(t, "attempts", l.Job().Attempts, 3)
	worker.finish(t, l)
	w.empty(t)
}

func released(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	j := front.enqueue(t, job(1))
	if err := worker.claim(t).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := front.job(t, j.ID)
	want(t, "status", got.Status, queue.Queued)
	want(t, "attempts", got.Attempts, 0)
	want(t, "execution", got.Execution, "")
	l := worker.claim(t)
	want(t, "token", l.Job().Token, 2)
	w.kill(worker)

	worker = on("back")
	worker.reap(t)
	if err := worker.claim(t).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = front.job(t, j.ID)
	want(t, "is what was adopted an orphan again", got.Orphaned(), true)
	want(t, "execution", got.Execution, l.Job().Execution)
	l = worker.claim(t)
	want(t, "adopted", l.Adopted(), true)
	worker.finish(t, l)
	w.empty(t)
}

func onlyOne(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	front.enqueue(t, job(1, priority(9)))
	j := front.enqueue(t, job(2))
	l, err := worker.Only(t.Context(), j.Queue, j.ID, worker.want())
	if err != nil || l == nil {
		t.Fatalf("got %v, %v, want the job", l, err)
	}
	want(t, "task", l.Job().Task, "task-2")
	want(t, "entries", len(w.sorts(t, "ready")), 1)
	other := on("there")
	if l, err := other.Only(t.Context(), j.Queue, j.ID, other.want()); err != nil || l != nil {
		t.Fatalf("while its worker lives: got %v, %v, want nothing", l, err)
	}
	w.kill(worker)
	again, err := other.Only(t.Context(), j.Queue, j.ID, other.want())
	if err != nil || again == nil || !again.Adopted() {
		t.Fatalf("after its worker was killed: got %v, %v, want the job", again, err)
	}
	other.finish(t, again)
	var transition *queue.TransitionError
	if _, err := other.Only(t.Context(), j.Queue, j.ID, other.want()); !errors.As(err, &transition) || transition.Job.Status != queue.Succeeded {
		t.Errorf("once it is finished: got %v, want a TransitionError", err)
	}
	if _, err := other.Only(t.Context(), j.Queue, run+"."+strings.Repeat("0", 32), other.want()); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("another job: got %v, want ErrNotFound", err)
	}
	want(t, "the other one", other.claim(t).Job().Task, "task-1")
}

func cancelled(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	j := front.enqueue(t, job(1))
	cancel := func(id string) queue.Job {
		t.Helper()
		got, err := front.Cancel(t.Context(), queue.DefaultQueue, id, "me@here", "a mistake")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := cancel(j.ID)
	want(t, "status", got.Status, queue.Cancelled)
	want(t, "message", got.Outcome.Message, "cancelled by me@here: a mistake")
	want(t, "again", cancel(j.ID), got)
	worker.claimNone(t)
	w.empty(t)

	// A running job is ended by its worker.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tended := make(chan error, 1)
	go func() {
		tended <- worker.Tend(ctx, []string{queue.DefaultQueue}, func(err error) { t.Error(err) })
	}()
	j = front.enqueue(t, job(2))
	l := worker.claim(t)
	want(t, "status", cancel(j.ID).Status, queue.Running)
	select {
	case <-l.CancelRequested():
	case <-time.After(suite.Stuck):
		t.Fatal("the worker is not told")
	}
	by, why := l.Cancellation()
	want(t, "by, why", []string{by, why}, []string{"me@here", "a mistake"})
	if err := l.Finish(t.Context(), queue.Outcome{State: queue.Cancelled, ExecutionID: l.Job().Execution, Reason: "cancelled"}); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-tended; !errors.Is(err, context.Canceled) {
		t.Errorf("tend: got %v, want context.Canceled", err)
	}
	want(t, "status", cancel(j.ID).Status, queue.Cancelled)
	front.repair(t) // Tend's first repair may have put an entry that it had just missed
	w.empty(t)

	// An orphan is not locked.
	j = front.enqueue(t, job(3))
	worker.claim(t)
	w.kill(worker)
	front.reap(t)
	got = cancel(j.ID)
	want(t, "status", got.Status, queue.Cancelled)
	want(t, "execution", got.Outcome.ExecutionID, got.Execution)
	w.empty(t)

	// A job whose worker is gone counts as unlocked, whether or not the queue is tended.
	worker = on("back")
	j = front.enqueue(t, job(6))
	worker.claim(t)
	w.kill(worker)
	want(t, "status", cancel(j.ID).Status, queue.Cancelled)
	w.empty(t)

	// A job that was given back during its cancellation has ended.
	worker = on("back")
	j = front.enqueue(t, job(4))
	l = worker.claim(t)
	cancel(j.ID)
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	front.repair(t)
	want(t, "status", front.job(t, j.ID).Status, queue.Cancelled)
	w.empty(t)

	j = front.enqueue(t, job(5))
	worker.finish(t, worker.claim(t))
	var transition *queue.TransitionError
	if _, err := front.Cancel(t.Context(), queue.DefaultQueue, j.ID, "", ""); !errors.As(err, &transition) {
		t.Errorf("once it is finished: got %v, want a TransitionError", err)
	}
	if _, err := front.Cancel(t.Context(), queue.DefaultQueue, run+"."+strings.Repeat("0", 32), "", ""); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("another job: got %v, want ErrNotFound", err)
	}
}

// Jobs of a workspace's dead runs are withdrawn, of one run or of all, in every queue, except jobs that were begun or
// retried. dead is called once, after the jobs were listed.
func leftByTheDead(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	failed := front.enqueue(t, job(0))
	if err := worker.claim(t).Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: "e", ExitCode: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := front.Retry(t.Context(), failed.Queue, failed.ID); err != nil {
		t.Fatal(err)
	}
	begun := front.enqueue(t, job(1, priority(9)))
	worker.claim(t)
	jobs := map[string]queue.Job{
		"asked for again":  failed,
		"begun":            begun,
		"waits":            front.enqueue(t, job(2)),
		"another queue":    front.enqueue(t, job(3, func(j *queue.Job) { j.Queue = "gpu" })),
		"another run":      front.enqueue(t, job(4, func(j *queue.Job) { j.Run = "another" })),
		"another's":        front.enqueue(t, job(5, func(j *queue.Job) { j.Workspace = "dev" })),
		"of a longer name": front.enqueue(t, job(6, func(j *queue.Job) { j.Run += "-2" })),
	}
	asked := 0
	withdraw := func(of string, answer error, wantN int, cancelled ...string) {
		t.Helper()
		before := asked
		n, err := front.WithdrawLeft(t.Context(), "prod", of, "me@here", func(context.Context) error { asked++; return answer })
		if !errors.Is(err, answer) || n != wantN {
			t.Errorf("run %q: got %d, %v, want %d, %v", of, n, err, wantN, answer)
		}
		if left := wantN > 0 || answer != nil; asked-before > 1 || left != (asked > before) {
			t.Errorf("run %q: asked %d times whether it is dead", of, asked-before)
		}
		for name, j := range jobs {
			got, err := front.Job(t.Context(), j.Queue, j.ID)
			if err != nil {
				t.Fatal(err)
			}
			if is := got.Status == queue.Cancelled; is != slices.Contains(cancelled, name) {
				t.Errorf("run %q: the job %q is %s", of, name, got.Status)
			}
			if o := got.Outcome; o != nil && o.Message != "cancelled by me@here: "+queue.ReasonLeft {
				t.Errorf("run %q: the job %q: %q", of, name, o.Message)
			}
		}
	}
	withdraw(run, errGone, 0)
	withdraw(run, nil, 2, "waits", "another queue")
	withdraw(run, nil, 0, "waits", "another queue")
	withdraw("", nil, 2, "waits", "another queue", "another run", "of a longer name")
}

func retried(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	for n, state := range []queue.Status{queue.Failed, queue.TimedOut, queue.Succeeded, queue.Cancelled} {
		j := front.enqueue(t, job(n))
		var transition *queue.TransitionError
		if _, err := front.Retry(t.Context(), j.Queue, j.ID); !errors.As(err, &transition) {
			t.Errorf("a queued job: got %v, want a TransitionError", err)
		}
		l := worker.claim(t)
		if _, err := front.Retry(t.Context(), j.Queue, j.ID); !errors.As(err, &transition) {
			t.Errorf("a running job: got %v, want a TransitionError", err)
		}
		w.pass(time.Millisecond) // the entry of the retried job has another time
		o := queue.Outcome{State: state, ExecutionID: l.Job().Execution, ExitCode: 3, Reason: "exit", Message: "it went wrong"}
		if err := l.Finish(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		got, err := front.Retry(t.Context(), j.Queue, j.ID)
		if state != queue.Failed && state != queue.TimedOut {
			if !errors.As(err, &transition) {
				t.Errorf("a job that is %s: got %v, want a TransitionError", state, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", got.Status, queue.Queued)
		want(t, "retried", got.Retried, 1)
		want(t, "attempts", got.Attempts, 0)
		want(t, "enqueued again", front.enqueue(t, job(n)), got)
		l = worker.claim(t)
		want(t, "token", l.Job().Token, 2)
		worker.finish(t, l)
		want(t, "status", front.job(t, j.ID).Status, queue.Succeeded)
		w.empty(t)
	}
}

func reprioritised(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	front.enqueue(t, job(1))
	w.pass(time.Millisecond)
	j := front.enqueue(t, job(2))
	got, err := front.Reprioritise(t.Context(), j.Queue, j.ID, 7)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "priority", got.Priority, 7)
	want(t, "entries", len(w.sorts(t, "ready")), 2)
	l := worker.claim(t)
	want(t, "first", l.Job().Task, "task-2")
	var transition *queue.TransitionError
	if _, err := front.Reprioritise(t.Context(), j.Queue, j.ID, 7); !errors.As(err, &transition) {
		t.Errorf("a running job: got %v, want a TransitionError", err)
	}
	worker.finish(t, l)
	want(t, "second", worker.claim(t).Job().Task, "task-1")
}

func severalQueues(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	in := func(name string) func(*queue.Job) { return func(j *queue.Job) { j.Queue = name } }
	front.enqueue(t, job(1, in("fast")))
	w.pass(time.Millisecond)
	front.enqueue(t, job(2, in("slow"), priority(3)))
	w.pass(time.Millisecond)
	front.enqueue(t, job(3, in("other"), priority(9)))
	worker.claimNone(t)
	names, err := front.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want(t, "queues", names, []string{"fast", "other", "slow"})
	var got []string
	some := worker.want()
	some.Queues = []string{"fast", "slow"}
	for range 2 {
		got = append(got, worker.claimAs(t, some).Job().Task)
	}
	want(t, "order", got, []string{"task-2", "task-1"})
	if l, err := worker.Claim(t.Context(), some); err != nil || l != nil {
		t.Errorf("got %v, %v, want nothing", l, err)
	}
	n := 0
	for j, err := range front.Unfinished(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; j.Queue == "" {
			t.Errorf("a job without a queue: %+v", j)
		}
	}
	want(t, "unfinished", n, 3)
	some.Queues = []string{"../else"}
	if _, err := worker.Claim(t.Context(), some); !errors.Is(err, refstore.ErrInvalid) {
		t.Errorf("a queue that cannot be: got %v, want ErrInvalid", err)
	}
	if _, err := front.Enqueue(t.Context(), job(4, in("a/b"))); !errors.Is(err, refstore.ErrInvalid) {
		t.Errorf("a queue that cannot be: got %v, want ErrInvalid", err)
	}
}

func clean(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	for n := range 3 {
		front.enqueue(t, job(n))
	}
	old := worker.claim(t)
	worker.finish(t, old)
	if err := worker.claim(t).Finish(t.Context(), queue.Outcome{State: queue.Failed, Reason: "exit"}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	between := w.now()
	w.pass(time.Hour)
	worker.finish(t, worker.claim(t))
	cleaned := func(before time.Time) int {
		t.Helper()
		n, err := front.Clean(t.Context(), before)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	want(t, "cleaned before all", cleaned(w.now().Add(-24*time.Hour)), 0)
	want(t, "dead", len(w.sorts(t, "dead")), 1)
	want(t, "cleaned", cleaned(between), 2)
	want(t, "finished", len(w.sorts(t, "finished/"+run)), 1)
	want(t, "runs", w.sorts(t, "finished"), []string{run})
	want(t, "cleaned at last", cleaned(w.now().Add(time.Minute)), 1)
	want(t, "runs", len(w.sorts(t, "finished")), 0)
	w.empty(t)
	want(t, "enqueued again", on("front").enqueue(t, job(0)).Status, queue.Queued)
}

func overview(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	since := w.now()
	for n := range 5 {
		front.enqueue(t, job(n))
		w.pass(time.Second)
	}
	front.enqueue(t, job(5, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(w.now().Add(time.Hour)) }))
	if err := worker.claim(t).Finish(t.Context(), queue.Outcome{State: queue.TimedOut, Reason: "timeout"}); err != nil {
		t.Fatal(err)
	}
	gone := on("back")
	gone.claim(t)
	w.kill(gone)
	w.pass(time.Second)
	worker.claim(t)
	w.flush()
	o, err := front.Overview(t.Context(), queue.DefaultQueue)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "ready, delayed", []int{o.Ready, o.Delayed}, []int{2, 1})
	want(t, "of runs", o.Runs, []queue.RunJobs{{Workspace: "prod", Run: run, Jobs: 3}})
	// The last claim may have tried a job that gone had claimed, and then taken any of the others.
	if waiting := o.Waiting.Sub(since); waiting < 2*time.Second || waiting > 60*time.Second {
		t.Errorf("waiting since: got %v after the first, want some 2 or 3 s", waiting)
	}
	if len(o.Running) != 2 || len(o.Dead) != 1 {
		t.Fatalf("got %d running and %d dead, want 2 and 1", len(o.Running), len(o.Dead))
	}
	want(t, "worker", o.Running[0].Job.Worker, gone.name)
	want(t, "is it over", []bool{o.Running[0].Over, o.Running[1].Over}, []bool{true, false})
	want(t, "dead", o.Dead[0].Status, queue.TimedOut)

	// An attempt that was followed by another in its run need not be retried.
	for attempt := range int64(3) {
		before := o.Dead[0]
		front.enqueue(t, job(0, func(j *queue.Job) { j.Attempt = attempt + 2 }))
		if o, err = front.Overview(t.Context(), queue.DefaultQueue); err != nil {
			t.Fatal(err)
		}
		want(t, "dead while the next attempt waits", len(o.Dead), 0)
		only := worker.want()
		only.Fits = func(j *queue.Job) bool { return j.Attempt == attempt+2 }
		if err := worker.claimAs(t, only).Finish(t.Context(), queue.Outcome{State: queue.Failed, ExitCode: 1}); err != nil {
			t.Fatal(err)
		}
		if o, err = front.Overview(t.Context(), queue.DefaultQueue); err != nil {
			t.Fatal(err)
		}
		if len(o.Dead) != 1 || o.Dead[0].Attempt != attempt+2 || o.Dead[0].ID == before.ID {
			t.Errorf("dead: got %+v, want attempt %d only", o.Dead, attempt+2)
		}
	}
}

func inbox(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
	defer cancel()
	in := front.Inbox(ctx, queue.DefaultQueue, run)
	next := func(n int, is func(*queue.Job) bool) queue.Job {
		t.Helper()
		for {
			jobs, err := in.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				if j.Task == fmt.Sprintf("task-%d", n) && is(&j) {
					return j
				}
			}
		}
	}
	a, b := front.enqueue(t, job(1)), front.enqueue(t, job(2))
	in.Expect(a.ID)
	l := worker.claim(t)
	want(t, "token", next(1, func(j *queue.Job) bool { return j.Status == queue.Running }).Token, 1)
	if err := l.Started(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	next(1, func(j *queue.Job) bool { return !j.Started.IsZero() })
	worker.finish(t, worker.claim(t)) // not expected by the inbox
	worker.finish(t, l)
	next(1, func(j *queue.Job) bool { return j.Status == queue.Succeeded })
	in.Expect(b.ID)
	next(2, func(j *queue.Job) bool { return j.Status == queue.Succeeded })

	// A job that its worker had no time to move is reported; moving it is left to Repair.
	c := front.enqueue(t, job(3))
	in.Expect(c.ID)
	l = worker.claim(t)
	worker.wire.hook(func(_ int, _ bool, op string) error {
		if strings.Contains(op, "finished") {
			return errGone
		}
		return nil
	})
	worker.finish(t, l)
	next(3, func(j *queue.Job) bool { return j.Status == queue.Succeeded })
	worker.wire.hook(nil)
	front.repair(t)
	w.empty(t)
	cancel()
	if _, err := in.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: got %v, want context.Canceled", err)
	}
}

func watch(t *testing.T, w *world, on func(string) *peer) {
	front, worker := on("front"), on("back")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wake, err := worker.Watch(ctx, queue.DefaultQueue, "other")
	if err != nil {
		t.Fatal(err)
	}
	claim := func() *queue.Lease {
		t.Helper()
		both := worker.want()
		both.Queues = append(both.Queues, "other")
		limit := time.After(suite.Stuck)
		for {
			l, err := worker.Claim(ctx, both)
			if err != nil {
				t.Fatal(err)
			}
			if l != nil {
				return l
			}
			select {
			case <-wake:
			case <-limit:
				t.Fatal("no wake-up")
			}
		}
	}
	for n := range 10 {
		go func() {
			if _, err := front.Enqueue(ctx, job(n, func(j *queue.Job) { j.Queue = []string{"default", "other"}[n%2] })); err != nil {
				t.Error(err)
			}
		}()
		worker.finish(t, claim())
	}
	front.enqueue(t, job(10, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(w.now().Add(300 * time.Millisecond)) }))
	worker.finish(t, claim())
	cancel()
	for range wake {
	}
}
