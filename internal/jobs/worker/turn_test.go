package worker_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/jobs/queue"
	"e3/internal/jobs/worker"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
)

// A hall is a queue in memory with workers whose commands only take time. It is for synctest bubbles.
type hall struct {
	*testing.T
	store   *listed
	front   *queue.Queue
	takes   map[string]time.Duration // by task; otherwise a second
	workers int
	jobs    int
	stops   []func()

	mu    sync.Mutex
	begun []string // tasks, each with its worker
}

// listed counts listings.
type listed struct {
	*mem.Store
	n  atomic.Int64
	at atomic.Pointer[func(refstore.Query)] // is called for each
}

func (l *listed) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	l.n.Add(1)
	if at := l.at.Load(); at != nil {
		(*at)(q)
	}
	return l.Store.List(ctx, q)
}

func newHall(t *testing.T) *hall {
	h := &hall{T: t, store: &listed{Store: mem.New()}, takes: map[string]time.Duration{}}
	h.front, _ = h.queue("front")
	return h
}

func (h *hall) queue(host string) (*queue.Queue, *lease.Leases) {
	h.Helper()
	start := time.Now()
	h.workers++
	l := lease.New(h.store, lease.Options{
		TTL: 6 * time.Second, Owner: lease.Owner{Process: process.ID{PID: h.workers, StartTime: 1, Host: host, BootID: host}, Words: host},
		Clock:   func(context.Context) (time.Time, error) { return time.Now(), nil },
		Elapsed: func() time.Duration { return time.Since(start) },
		Alive:   func(process.ID) (alive, known bool) { return true, true },
	})
	h.stops = append(h.stops, func() {
		if err := l.Close(); err != nil {
			h.Error(err)
		}
	})
	return queue.New(queue.Store{Store: h.store}, l, queue.Options{Now: time.Now}), l
}

// end ends everything in reverse order.
func (h *hall) end() {
	for _, stop := range slices.Backward(h.stops) {
		stop()
	}
}

func (h *hall) Make(ctx context.Context, req *executions.Request, id string) (executions.Result, error) {
	h.mu.Lock()
	d, ok := h.takes[req.Name]
	h.mu.Unlock()
	if !ok {
		d = time.Second
	}
	select {
	case <-time.After(d):
		return executions.Result{ExecutionID: id, State: record.Success, Output: req.Task}, nil
	case <-ctx.Done():
		return executions.Result{ExecutionID: id, State: record.Error, Reason: executions.ReasonCancelled, Message: "cancelled"}, nil
	}
}

func (h *hall) Adopt(context.Context, *executions.Request, string, *runner.Orphan) (executions.Result, error) {
	panic("nothing is left to be adopted")
}

func (h *hall) Settle(_ context.Context, _ executions.Key, _ []objectstore.Hash, id string, _ executions.Reason, message string) (executions.Result, error) {
	return executions.Result{ExecutionID: id, State: record.Error, Reason: executions.ReasonLost, Message: message}, nil
}

func (h *hall) Get(context.Context, executions.Key, string) (*executions.Execution, error) {
	return nil, executions.ErrNotFound
}

type noCommands struct{}

func (noCommands) Adopt(context.Context, ...string) ([]*runner.Orphan, error) { return nil, nil }
func (noCommands) Release(string)                                             {}

func (noCommands) Leave() error { return nil }

// work starts a worker of two cores, unless the options say otherwise, and returns a channel for its result.
func (h *hall) work(name string, o worker.Options) <-chan error {
	h.Helper()
	q, l := h.queue(name)
	o.Name, o.Host, o.Patience = name, name, 10*time.Second
	if o.Concurrency == 0 {
		o.Concurrency = 2
	}
	if o.Queues == nil {
		o.Queues = []string{queue.DefaultQueue}
	}
	o.Report = func(e worker.Event) {
		if e.Type == worker.JobBegun {
			h.mu.Lock()
			h.begun = append(h.begun, e.Job.Task+" "+name)
			h.mu.Unlock()
		}
	}
	return h.run(q, l, o)
}

// run starts a worker with a queue and a session; it is stopped with the hall.
func (h *hall) run(q *queue.Queue, l *lease.Leases, o worker.Options) <-chan error {
	w := worker.New(worker.Stores{
		Queue: q, Executor: h, Supervisor: noCommands{}, Session: l, Sweep: func(context.Context) error { return nil },
	}, o)
	ctx, stop := context.WithCancel(context.Background())
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		done <- w.Run(ctx, nil)
		close(ended)
	}()
	h.stops = append(h.stops, func() {
		stop()
		<-ended
	})
	return done
}

// enqueue makes a job. Jobs of the same moment still have an order.
func (h *hall) enqueue(task string, p record.Policy, edit ...func(*queue.Job)) queue.Job {
	h.Helper()
	h.jobs++
	j := queue.Job{
		Workspace: "prod", Run: "run-1", Task: task, Attempt: 1, TaskHash: fmt.Sprintf("%064x", h.jobs), MaxAttempts: 9, Policy: p, Labels: p.Labels, Priority: p.Priority,
	}
	for _, f := range edit {
		f(&j)
	}
	time.Sleep(time.Microsecond)
	added, err := h.front.Enqueue(context.Background(), &j)
	if err != nil {
		h.Fatal(err)
	}
	return added
}

// supply enqueues small jobs of one core. They take from one to two seconds, so that cores become free one at a time.
func (h *hall) supply(n int, edit ...func(*queue.Job)) {
	h.Helper()
	for range n {
		task := "small-" + strconv.Itoa(h.jobs)
		h.mu.Lock()
		h.takes[task] = time.Second + time.Duration(h.jobs*37%100)*10*time.Millisecond
		h.mu.Unlock()
		h.enqueue(task, record.Policy{CPU: 1}, edit...)
	}
}

// order returns the tasks that have begun so far.
func (h *hall) order() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.begun)
}

// before returns how many tasks with a prefix began before a task, -1 if that has not begun.
func (h *hall) before(task, prefix string) int {
	n := 0
	for _, b := range h.order() {
		if strings.HasPrefix(b, task+" ") {
			return n
		}
		if strings.HasPrefix(b, prefix) {
			n++
		}
	}
	return -1
}

func inHall(t *testing.T, test func(h *hall)) {
	t.Helper()
	worker.NewMetrics() // its shared goroutine must not belong to a bubble
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		defer h.end()
		test(h)
	})
}

// most is how many jobs of one core a worker of two cores may begin while a job waits for both: the jobs that pass it,
// and the first two.
const most = record.MostPassed + 2

// A job without room is passed by a limited number of later jobs, if cores become free one by one.
func TestLargeJobHasItsTurn(t *testing.T) {
	for name, test := range map[string]struct {
		large, small record.Policy
		options      worker.Options
	}{
		"all cores":                 {record.Policy{CPU: 2, Priority: 100}, record.Policy{CPU: 1}, worker.Options{}},
		"more cores than there are": {record.Policy{CPU: 64, Priority: 100}, record.Policy{CPU: 1}, worker.Options{}},
		"older":                     {record.Policy{CPU: 2}, record.Policy{CPU: 1}, worker.Options{}},
		"memory":                    {record.Policy{Memory: 100, Priority: 100}, record.Policy{Memory: 50}, worker.Options{Concurrency: 8, Memory: 100}},
		"a resource, which is free": {
			record.Policy{CPU: 2, Resources: []record.Amount{{Name: "gpu", Value: 1}}}, record.Policy{CPU: 1}, worker.Options{Capacities: map[string]float64{"gpu": 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHall(t, func(h *hall) {
				small := func(j *queue.Job) { j.Policy = test.small }
				first := func(j *queue.Job) { small(j); j.Priority = 200 }
				h.supply(2, first)
				h.work("w", test.options)
				time.Sleep(500 * time.Millisecond)
				h.enqueue("large", test.large)
				h.supply(60, small)
				time.Sleep(100 * time.Second)
				if n := h.before("large", "small-"); n < 0 || n > most {
					t.Errorf("%d jobs have begun before it, want at most %d: %q", n, most, h.order())
				}
				if n := len(h.order()); n != 63 {
					t.Errorf("%d jobs have begun, want all 63", n)
				}
			})
		})
	}
}

// passing makes a worker begin so many small jobs that a large one gets its turn, while a job of an hour keeps it
// waiting.
func (h *hall) passing(large record.Policy, edit ...func(*queue.Job)) queue.Job {
	h.Helper()
	h.takes["long"] = time.Hour
	h.enqueue("long", record.Policy{CPU: 1, Priority: 200})
	h.work("w", worker.Options{})
	time.Sleep(500 * time.Millisecond)
	j := h.enqueue("large", large, edit...)
	h.supply(60)
	time.Sleep(70 * time.Second)
	if n := len(h.order()); n != 1+record.MostPassed {
		h.Fatalf("%d jobs have begun, want the long one and %d that pass the large one", n, record.MostPassed)
	}
	listings := h.store.n.Load()
	time.Sleep(30 * time.Second)
	if n := h.store.n.Load() - listings; n > 250 {
		h.Errorf("while it waits the store is asked for %d lists in half a minute", n)
	}
	return j
}

// all tells whether all other jobs begin soon, but not the large one.
func (h *hall) all() {
	h.Helper()
	time.Sleep(100 * time.Second)
	if n := len(h.order()); n != 61 || h.before("large", "") >= 0 {
		h.Errorf("%d jobs have begun, want all but the large one: %q", n, h.order())
	}
}

// A turn ends if the large job cannot be claimed.
func TestTurnEnds(t *testing.T) {
	all := record.Policy{CPU: 2, Priority: 100}
	t.Run("it is cancelled", func(t *testing.T) {
		inHall(t, func(h *hall) {
			j := h.passing(all)
			if _, err := h.front.Cancel(context.Background(), j.Queue, j.ID, "me", "enough"); err != nil {
				t.Fatal(err)
			}
			h.all()
		})
	})
	t.Run("it is put behind the others", func(t *testing.T) {
		inHall(t, func(h *hall) {
			j := h.passing(all)
			if _, err := h.front.Reprioritise(context.Background(), j.Queue, j.ID, -1); err != nil {
				t.Fatal(err)
			}
			h.all()
		})
	})
	t.Run("another worker has it", func(t *testing.T) {
		inHall(t, func(h *hall) {
			h.passing(all)
			h.takes["large"] = time.Hour
			h.work("other", worker.Options{})
			time.Sleep(100 * time.Second)
			if n := len(h.order()); n != 62 {
				t.Errorf("%d jobs have begun, want all 62", n)
			}
			// When it is claimed elsewhere, the first worker continues at once.
			if next := h.order()[1+record.MostPassed:][:3]; !slices.Contains(next, "large other") {
				t.Errorf("%q begin after those that passed the large one, want that by the other worker", next)
			}
		})
	})
	t.Run("its record cannot be read", func(t *testing.T) {
		inHall(t, func(h *hall) {
			j := h.passing(all)
			h.spoil(j)
			h.all()
		})
	})
}

// During a large job's turn, the long queue behind it is not read, and listing takes a small part of the time. After
// the turn those jobs continue.
func TestTurnReadsLittle(t *testing.T) {
	inHall(t, func(h *hall) {
		h.takes["long"] = time.Hour
		h.enqueue("long", record.Policy{CPU: 1, Priority: 200})
		h.supply(3000)
		large := h.enqueue("large", record.Policy{CPU: 2, Priority: 100})
		var lists, entries, spent atomic.Int64
		at := func(q refstore.Query) { // a distant store
			if strings.HasSuffix(q.Partition, "/ready") {
				cost := 20*time.Millisecond + time.Duration(q.Limit)*100*time.Microsecond
				lists.Add(1)
				entries.Add(int64(q.Limit))
				spent.Add(int64(cost))
				time.Sleep(cost)
			}
		}
		h.store.at.Store(&at)
		h.work("w", worker.Options{})
		time.Sleep(100 * time.Second)
		begun := len(h.order())
		lists.Store(0)
		entries.Store(0)
		spent.Store(0)
		time.Sleep(100 * time.Second)
		if n := len(h.order()); n != begun || n != 1+record.MostPassed {
			t.Fatalf("%d jobs have begun, %d of them before the large one has its turn; want %d", n, begun, 1+record.MostPassed)
		}
		if s := time.Duration(spent.Load()); s > 100*time.Second/20 {
			t.Errorf("in 100 s, %d lists of %d entries took %s, want a twentieth of the time", lists.Load(), entries.Load(), s)
		}
		if _, err := h.front.Cancel(context.Background(), large.Queue, large.ID, "me", "enough"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := len(h.order()); n < begun+2 {
			t.Errorf("%d jobs have begun 5 s after the turn is over, want some of those behind", n-begun)
		}
	})
}

// During a large job's turn, jobs before it are still claimed.
func TestTurnLetsEarlierOnesGo(t *testing.T) {
	inHall(t, func(h *hall) {
		h.passing(record.Policy{CPU: 2, Priority: 100})
		h.enqueue("urgent", record.Policy{CPU: 1, Priority: 101})
		time.Sleep(10 * time.Second)
		if got := h.order(); got[len(got)-1] != "urgent w" || len(got) != 2+record.MostPassed {
			t.Errorf("began: %q, want the urgent one last", got)
		}
	})
}

// A job that the worker can never take, or that waits for a resource that others do not need, keeps no job waiting.
func TestNoTurn(t *testing.T) {
	gpu := []record.Amount{{Name: "gpu", Value: 1}}
	for name, test := range map[string]struct {
		large   record.Policy
		options worker.Options
	}{
		"too much memory": {record.Policy{CPU: 2, Memory: 101, Priority: 100}, worker.Options{Memory: 100}},
		"too much of a resource": {
			record.Policy{CPU: 2, Resources: []record.Amount{{Name: "gpu", Value: 2}}, Priority: 100}, worker.Options{Capacities: map[string]float64{"gpu": 1}},
		},
		"a label":             {record.Policy{CPU: 2, Labels: []string{"avx"}, Priority: 100}, worker.Options{}},
		"a resource is taken": {record.Policy{CPU: 2, Resources: gpu, Priority: 100}, worker.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			inHall(t, func(h *hall) {
				h.takes["long"] = time.Hour
				h.enqueue("long", record.Policy{CPU: 1, Priority: 200, Resources: gpu})
				h.work("w", test.options)
				time.Sleep(500 * time.Millisecond)
				h.enqueue("large", test.large)
				h.supply(59)
				h.enqueue("last", record.Policy{CPU: 1})
				h.all()
			})
		})
	}
	t.Run("of another queue", func(t *testing.T) {
		inHall(t, func(h *hall) {
			h.takes["long"] = time.Hour
			h.enqueue("long", record.Policy{CPU: 1})
			h.work("w", worker.Options{})
			h.enqueue("large", record.Policy{CPU: 2, Priority: 100}, func(j *queue.Job) { j.Queue = "other" })
			h.supply(60)
			h.all()
		})
	})
}

// A large job of one queue has its turn before the small ones of another.
func TestTurnAmongQueues(t *testing.T) {
	inHall(t, func(h *hall) {
		other := func(j *queue.Job) { j.Queue = "other" }
		h.supply(2, other, func(j *queue.Job) { j.Priority = 200 })
		h.work("w", worker.Options{Queues: []string{"other", queue.DefaultQueue}})
		time.Sleep(500 * time.Millisecond)
		h.enqueue("large", record.Policy{CPU: 2, Priority: 100})
		h.supply(60, other)
		time.Sleep(100 * time.Second)
		if n := h.before("large", "small-"); n < 0 || n > most {
			t.Errorf("%d jobs have begun before it, want at most %d", n, most)
		}
	})
}

// A large job gets its turn even if it is far behind others that the worker cannot take.
func TestTurnFarBehind(t *testing.T) {
	inHall(t, func(h *hall) {
		h.supply(2, func(j *queue.Job) { j.Priority = 200 })
		h.work("w", worker.Options{})
		time.Sleep(500 * time.Millisecond)
		for range 60 { // more than are listed at a time
			h.enqueue("elsewhere", record.Policy{Labels: []string{"gpu"}, Priority: 150})
		}
		h.enqueue("large", record.Policy{CPU: 2, Priority: 100})
		h.supply(60)
		time.Sleep(100 * time.Second)
		if n := h.before("large", "small-"); n < 0 || n > most {
			t.Errorf("%d jobs have begun before it, want at most %d", n, most)
		}
	})
}

// A job that repeatedly waits for a resource does not take another job's turn.
func TestTurnOfTheNext(t *testing.T) {
	inHall(t, func(h *hall) {
		gpu := []record.Amount{{Name: "gpu", Value: 1}}
		h.supply(2, func(j *queue.Job) { j.Priority = 200 })
		h.work("w", worker.Options{Capacities: map[string]float64{"gpu": 1}})
		time.Sleep(500 * time.Millisecond)
		h.enqueue("first", record.Policy{CPU: 2, Resources: gpu, Priority: 100})
		h.enqueue("large", record.Policy{CPU: 2, Priority: 90})
		for range 20 { // now and then the resource is free
			h.supply(3, func(j *queue.Job) { j.Policy.Resources = gpu })
			h.supply(2)
		}
		time.Sleep(20 * time.Minute)
		if n := h.before("large", "small-"); n < 0 || n > 3*most {
			t.Errorf("%d jobs have begun before it, want some %d", n, most)
		}
		if n := len(h.order()); n != 104 {
			t.Errorf("%d jobs have begun, want all 104", n)
		}
	})
}

// A second large job has its turn after the first.
func TestTurnsFollowEachOther(t *testing.T) {
	inHall(t, func(h *hall) {
		h.supply(2, func(j *queue.Job) { j.Priority = 200 })
		h.work("w", worker.Options{})
		time.Sleep(500 * time.Millisecond)
		h.enqueue("large-1", record.Policy{CPU: 2, Priority: 100})
		h.enqueue("large-2", record.Policy{CPU: 2, Priority: 90})
		h.supply(120)
		time.Sleep(3 * time.Minute)
		one, two := h.before("large-1", "small-"), h.before("large-2", "small-")
		if one < 0 || one > most || two < one || two > one+most {
			t.Errorf("%d small jobs have begun before the first, %d before the second, want at most %d before each", one, two, most)
		}
	})
}

// Large jobs with unreadable records but readable entries do not keep the turn from the next sound one.
func TestTurnAfterUnreadableOnes(t *testing.T) {
	inHall(t, func(h *hall) {
		h.supply(2, func(j *queue.Job) { j.Priority = 200 })
		h.work("w", worker.Options{})
		time.Sleep(500 * time.Millisecond)
		for range 2 {
			h.spoil(h.enqueue("bad", record.Policy{CPU: 2, Priority: 100}))
		}
		h.enqueue("large", record.Policy{CPU: 2, Priority: 90})
		h.supply(120)
		time.Sleep(4 * time.Minute)
		if n := h.before("large", "small-"); n < 0 || n > most {
			t.Errorf("%d small jobs have begun before the sound one, want at most %d", n, most)
		}
		if n := len(h.order()); n != 123 {
			t.Errorf("%d jobs have begun, want all 123 but the spoilt ones", n)
		}
	})
}

// A worker that is stopped while it claims gives its jobs back, and takes none of them again: it first looks for the command
// that it has just given up.
func TestStoppedWhileItClaims(t *testing.T) {
	inHall(t, func(h *hall) {
		h.takes["long"] = time.Hour
		j := h.enqueue("long", record.Policy{CPU: 1})
		h.work("w", worker.Options{})
		time.Sleep(10 * time.Second)
		if n := len(h.order()); n != 1 {
			t.Fatalf("%d jobs have begun, want 1", n)
		}
		stopped := make(chan struct{})
		var once sync.Once
		at := func(q refstore.Query) {
			if q.Partition == "QUEUE/default/ready" {
				once.Do(func() {
					go func() {
						h.stops[len(h.stops)-1]()
						h.stops = h.stops[:len(h.stops)-1]
						close(stopped)
					}()
					time.Sleep(time.Second) // meanwhile the job is given back
				})
			}
		}
		h.store.at.Store(&at)
		<-stopped
		now, err := h.front.Job(context.Background(), j.Queue, j.ID)
		if err != nil || now.Status != queue.Queued || now.Attempts != 1 {
			t.Errorf("the job is %s after %d attempts, %v; want it given back once", now.Status, now.Attempts, err)
		}
	})
}

// spoil writes a record that a later version of e3 might write.
func (h *hall) spoil(j queue.Job) {
	h.Helper()
	ctx := context.Background()
	rec, err := h.store.Get(ctx, refstore.Key{Partition: "QUEUE/" + j.Queue + "/jobs", Sort: j.ID})
	if err != nil {
		h.Fatal(err)
	}
	rec.Value = append([]byte(`{"ofTomorrow":1,`), rec.Value[1:]...)
	if _, err := h.store.Put(ctx, rec); err != nil {
		h.Fatal(err)
	}
}
