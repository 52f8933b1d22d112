package queue_test

import (
	"errors"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

// overview returns the overview of the default queue.
func (p *peer) overview(t testing.TB) queue.Overview {
	t.Helper()
	o, err := p.Overview(t.Context(), queue.DefaultQueue)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// end finishes a job as failed.
func (p *peer) end(t testing.TB, l *queue.Lease, code int64, reason string) {
	t.Helper()
	o := queue.Outcome{State: queue.Failed, ExecutionID: l.Job().Execution, ExitCode: code, Reason: reason}
	if err := l.Finish(t.Context(), o); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

func tasks(jobs []queue.Job) []string {
	names := []string{}
	for i := range jobs {
		names = append(names, jobs[i].Task)
	}
	return names
}

// TestOverviewOfUnreadable: one unreadable failed job hides no other.
func TestOverviewOfUnreadable(t *testing.T) {
	w := newWorld(t)
	p := w.on("front")
	for n := range 2 {
		p.enqueue(t, job(n))
		p.end(t, p.claim(t), 1, "")
	}
	key := refstore.Key{Partition: "QUEUE/default/finished/" + run, Sort: queue.Identity(job(0))}
	r, err := w.store.Get(t.Context(), key)
	if err == nil {
		r.Value = append([]byte(`{"ofTomorrow":1,`), r.Value[1:]...)
		_, err = w.store.Put(t.Context(), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := p.overview(t)
	want(t, "failed", tasks(o.Dead), []string{"task-1"})
	if len(o.Faults) != 1 || !errors.Is(o.Faults[0], queue.ErrMalformed) {
		t.Errorf("faults: got %v, want the one record", o.Faults)
	}
}

// TestOverviewCounts: each job counts once, in its present state.
func TestOverviewCounts(t *testing.T) {
	w := newWorld(t)
	front, gone := w.on("front"), w.on("back")
	began := w.now()
	front.enqueue(t, job(0))
	gone.claim(t)
	w.kill(gone)
	front.reap(t)
	o := front.overview(t)
	want(t, "of an orphan: ready, delayed, running", []int{o.Ready, o.Delayed, len(o.Running)}, []int{0, 0, 1})
	want(t, "of an orphan: waiting since", o.Waiting, time.Time{})
	depth, err := front.Depth(t.Context(), queue.DefaultQueue)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "what a worker finds", depth, 1)

	due := began.Add(time.Minute)
	front.enqueue(t, job(1, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(due) }))
	o = front.overview(t)
	want(t, "before its time: ready, delayed", []int{o.Ready, o.Delayed}, []int{0, 1})
	w.pass(time.Hour)
	o = front.overview(t)
	want(t, "when its time has come: ready, delayed", []int{o.Ready, o.Delayed}, []int{1, 0})
	if !o.Waiting.Equal(due) {
		t.Errorf("waiting since: got %v, want %v, when it could be claimed", o.Waiting, due)
	}
}

// TestDeadAfterLost: an attempt with a later attempt is no candidate for a retry, even if lost attempts were counted in
// between.
func TestDeadAfterLost(t *testing.T) {
	for name, lose := range map[string]func(*queue.Lease) error{
		"lost":    func(l *queue.Lease) error { _, err := l.Again(t.Context(), "its worker is gone", 0); return err },
		"revoked": func(l *queue.Lease) error { return l.Revoke(t.Context(), "its worker was stopped") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.on("front")
			p.enqueue(t, job(1))
			const times = 2
			for range times {
				if err := lose(p.claim(t)); err != nil {
					t.Fatal(err)
				}
			}
			p.end(t, p.claim(t), 1, "")
			want(t, "failed before it was tried again", len(p.overview(t).Dead), 1)
			p.enqueue(t, job(1, func(j *queue.Job) { j.Attempt = 1 + times + 1 }))
			want(t, "failed while it is tried again", len(p.overview(t).Dead), 0)
			p.finish(t, p.claim(t))
			want(t, "failed after it has succeeded", len(p.overview(t).Dead), 0)
		})
	}
}

// TestSuspended: a task that waits for approval is not shown as failed.
func TestSuspended(t *testing.T) {
	w := newWorld(t)
	p := w.on("front")
	j := p.enqueue(t, job(1))
	p.end(t, p.claim(t), 75, queue.ReasonSuspended)
	w.empty(t)
	want(t, "failed", len(p.overview(t).Dead), 0)
	var transition *queue.TransitionError
	if _, err := p.Retry(t.Context(), j.Queue, j.ID); !errors.As(err, &transition) {
		t.Errorf("retry: got %v, want a TransitionError", err)
	}

	// A record that a crash has left is ignored, and removed in time.
	key := refstore.Key{Partition: "QUEUE/default/dead", Sort: j.ID}
	if _, err := w.store.Put(t.Context(), refstore.Record{Key: key, Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	want(t, "failed, left by a crash", len(p.overview(t).Dead), 0)
	if _, err := p.Clean(t.Context(), w.now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.empty(t)
}

// TestWaitingSince: a lease knows when its job became claimable.
func TestWaitingSince(t *testing.T) {
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	claim := func(what string, since time.Time) *queue.Lease {
		t.Helper()
		l := worker.claim(t)
		if got := l.WaitingSince(); !got.Equal(since) {
			t.Errorf("%s: got %v after the first enqueuing, want %v", what, got.Sub(w.start), since.Sub(w.start))
		}
		return l
	}
	j := front.enqueue(t, job(1))
	w.pass(time.Minute)
	l := claim("enqueued", j.Created.Time())
	w.pass(time.Hour) // it runs
	again, err := l.Again(t.Context(), "lost", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	l = claim("lost", again.AvailableAt.Time())
	w.pass(time.Hour)
	if err := l.Revoke(t.Context(), "its worker was stopped"); err != nil {
		t.Fatal(err)
	}
	back := front.job(t, j.ID).Updated
	w.pass(time.Minute)
	claim("revoked", back.Time())
	w.pass(time.Hour)
	w.kill(worker)
	front.reap(t)
	back = front.job(t, j.ID).Updated
	worker = w.on("back")
	w.pass(time.Minute)
	worker.finish(t, claim("an orphan", back.Time()))

	due := w.now().Add(time.Minute)
	front.enqueue(t, job(2, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(due) }))
	w.pass(time.Hour)
	claim("delayed", due)
}

// TestHeardOf: the first look at a queue shows when a worker on another host was last heard of.
func TestHeardOf(t *testing.T) {
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	front.enqueue(t, job(0))
	worker.claim(t)
	if o := w.on("here").overview(t); len(o.Running) != 1 || o.Running[0].Heard != (refstore.Heard{}) {
		t.Errorf("of one that is known to live: got %+v, want one that runs, and nothing about when", o.Running)
	}
	w.mu.Lock()
	w.silent[worker.pid] = true // no kernel knows it
	w.mu.Unlock()
	o := w.on("elsewhere").overview(t)
	if len(o.Running) != 1 || o.Running[0].Over || o.Running[0].Heard.Lease != ttl || time.Since(o.Running[0].Heard.At) > ttl {
		t.Errorf("of one elsewhere: got %+v, want one that was heard of a moment ago, with a lease of %v", o.Running, ttl)
	}
}
