package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/dispatch"
	"e3/internal/queue"
	"e3/internal/record"
	"e3/objectstore"
)

// cluster is a Submitter that is played by the test.
type cluster struct {
	mu        sync.Mutex
	submitted []string
	cancelled []string
	gone      chan dispatch.Gone
	news      chan struct{}
}

func newCluster() *cluster {
	return &cluster{gone: make(chan dispatch.Gone), news: make(chan struct{}, 100)}
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

func (c *cluster) Gone(ctx context.Context) (<-chan dispatch.Gone, error) {
	out := make(chan dispatch.Gone)
	go func() {
		defer close(out)
		for {
			select {
			case g := <-c.gone:
				out <- g
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

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
	case <-time.After(30 * time.Second):
		t.Fatal("the cluster was asked nothing")
	}
}

func (c *cluster) count() (submitted, cancelled int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.submitted), len(c.cancelled)
}

// What the cluster says of a worker that has ended is how the job has, whether or not it had begun.
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
			if tt.begun { // by one whose lease ends with it
				_, err := r.claim("slurm").Again(t.Context(), "killed", 0)
				r.must(err)
			}
			c.gone <- dispatch.Gone{ID: c.submitted[0], Reason: tt.reason, Message: "slurm job 12: " + tt.reason}
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

// One whose worker was lost gets another, until its attempts are used up.
func TestGoneLost(t *testing.T) {
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c, Queue: "slurm"})
	a := r.ask(t.Context(), func(req *executions.Request) { req.Policy = &record.Policy{Lost: 1} })
	c.wait(t)
	c.gone <- dispatch.Gone{ID: c.submitted[0], Reason: "lost", Message: "node n1 is gone"}
	c.wait(t)
	c.gone <- dispatch.Gone{ID: c.submitted[0]}
	<-a.done
	if a.err != nil || a.res.Reason != executions.ReasonLost {
		t.Errorf("got %+v, %v; want it to be lost", a.res, a.err)
	}
	if n, _ := c.count(); n != 2 || c.submitted[0] != c.submitted[1] {
		t.Errorf("submitted were %q, want the job twice", c.submitted)
	}
	if !slices.Contains(a.told, "lost: node n1 is gone") {
		t.Errorf("it was told %q", a.told)
	}
}

// A worker that has finished its job, or whose job goes on elsewhere, is nobody's concern.
func TestGoneAfterTheEnd(t *testing.T) {
	c := newCluster()
	r := newRig(t, dispatch.Options{Submitter: c})
	a := r.ask(t.Context(), nil)
	c.wait(t)
	l := r.claim()
	r.must(l.Finish(t.Context(), success(l.Job().Execution)))
	<-a.done
	c.gone <- dispatch.Gone{ID: c.submitted[0], Reason: "cancelled"}
	c.gone <- dispatch.Gone{ID: "no job"}
	if a.err != nil || a.res.State != record.Success {
		t.Errorf("got %+v, %v", a.res, a.err)
	}
	if j, err := r.q.Job(t.Context(), queue.DefaultQueue, c.submitted[0]); err != nil || j.Status != queue.Succeeded {
		t.Errorf("the job is %s, %v", j.Status, err)
	}
}

// Many cancellations are handed over together.
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

// A person is told once where nobody takes jobs, by what these ask for.
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
			t.Errorf("told were %q, want %q", got, want)
		}
		// A queue at which somebody works is attended, however long it is.
		l := r.claim()
		busy := r.ask(ctx, func(req *executions.Request) {
			req.Name, req.RunID, req.Task = "late", "run-2", objectstore.Sum([]byte("another"))
		})
		time.Sleep(time.Minute)
		if len(told) > 0 {
			t.Errorf("while somebody works: told was %q", <-told)
		}
		// When he is gone, that is told as well, though the job has waited for long.
		r.must(l.Finish(ctx, success(l.Job().Execution)))
		time.Sleep(10 * time.Minute)
		if len(told) != 1 {
			t.Errorf("when nobody works any more: %d were told, want one", len(told))
		}
		cancel()
		<-busy.done
		r.d.Close()
	})
}
