package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// settler is the record of executions: missing ones are settled as requested.
type settler struct {
	mu      sync.Mutex
	results map[string]executions.Result
}

func (s *settler) Settle(_ context.Context, _ executions.Key, _ []objectstore.Hash, id string, reason executions.Reason, message string) (executions.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.results[id]; !there {
		s.results[id] = executions.Result{ExecutionID: id, State: record.Error, Reason: reason, Message: message}
	}
	return s.results[id], nil
}

func (s *settler) Get(_ context.Context, key executions.Key, id string) (*executions.Execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, there := s.results[id]
	if !there {
		return nil, executions.ErrNotFound
	}
	return &executions.Execution{Key: key, Status: record.Status{
		ExecutionID: id, State: r.State, Message: r.Message, StartedAt: r.EndedAt.Add(-r.Duration), CompletedAt: r.EndedAt,
	}, Detail: &record.Detail{Reason: string(r.Reason)}}, nil
}

func (s *settler) put(r executions.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[r.ExecutionID] = r
}

// A rig is a dispatcher with a queue; the test plays the workers.
type rig struct {
	*testing.T
	d       *dispatch.Dispatcher
	q       *queue.Queue // the worker's
	store   refstore.Store
	settler *settler
}

func newRig(t *testing.T, o dispatch.Options) *rig {
	t.Helper()
	return newRigOn(t, mem.New(), o)
}

func newRigOn(t *testing.T, store refstore.Store, o dispatch.Options) *rig {
	t.Helper()
	r := &rig{T: t, settler: &settler{results: map[string]executions.Result{}}, store: store}
	r.q, _ = r.open("worker")
	o.Now, o.By, o.Host = time.Now, "me@host", "here"
	if o.Fault == nil {
		o.Fault = func(err error) { t.Errorf("fault: %v", err) }
	}
	own, _ := r.open("run")
	r.d = dispatch.New(own, r.settler, o)
	t.Cleanup(func() { r.d.Close() })
	return r
}

// open returns the queues as another process sees them, and a function that kills the process.
func (r *rig) open(words string) (q *queue.Queue, die func()) {
	began := time.Now()
	leases := lease.New(r.store, lease.Options{Owner: lease.Owner{Words: words}, Elapsed: func() time.Duration { return time.Since(began) }})
	die = func() { leases.Close() }
	r.Cleanup(die)
	return queue.New(queue.Store{Store: r.store}, leases, queue.Options{Now: time.Now, Pace: 5 * time.Millisecond, MostPace: 20 * time.Millisecond}), die
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// claim waits for a job and claims it.
func (r *rig) claim(queues ...string) *queue.Lease {
	r.Helper()
	if len(queues) == 0 {
		queues = []string{queue.DefaultQueue}
	}
	ctx, cancel := context.WithTimeout(r.Context(), suite.Stuck)
	defer cancel()
	wake, err := r.q.Watch(ctx, queues...)
	r.must(err)
	for {
		l, err := r.q.Claim(ctx, queue.Want{Queues: queues, Worker: "worker", NewExecution: executions.NewIDAfter})
		r.must(err)
		if l != nil {
			return l
		}
		select {
		case <-wake:
		case <-ctx.Done():
			r.Fatal("nothing to claim")
		}
	}
}

// asked is a request in progress, with the changes that were reported to it.
type asked struct {
	*rig
	req  *executions.Request
	done chan struct{}
	res  executions.Result
	err  error
	told []string
	news chan string
}

func (r *rig) ask(ctx context.Context, change func(*executions.Request)) *asked {
	a := &asked{rig: r, done: make(chan struct{}), news: make(chan string, 100)}
	tell := func(format string, args ...any) {
		a.told = append(a.told, fmt.Sprintf(format, args...))
		a.news <- a.told[len(a.told)-1]
	}
	a.req = &executions.Request{
		Task: objectstore.Sum([]byte("task")), Inputs: []objectstore.Hash{objectstore.Sum([]byte("input"))}, Policy: &record.Policy{},
		Load: func(context.Context) (*record.Task, error) { return new(record.Task), nil }, Attempt: 1, RunID: "run-1", Workspace: "prod", Name: "t",
		Claimed: func(id, worker string, _ time.Time) { tell("claimed by %s", worker) },
		Started: func(id string, _ time.Time) { tell("started") },
		Lost:    func(id string, _ executions.Reason, message string, _, _ time.Time) { tell("lost: %s", message) },
	}
	if change != nil {
		change(a.req)
	}
	go func() {
		defer close(a.done)
		a.res, a.err = r.d.Execute(ctx, executions.NewKey(a.req.Task, a.req.Inputs), a.req)
	}()
	return a
}

// wait waits until a change is reported to the request.
func (a *asked) wait(what string) {
	a.Helper()
	for {
		select {
		case text := <-a.news:
			if strings.HasPrefix(text, what) {
				return
			}
		case <-time.After(suite.Stuck):
			a.Fatalf("no report: %s", what)
		}
	}
}

func (a *asked) end(told ...string) {
	a.Helper()
	select {
	case <-a.done:
	case <-time.After(suite.Stuck):
		a.Fatal("the request has not ended")
	}
	if diff := cmp.Diff(told, a.told); diff != "" {
		a.Errorf("its reports (-want +got):\n%s", diff)
	}
}

func success(id string) queue.Outcome {
	return queue.Outcome{State: queue.Succeeded, ExecutionID: id, Output: objectstore.Sum([]byte("out")).String(), Size: 3, Duration: time.Second}
}

func TestExecute(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	loaded := false
	a := r.ask(t.Context(), func(req *executions.Request) {
		req.Load = func(context.Context) (*record.Task, error) { loaded = true; return new(record.Task), nil }
		req.Policy = &record.Policy{Queue: "big", Labels: []string{"gpu"}, Priority: 3, Lost: 7, CPU: 2}
	})
	l := r.claim("big")
	j := l.Job()
	if !loaded {
		t.Error("the job exists before its inputs were stored")
	}
	if j.MaxAttempts != 8 || j.Priority != 3 || !slices.Equal(j.Labels, []string{"gpu"}) || j.Host != "here" || j.Policy.CPU != 2 || j.Workspace != "prod" {
		t.Errorf("job %+v", j)
	}
	back, err := dispatch.Request(&j)
	r.must(err)
	if back.Task != a.req.Task || !slices.Equal(back.Inputs, a.req.Inputs) || back.Name != "t" || back.RunID != "run-1" || back.Job.Ref != j.Ref() || back.Job.Host != "here" {
		t.Errorf("the job's request is %+v", back)
	}
	r.must(l.Finish(t.Context(), success(j.Execution)))
	a.end("claimed by worker", "started")
	if a.res.EndedAt.IsZero() {
		t.Error("it is not known when it ended")
	}
	want := executions.Result{EndedAt: a.res.EndedAt, ExecutionID: j.Execution, State: record.Success, Output: objectstore.Sum([]byte("out")), Size: 3, Duration: time.Second}
	if a.err != nil || a.res != want {
		t.Errorf("got %+v, %v\nwant %+v", a.res, a.err, want)
	}
	// An earlier job is not enqueued again.
	again := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Queue: "big"} })
	again.end("claimed by worker", "started")
	if again.err != nil || again.res != want {
		t.Errorf("the same again: got %+v, %v\nwant %+v", again.res, again.err, want)
	}
}

// A lost attempt is told as it is on record, which may be long before its job was given up: when its command began and
// ended, and why. It was claimed when its id was made.
func TestLostAsOnRecord(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	ended := time.Now().Add(-time.Hour)
	var times []time.Time
	a := r.ask(t.Context(), func(req *executions.Request) {
		req.Claimed = func(id, worker string, at time.Time) { times = append(times, at) }
		req.Started = func(id string, at time.Time) { times = append(times, at) }
		lost := req.Lost
		req.Lost = func(id string, reason executions.Reason, message string, at, again time.Time) {
			times = append(times, at)
			lost(id, reason, message, at, again)
		}
	})
	l := r.claim()
	id := l.Job().Execution
	r.settler.put(executions.Result{
		ExecutionID: id, State: record.Error, Reason: executions.ReasonLost, Message: "bob@lab was lost", Duration: time.Minute, EndedAt: ended,
	})
	_, err := l.Again(t.Context(), "me@lab was stopped", time.Hour)
	r.must(err)
	a.wait("lost: bob@lab was lost")
	claimed, _ := executions.ParseID(id)
	for i, want := range []time.Time{claimed, ended.Add(-time.Minute), ended} {
		if got := times[i]; got.Sub(want).Abs() > time.Second {
			t.Errorf("time %d is %v, want %v", i, got, want)
		}
	}
	_, err = r.q.Cancel(t.Context(), queue.DefaultQueue, l.Job().ID, "me", "enough")
	r.must(err)
	<-a.done
}

// A waiter that sees a job only after its end is told of its lost attempts, too.
func TestLostSeenLate(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	a := r.ask(t.Context(), nil)
	l := r.claim()
	r.settler.put(executions.Result{ExecutionID: l.Job().Execution, State: record.Error, Reason: executions.ReasonLost, Message: "bob@lab was lost", EndedAt: time.Now()})
	_, err := l.Again(t.Context(), "me@lab was stopped", 0)
	r.must(err)
	l = r.claim()
	r.must(l.Finish(t.Context(), success(l.Job().Execution)))
	a.end("claimed by worker", "lost: bob@lab was lost", "claimed by worker", "started")
	again := r.ask(t.Context(), nil)
	again.end("claimed by worker", "lost: bob@lab was lost", "claimed by worker", "started")
}

// The start of a long command is reported while it runs, and so is an attempt that is given up.
func TestExecuteTellsOnTheWay(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	a := r.ask(t.Context(), nil)
	l := r.claim()
	a.wait("claimed")
	r.must(l.Started(t.Context(), time.Now()))
	a.wait("started")
	_, err := l.Again(t.Context(), "it was unplugged", 0)
	r.must(err)
	a.wait("lost: it was unplugged")
	l = r.claim()
	r.settler.put(executions.Result{ExecutionID: l.Job().Execution, State: record.Failed, ExitCode: 4})
	r.must(l.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: l.Job().Execution, ExitCode: 4}))
	a.end("claimed by worker", "started", "lost: it was unplugged", "claimed by worker")
	if a.err != nil || a.res.State != record.Failed || a.res.ExitCode != 4 {
		t.Errorf("got %+v, %v; want the recorded result", a.res, a.err)
	}
}

func TestLostForGood(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	a := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Lost: -1} })
	_, err := r.claim().Again(t.Context(), "worker was lost", 0)
	r.must(err)
	a.end("claimed by worker") // nothing says that its command ran
	if a.err != nil || a.res.State != record.Error || a.res.Reason != executions.ReasonLost || a.res.ExecutionID == "" {
		t.Errorf("got %+v, %v; want an error: lost", a.res, a.err)
	}
}

// A run does not wait for ever for a job whose record was removed or damaged.
func TestJobThatIsGone(t *testing.T) {
	r := newRig(t, dispatch.Options{Fault: func(error) {}})
	a := r.ask(t.Context(), nil)
	key := refstore.Key{Partition: "QUEUE/default/jobs", Sort: r.queued()}
	there, err := r.store.Get(t.Context(), key)
	r.must(err)
	r.must(r.store.Delete(t.Context(), key, there.Version))
	l := r.claim()
	r.must(l.Finish(t.Context(), success(l.Job().Execution)))
	a.end("claimed by worker", "started")
	if a.err != nil || a.res.State != record.Success {
		t.Errorf("a removed job: got %+v, %v, want the worker's result", a.res, a.err)
	}

	a = r.ask(t.Context(), func(req *executions.Request) { req.Name = "u" })
	key.Sort = r.queued()
	there, err = r.store.Get(t.Context(), key)
	r.must(err)
	there.Value = []byte("nonsense")
	_, err = r.store.Put(t.Context(), there)
	r.must(err)
	a.end()
	if a.err != nil || a.res.State != record.Error || a.res.ExecutionID == "" || !strings.Contains(a.res.Message, key.Sort) {
		t.Errorf("a damaged job: got %+v, %v, want a failure that names the malformed record", a.res, a.err)
	}
}

func TestCancelWhileQueued(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	a := r.ask(ctx, nil)
	id := r.queued()
	enough := errors.New("enough")
	cancel(enough)
	a.end()
	if !errors.Is(a.err, enough) {
		t.Errorf("got %+v, %v; want the cause", a.res, a.err)
	}
	j, err := r.q.Job(t.Context(), queue.DefaultQueue, id)
	r.must(err)
	if j.Status != queue.Cancelled || !strings.Contains(j.Outcome.Message, "enough") {
		t.Errorf("the job is %s: %+v", j.Status, j.Outcome)
	}
}

// queued waits until there is a job, and returns its id.
func (r *rig) queued() string {
	r.Helper()
	wake, err := r.q.Watch(r.Context(), queue.DefaultQueue)
	r.must(err)
	for {
		for j, err := range r.q.Jobs(r.Context(), queue.DefaultQueue) {
			r.must(err)
			return j.ID
		}
		<-wake
	}
}

// tend makes the worker learn of cancellations.
func (r *rig) tend() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.q.Tend(ctx, []string{queue.DefaultQueue}, func(err error) { r.Errorf("tend: %v", err) })
	}()
	r.Cleanup(func() { cancel(); <-done })
}

func TestCancelWhileRunning(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	r.tend()
	ctx, cancel := context.WithCancel(t.Context())
	a := r.ask(ctx, nil)
	l := r.claim()
	a.wait("claimed")
	cancel()
	<-l.CancelRequested()
	r.settler.put(executions.Result{ExecutionID: l.Job().Execution, State: record.Error, Reason: executions.ReasonCancelled, Message: "cancelled"})
	r.must(l.Finish(t.Context(), queue.Outcome{State: queue.Cancelled, ExecutionID: l.Job().Execution, Reason: "cancelled"}))
	a.end("claimed by worker")
	if a.err != nil || a.res.Reason != executions.ReasonCancelled || a.res.Message != "cancelled" {
		t.Errorf("got %+v, %v; want it to be cancelled", a.res, a.err)
	}
}

func TestCancelIsNotWaitedForForEver(t *testing.T) {
	r := newRig(t, dispatch.Options{Patience: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	a := r.ask(ctx, nil)
	r.claim()
	a.wait("claimed")
	cancel()
	a.end("claimed by worker")
	if !errors.Is(a.err, context.Canceled) || !strings.Contains(a.err.Error(), "was told to end") {
		t.Errorf("got %v, want that it has not ended", a.err)
	}
}

func TestCancelledByAPerson(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	a := r.ask(t.Context(), nil)
	_, err := r.q.Cancel(t.Context(), queue.DefaultQueue, r.queued(), "ann@lab", "too dear")
	r.must(err)
	select {
	case <-a.done:
	case <-time.After(suite.Stuck):
		t.Fatal("the request has not ended")
	}
	if a.err != nil || a.res.Reason != executions.ReasonCancelled || !strings.Contains(a.res.Message, "ann@lab: too dear") || a.res.ExecutionID == "" {
		t.Errorf("got %+v, %v; want the recorded author of the cancellation", a.res, a.err)
	}
}

// A process that has lost its lease leaves its jobs to its successor.
func TestLostLeaseLeavesTheJob(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	a := r.ask(ctx, nil)
	id := r.queued()
	cancel(fmt.Errorf("gone: %w", refstore.ErrLost))
	a.end()
	if !errors.Is(a.err, refstore.ErrLost) {
		t.Errorf("got %v, want ErrLost", a.err)
	}
	if j, err := r.q.Job(t.Context(), queue.DefaultQueue, id); err != nil || j.Status != queue.Queued {
		t.Errorf("the job is %s, %v; want it to be queued", j.Status, err)
	}
}

func TestOfManyEachGetsItsOwn(t *testing.T) {
	r := newRig(t, dispatch.Options{})
	const many = 50
	var list []*asked
	for i := range many {
		list = append(list, r.ask(t.Context(), func(req *executions.Request) { req.Name = fmt.Sprint("t", i) }))
	}
	for range many {
		l := r.claim()
		o := success(l.Job().Execution)
		o.Output = objectstore.Sum([]byte(l.Job().Task)).String()
		r.must(l.Finish(t.Context(), o))
	}
	for i, a := range list {
		a.end("claimed by worker", "started")
		if want := objectstore.Sum([]byte(fmt.Sprint("t", i))); a.err != nil || a.res.Output != want {
			t.Errorf("task %d: got %+v, %v", i, a.res, a.err)
		}
	}
}

// remove removes a job without a trace.
func (r *rig) remove(j queue.Job) {
	r.Helper()
	key := refstore.Key{Partition: "QUEUE/" + j.Queue + "/jobs", Sort: j.ID}
	there, err := r.store.Get(r.Context(), key)
	r.must(err)
	r.must(r.store.Delete(r.Context(), key, there.Version))
}
