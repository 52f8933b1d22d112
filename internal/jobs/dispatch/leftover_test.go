package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/refstore/mem"
)

// leave makes another run leave a job behind; it has the product of a request from ask, unless change says otherwise.
func (r *rig) leave(name string, change func(*executions.Request)) queue.Job {
	r.Helper()
	req := &executions.Request{
		Task: objectstore.Sum([]byte("task")), Inputs: []objectstore.Hash{objectstore.Sum([]byte("input"))}, Policy: &record.Policy{},
		Attempt: 1, RunID: "run-0", Workspace: "dev", Name: "t",
	}
	if change != nil {
		change(req)
	}
	j := dispatch.Job(req, name)
	j, err := r.q.Enqueue(r.Context(), &j)
	r.must(err)
	return j
}

// of is the present state of a job.
func (r *rig) of(j queue.Job) queue.Job {
	r.Helper()
	j, err := r.q.Job(r.Context(), j.Queue, j.ID)
	r.must(err)
	return j
}

// makes lets a worker complete the request by the run's own job.
func (a *asked) makes(queues ...string) {
	a.Helper()
	l := a.claim(queues...)
	if got := l.Job(); got.Run != a.req.RunID {
		a.Fatalf("the job of %s is made, and not the run's own", got.Run)
	}
	a.must(l.Finish(a.Context(), success(l.Job().Execution)))
	<-a.done
	if a.err != nil || a.res.ExecutionID != l.Job().Execution {
		a.Errorf("got %+v, %v; want the own job's result", a.res, a.err)
	}
}

// No request waits for a dead run's queued job: an equal request gets its own job, with its own demands and its own
// worker.
func TestLeftQueued(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster bool
		change  func(*executions.Request)
		retried bool // by a person
	}{
		"of the same workspace":             {change: func(req *executions.Request) { req.Workspace = "prod" }},
		"of another":                        {},
		"with other demands":                {change: func(req *executions.Request) { req.Policy = &record.Policy{Labels: []string{"gpu"}, Memory: 1 << 50} }},
		"a cluster, of another":             {cluster: true},
		"a cluster, retried":                {cluster: true, retried: true, change: func(req *executions.Request) { req.Workspace = "prod" }},
		"a cluster, retried, other demands": {cluster: true, retried: true, change: func(req *executions.Request) { req.Policy = &record.Policy{Memory: 1 << 50} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, c, in := dispatch.Options{}, newCluster(), queue.DefaultQueue
				if tt.cluster {
					o.Submitter, o.Queue, in = c, "slurm", "slurm"
				}
				r := newRig(t, o)
				leftover := r.leave(in, tt.change)
				if tt.retried {
					r.must(r.claim(in).Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: "e", ExitCode: 1}))
					_, err := r.q.Retry(t.Context(), in, leftover.ID)
					r.must(err)
				}
				a := r.ask(t.Context(), nil)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := r.of(leftover); got.Status != queue.Cancelled || !strings.Contains(got.Outcome.Message, "me@host") {
					t.Errorf("the leftover job is %s: %+v", got.Status, got.Outcome)
				}
				if tt.cluster && (len(c.submitted) != 1 || c.submitted[0] == leftover.ID) {
					t.Errorf("submitted were %q, want the own job", c.submitted)
				}
				a.makes(in)
				r.d.Close()
			})
		})
	}
}

// Jobs that live runs wait for are left alone, and so are retried jobs.
func TestLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dispatch.Options{})
		elsewhere := r.leave("", func(req *executions.Request) { req.Task = objectstore.Sum([]byte("other")) })
		retried := r.leave("", func(req *executions.Request) { req.Workspace, req.Task = "prod", objectstore.Sum([]byte("another")) })
		for range 2 {
			l := r.claim()
			r.must(l.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: "e", ExitCode: 1}))
		}
		for _, j := range []queue.Job{elsewhere, retried} {
			_, err := r.q.Retry(t.Context(), j.Queue, j.ID)
			r.must(err)
		}
		_, err := r.q.Reprioritise(t.Context(), elsewhere.Queue, elsewhere.ID, -1)
		r.must(err)
		_, err = r.q.Reprioritise(t.Context(), retried.Queue, retried.ID, -1)
		r.must(err)
		a := r.ask(t.Context(), nil)
		time.Sleep(time.Second)
		a.makes()
		for _, j := range []queue.Job{elsewhere, retried} {
			if got := r.of(j); got.Status != queue.Queued {
				t.Errorf("the job of %s is %s", j.Workspace, got.Status)
			}
		}
		r.d.Close()
	})
}

// A running job is waited for, and is the answer.
func TestLeftRunning(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome queue.Outcome
		answer  bool
	}{
		"success": {queue.Outcome{State: queue.Succeeded, Output: objectstore.Sum([]byte("out")).String(), Size: 3, Duration: time.Second}, true},
		"failed":  {queue.Outcome{State: queue.Failed, ExitCode: 4}, true},
		"timeout": {queue.Outcome{State: queue.TimedOut, Reason: "timeout"}, false},
		"oom":     {queue.Outcome{State: queue.Failed, Reason: "oom"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				r := newRig(t, dispatch.Options{Submitter: c})
				r.leave("", func(req *executions.Request) { req.Policy = &record.Policy{Labels: []string{"gpu"}} })
				l := r.claim()
				a := r.ask(t.Context(), nil)
				a.wait("claimed")
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if len(c.submitted) > 0 {
					t.Errorf("submitted were %q while it runs", c.submitted)
				}
				id := l.Job().Execution
				tt.outcome.ExecutionID = id
				if tt.outcome.State != queue.Succeeded {
					res := executions.Result{ExecutionID: id, State: record.Error, Reason: executions.Reason(tt.outcome.Reason), ExitCode: tt.outcome.ExitCode}
					if res.Reason == "" {
						res.State = record.Failed
					}
					r.settler.put(res)
				}
				r.must(l.Finish(t.Context(), tt.outcome))
				if !tt.answer {
					a.makes()
				}
				<-a.done
				if tt.answer && (a.err != nil || a.res.ExecutionID != id || a.res.ExitCode != tt.outcome.ExitCode) {
					t.Errorf("got %+v, %v; want the leftover job's result", a.res, a.err)
				}
				r.d.Close()
			})
		})
	}
}

// A job without a live worker is not waited for, even if a worker could continue it.
func TestLeftAndLost(t *testing.T) {
	for name, lose := range map[string]func(*rig, *queue.Lease, func()){
		"given up": func(r *rig, l *queue.Lease, _ func()) {
			_, err := l.Again(r.Context(), "it was unplugged", time.Hour)
			r.must(err)
		},
		"given back":    func(r *rig, l *queue.Lease, _ func()) { r.must(l.Release(r.Context())) },
		"its worker":    func(_ *rig, _ *queue.Lease, die func()) { die() },
		"it is removed": func(r *rig, l *queue.Lease, _ func()) { r.remove(l.Job()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				r := newRig(t, dispatch.Options{Submitter: c})
				leftover := r.leave("", func(req *executions.Request) { req.Policy = &record.Policy{Labels: []string{"gpu"}, Lost: 3} })
				other := *r
				var die func()
				other.q, die = r.open("another worker")
				l := other.claim()
				a := r.ask(t.Context(), nil)
				a.wait("claimed")
				time.Sleep(10 * time.Second)
				lose(&other, l, die)
				select {
				case <-c.news:
				case <-time.After(3 * time.Minute):
					t.Fatalf("it is still waited for: %+v", r.of(leftover))
				}
				if c.submitted[0] == leftover.ID {
					t.Error("the leftover job was submitted")
				}
				a.makes()
				r.d.Close()
			})
		})
	}
}

// A request that finds a job that has already begun gets reports from then on.
func TestLeftAndLostBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dispatch.Options{})
		r.leave("", func(req *executions.Request) { req.Policy = &record.Policy{Lost: 3} })
		_, err := r.claim().Again(t.Context(), "it was unplugged", 0)
		r.must(err)
		l := r.claim()
		a := r.ask(t.Context(), nil)
		a.wait("claimed")
		r.must(l.Finish(t.Context(), success(l.Job().Execution)))
		<-a.done
		if want := []string{"claimed by worker", "started"}; !slices.Equal(a.told, want) {
			t.Errorf("its reports are %q, want %q", a.told, want)
		}
		r.d.Close()
	})
}

// An old result of another run is recorded for lookups. It is no answer to a request whose lookup did not find it.
func TestLeftAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dispatch.Options{})
		r.leave("", nil)
		l := r.claim()
		r.ask(t.Context(), func(req *executions.Request) { req.Name, req.Task = "first", objectstore.Sum([]byte("first")) }).makes()
		r.must(l.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: l.Job().Execution, ExitCode: 4}))
		time.Sleep(time.Hour)
		r.ask(t.Context(), nil).makes()
		r.d.Close()
	})
}

// A job that has ended since the lookup is an answer.
func TestLeftEndsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: mem.New()}
		r := newRigOn(t, s, dispatch.Options{})
		r.leave("", nil)
		l := r.claim()
		r.leave("", func(req *executions.Request) {
			req.Workspace, req.RunID, req.Task = "prod", "run-00", objectstore.Sum([]byte("another"))
		})
		s.change(func() { s.put = time.Minute }) // to cancel this takes long
		a := r.ask(t.Context(), nil)
		time.Sleep(time.Second)
		s.change(func() { s.put = 0 })
		r.must(l.Finish(t.Context(), success(l.Job().Execution)))
		<-a.done
		if a.err != nil || a.res.ExecutionID != l.Job().Execution {
			t.Errorf("got %+v, %v; want the leftover job's result", a.res, a.err)
		}
		r.d.Close()
	})
}
