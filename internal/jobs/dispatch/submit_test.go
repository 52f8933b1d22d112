package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// cluster is a Submitter that the test plays.
type cluster struct {
	mu        sync.Mutex
	submitted []string
	cancelled []string
	report    func(dispatch.Gone)
	news      chan struct{}
}

func newCluster() *cluster {
	return &cluster{news: make(chan struct{}, 100)}
}

func (c *cluster) Submit(_ context.Context, jobs []queue.Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		c.submitted = append(c.submitted, j.ID)
		c.news <- struct{}{}
	}
	return nil
}

func (c *cluster) Gone(report func(dispatch.Gone)) { c.report = report }

func (c *cluster) Finished(string) {}

func (c *cluster) Cancel(_ context.Context, ids []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = append(c.cancelled, ids...)
	c.news <- struct{}{}
	return nil
}

func (c *cluster) wait(t *testing.T) {
	t.Helper()
	select {
	case <-c.news:
	case <-time.After(suite.Stuck):
		t.Fatal("the cluster was asked nothing")
	}
}

func (c *cluster) count() (submitted, cancelled int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.submitted), len(c.cancelled)
}

// The cluster's report about an ended worker decides how its job has ended, whether or not the job had begun.
func TestGone(t *testing.T) {
	for _, tt := range []struct {
		reason string
		begun  bool
	}{
		{"timeout", false}, {"oom", false}, {"cancelled", false}, {"timeout", true}, {"oom", true},
	} {
		t.Run(fmt.Sprintf("%s, begun %v", tt.reason, tt.begun), func(t *testing.T) {
			c := newCluster()
			r := newRig(t, dispatch.Options{Submitter: c, Queue: "slurm"})
			a := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Queue: "other"} })
			c.wait(t)
			if tt.begun { // by a worker whose lease ends with it
				_, err := r.claim("slurm").Again(t.Context(), "killed", 0)
				r.must(err)
			}
			c.report(dispatch.Gone{ID: c.submitted[0], Reason: tt.reason, Message: "slurm job 12: " + tt.reason})
			<-a.done
			if a.err != nil || a.res.State != record.Error || string(a.res.Reason) != tt.reason || a.res.ExecutionID == "" {
				t.Errorf("got %+v, %v; want an error: %s", a.res, a.err, tt.reason)
			}
			if n, _ := c.count(); n != 1 {
				t.Errorf("it was submitted %d times", n)
			}
		})
	}
}

// A job whose worker was lost gets another worker, until its attempts are used up.
func TestGoneLost(t *testing.T) {
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c, Queue: "slurm"})
	a := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Lost: 1} })
	c.wait(t)
	c.report(dispatch.Gone{ID: c.submitted[0], Reason: "lost", Message: "node n1 is gone"})
	c.wait(t)
	c.report(dispatch.Gone{ID: c.submitted[0]})
	<-a.done
	if a.err != nil || a.res.Reason != executions.ReasonLost {
		t.Errorf("got %+v, %v; want it to be lost", a.res, a.err)
	}
	if n, _ := c.count(); n != 2 || c.submitted[0] != c.submitted[1] {
		t.Errorf("submitted were %q, want the job twice", c.submitted)
	}
	if !slices.Contains(a.told, "lost: node n1 is gone") {
		t.Errorf("its reports are %q", a.told)
	}
}

// A job that the machines of a cluster cannot execute is submitted again, as if its worker was lost, and the task's
// error says what is missing there.
func TestGoneDeclined(t *testing.T) {
	const why = "this machine cannot make closed rooms"
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c, Queue: "slurm"})
	a := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Lost: 1} })
	for range 2 {
		c.wait(t)
		r.must(r.claim("slurm").Decline(t.Context(), why))
		c.report(dispatch.Gone{ID: c.submitted[0]})
	}
	<-a.done
	if a.err != nil || a.res.Reason != executions.ReasonLost || !strings.HasSuffix(a.res.Message, ": "+why) {
		t.Errorf("got %+v, %v; want it to be lost: %s", a.res, a.err, why)
	}
	if n, _ := c.count(); n != 2 {
		t.Errorf("it was submitted %d times, want 2", n)
	}
}

// The end of a worker is ignored if its job has ended or continues elsewhere.
func TestGoneAfterTheEnd(t *testing.T) {
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c})
	a := r.ask(t.Context(), nil)
	c.wait(t)
	l := r.claim()
	r.must(l.Finish(t.Context(), success(l.Job().Execution)))
	<-a.done
	c.report(dispatch.Gone{ID: c.submitted[0], Reason: "cancelled"})
	c.report(dispatch.Gone{ID: "no job"})
	if a.err != nil || a.res.State != record.Success {
		t.Errorf("got %+v, %v", a.res, a.err)
	}
	if j, err := r.q.Job(t.Context(), queue.DefaultQueue, c.submitted[0]); err != nil || j.Status != queue.Succeeded {
		t.Errorf("the job is %s, %v", j.Status, err)
	}
}

// Many cancellations are passed on together.
func TestSubmitterIsToldOfCancellations(t *testing.T) {
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c})
	ctx, cancel := context.WithCancel(t.Context())
	var all []*asked
	for i := range 20 {
		all = append(all, r.ask(ctx, func(req *executions.Request) { req.Name = fmt.Sprint("t", i) }))
	}
	for range all {
		c.wait(t)
	}
	cancel()
	for _, a := range all {
		<-a.done
	}
	for n := 0; n < len(all); {
		c.wait(t)
		_, n = c.count()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.cancelled)
	slices.Sort(c.submitted)
	if !slices.Equal(c.cancelled, c.submitted) {
		t.Errorf("cancelled were %q\nwant %q", c.cancelled, c.submitted)
	}
}

// slow is a store whose answers take some time. It counts the lists of the whole default queue.
type slow struct {
	*mem.Store

	mu        sync.Mutex
	put, list time.Duration  // of jobs
	fails     bool           // lists of jobs
	lists     map[string]int // by what is listed
}

func (s *slow) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *slow) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if r.Key.Partition == "QUEUE/default/jobs" {
		s.mu.Lock()
		put := s.put
		s.mu.Unlock()
		time.Sleep(put)
	}
	return s.Store.Put(ctx, r)
}

func (s *slow) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	what, _ := strings.CutPrefix(q.Partition, "QUEUE/default/")
	if q.Prefix != "" || what != "jobs" && what != "dead" {
		return s.Store.List(ctx, q)
	}
	s.mu.Lock()
	if s.lists == nil {
		s.lists = map[string]int{}
	}
	s.lists[what]++
	fails, list := s.fails, s.list
	s.mu.Unlock()
	return func(yield func(refstore.Record, error) bool) {
		select {
		case <-time.After(list):
		case <-ctx.Done():
			yield(refstore.Record{}, ctx.Err())
			return
		}
		if fails {
			yield(refstore.Record{}, errors.New("the store is away"))
			return
		}
		for r, err := range s.Store.List(ctx, q) {
			if !yield(r, err) {
				return
			}
		}
	}
}

func (s *slow) listed() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists := s.lists
	s.lists = nil
	return lists
}

// A cancelled run with many jobs calls the cluster only a few times, however slow the queue is.
func TestCancellationsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &countingCluster{cluster: &cluster{news: make(chan struct{}, 10000)}}
		s := &slow{Store: mem.New()}
		r := newRigOn(t, s, dispatch.Options{Submitter: c})
		ctx, cancel := context.WithCancel(t.Context())
		var all []*asked
		for i := range 500 {
			all = append(all, r.ask(ctx, func(req *executions.Request) { req.Name = fmt.Sprint("t", i) }))
		}
		time.Sleep(10 * time.Second)
		s.change(func() { s.put = 200 * time.Millisecond })
		began := time.Now()
		cancel()
		for _, a := range all {
			<-a.done
		}
		r.d.Close()
		if submitted, cancelled := c.count(); submitted != 500 || cancelled != 500 {
			t.Errorf("%d were submitted, and %d cancelled", submitted, cancelled)
		}
		if c.calls > 3 {
			t.Errorf("the cluster was asked %d times", c.calls)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// countingCluster counts its calls of Cancel.
type countingCluster struct {
	*cluster
	calls int
}

func (c *countingCluster) Cancel(ctx context.Context, ids []string) error {
	c.calls++
	return c.cluster.Cancel(ctx, ids)
}

// awayCluster does not answer a cancellation until its context ends.
type awayCluster struct{ *cluster }

func (c awayCluster) Cancel(ctx context.Context, ids []string) error {
	<-ctx.Done()
	return c.cluster.Cancel(ctx, ids)
}

// A cluster that does not answer does not keep a run from ending.
func TestCancelWhileTheClusterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		r := newRig(t, dispatch.Options{Submitter: awayCluster{c}})
		var all []*asked
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i+1)*time.Second, cancel)
			all = append(all, r.ask(ctx, func(req *executions.Request) { req.Name = fmt.Sprint("t", i) }))
		}
		began := time.Now()
		for _, a := range all {
			<-a.done
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		r.d.Close()
		if submitted, cancelled := c.count(); submitted != cancelled {
			t.Errorf("%d were submitted, and the cluster got %d cancellations", submitted, cancelled)
		}
	})
}

// A run with many waiting jobs looks once for a worker that takes them, however long that takes.
func TestUnattendedLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: mem.New()}
		told := make(chan string, 100)
		var faults []error
		r := newRigOn(t, s, dispatch.Options{
			Unattended: func(j *queue.Job) { told <- fmt.Sprint(j.Labels) },
			Fault:      func(err error) { faults = append(faults, err) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 100 {
			r.ask(ctx, func(req *executions.Request) {
				req.Name, req.Policy = fmt.Sprint("t", i), &record.Policy{Labels: []string{fmt.Sprint(i % 2)}}
			})
		}
		time.Sleep(time.Second)
		s.listed()
		s.change(func() { s.list, s.fails = 20*time.Second, true })
		time.Sleep(25 * time.Second) // the first look has failed
		synctest.Wait()
		if got := s.listed(); got["jobs"] > 2 || got["dead"] > 0 || len(told) > 0 || len(faults) != 1 {
			t.Errorf("it has listed %v; %d were reported; faults %q", got, len(told), faults)
		}
		s.change(func() { s.fails = false })
		time.Sleep(time.Minute)
		var got []string
		for len(told) > 0 {
			got = append(got, <-told)
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"[0]", "[1]"}) {
			t.Errorf("reported were %q, want each kind", got)
		}
		cancel()
		r.d.Close()
	})
}

// Each set of demands that no worker meets is reported once.
func TestUnattended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 100)
		r := newRig(t, dispatch.Options{Unattended: func(j *queue.Job) { told <- fmt.Sprint(j.Queue, j.Labels, j.Policy.Memory) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 3 {
			r.ask(ctx, func(req *executions.Request) { req.Name = fmt.Sprint("t", i) })
		}
		r.ask(ctx, func(req *executions.Request) { req.Name, req.Policy = "gpu", &record.Policy{Labels: []string{"gpu"}} })
		r.ask(ctx, func(req *executions.Request) { req.Name, req.Policy = "big", &record.Policy{Memory: 64} })
		time.Sleep(time.Minute)
		var got []string
		for len(told) > 0 {
			got = append(got, <-told)
		}
		slices.Sort(got)
		if want := []string{"default[] 0", "default[] 64", "default[gpu] 0"}; !slices.Equal(got, want) {
			t.Errorf("reported were %q, want %q", got, want)
		}
		// A queue with a working worker is attended, however long the queue is.
		l := r.claim()
		busy := r.ask(ctx, func(req *executions.Request) {
			req.Name, req.RunID, req.Task = "late", "run-2", objectstore.Sum([]byte("another"))
		})
		time.Sleep(time.Minute)
		if len(told) > 0 {
			t.Errorf("while a worker works: reported was %q", <-told)
		}
		// When the worker is gone, that is reported as well, though the job has waited for long.
		r.must(l.Finish(ctx, success(l.Job().Execution)))
		time.Sleep(10 * time.Minute)
		if len(told) != 1 {
			t.Errorf("without a worker: %d were reported, want one", len(told))
		}
		cancel()
		<-busy.done
		r.d.Close()
	})
}

// A job that a worker's machine cannot execute waits for another worker. Why is told once, however many jobs there are; what has
// another reason to wait is told nothing about.
func TestDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 100)
		r := newRig(t, dispatch.Options{Declined: func(j *queue.Job) { told <- j.Task + ": " + j.LastError }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 3 {
			r.ask(ctx, func(req *executions.Request) { req.Name, req.RunID = fmt.Sprint("t", i), "run-1" })
		}
		const why = "program fit is another one here"
		for range 3 {
			r.must(r.claim().Decline(ctx, why))
			time.Sleep(time.Minute)
		}
		_, err := r.claim().Again(ctx, "its worker was lost", 0)
		r.must(err)
		r.must(r.claim().Release(ctx))
		time.Sleep(time.Minute)
		var got []string
		for len(told) > 0 {
			got = append(got, <-told)
		}
		if len(got) != 1 || !strings.HasSuffix(got[0], why) {
			t.Errorf("told was %q, want one task and %q", got, why)
		}
		for j, err := range r.q.Jobs(ctx, queue.DefaultQueue) {
			r.must(err)
			if j.Attempts > 1 || j.Declined() != (j.LastError == why) {
				t.Errorf("%s: %d attempts, last error %q, declined %v", j.Task, j.Attempts, j.LastError, j.Declined())
			}
		}
		cancel()
		r.d.Close()
	})
}
