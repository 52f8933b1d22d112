package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/mem"
)

// tend makes a process tend the default queue until the test ends, or stop is called.
func (p *peer) tend(t *testing.T) (stop func()) { return p.tending(t, p.Tend) }

// tending is tend, with Tend or FollowCancels.
func (p *peer) tending(t *testing.T, look func(context.Context, []string, func(error)) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- look(ctx, []string{queue.DefaultQueue}, func(err error) { t.Error(err) }) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("tend: got %v, want context.Canceled", err)
		}
	}
}

// Jobs of a worker that is known to be gone, and of one that is only silent, become orphans in time.
func TestOrphansInTime(t *testing.T) {
	for name, tt := range map[string]struct {
		polled bool
		gone   bool // its kernel knows
		most   time.Duration
	}{
		"killed here":           {false, true, 2 * time.Second},
		"silent":                {false, false, ttl + 3*time.Second},
		"killed here, polled":   {true, true, 8 * time.Second},
		"silent, and is polled": {true, false, ttl + 14*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.onStore("front", w.store, queue.Options{Polled: tt.polled}), w.onStore("back", w.store, queue.Options{Polled: tt.polled})
				stop := front.tend(t)
				defer stop()
				j := front.enqueue(t, job(1))
				worker.claim(t)
				time.Sleep(time.Minute)
				if orphaned(front.job(t, j.ID)) {
					t.Fatal("the job of a worker that lives is an orphan")
				}
				w.cut(worker, tt.gone)
				began := time.Now()
				for !orphaned(front.job(t, j.ID)) {
					time.Sleep(100 * time.Millisecond)
					if took := time.Since(began); took > tt.most {
						t.Fatalf("no orphan after %v", took)
					}
				}
				// The time counts from the last renewal, which may be a third of a lease earlier.
				if took := time.Since(began); !tt.gone && took < ttl-ttl/3 {
					t.Errorf("an orphan after %v, before its lease was over", took)
				}
			})
		})
	}
}

func orphaned(j queue.Job) bool { return j.Orphaned() }

// cut makes a process's calls fail; gone says that others on its host know that it is gone.
func (w *world) cut(p *peer, gone bool) {
	p.wire.hook(func(int, bool, string) error { return errGone })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[p.pid] = true
	w.dead[p.pid] = gone
}

// A worker that has lost its session learns that from the end of Tend.
func TestTendEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		worker := w.on("back")
		ended := make(chan error, 1)
		go func() { ended <- worker.Tend(t.Context(), []string{queue.DefaultQueue}, func(error) {}) }()
		time.Sleep(time.Minute)
		w.cut(worker, false)
		began := time.Now()
		if err := <-ended; !errors.Is(err, refstore.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if took := time.Since(began); took > ttl {
			t.Errorf("it took %v, more than a lease", took)
		}
		if _, err := worker.Claim(context.Background(), worker.want()); err != nil && !errors.Is(err, errGone) && !errors.Is(err, refstore.ErrLost) {
			t.Errorf("claim after that: got %v", err)
		}
	})
}

// Tend completes what crashes have interrupted, and removes jobs that finished long ago.
func TestTendRepairsAndCleans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		keep := queue.Options{Keep: 2 * time.Hour}
		s := &situation{w: w, front: w.onStore("front", w.store, keep), worker: w.on("back")}
		stops := []func(){s.front.tend(t), w.onStore("else", w.store, keep).tend(t)}
		time.Sleep(time.Minute)
		s.tear(t, "put ready", func(p *peer) error { _, err := p.Enqueue(t.Context(), job(1)); return err })
		time.Sleep(3 * time.Minute)
		w.sound(t)
		l := s.worker.claim(t)
		s.worker.finish(t, l)
		time.Sleep(time.Hour)
		done := l.Job()
		if _, err := s.front.Job(t.Context(), queue.DefaultQueue, done.ID); err != nil {
			t.Errorf("after an hour: %v", err)
		}
		time.Sleep(14 * time.Hour)
		if _, err := s.front.Job(t.Context(), queue.DefaultQueue, done.ID); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("after fifteen hours: got %v, want ErrNotFound", err)
		}
		if got := w.sorts(t, "holders"); len(got) != 1 { // the worker's, which is alive
			t.Errorf("holders: got %q, want one", got)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// Of many processes that tend a polled queue, about one at a time repairs it.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		const processes = 10
		var all []*peer
		for range processes {
			p := w.onStore("host", w.store, queue.Options{Polled: true})
			defer p.tend(t)()
			all = append(all, p)
		}
		time.Sleep(time.Minute)
		for _, p := range all {
			p.wire.counted()
		}
		time.Sleep(time.Hour)
		lists := 0
		for _, p := range all {
			lists += p.wire.counted()["list jobs"]
		}
		if lists < 20 || lists > 90 {
			t.Errorf("%d processes repaired %d times in an hour, want some 60 times", processes, lists)
		}
	})
}

// A worker learns of the cancellation of its running job at once if the store notifies, otherwise within the polling
// interval.
func TestCancelledInTime(t *testing.T) {
	for name, polled := range map[string]bool{"told": false, "polled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: polled})
				defer worker.tend(t)()
				j := front.enqueue(t, job(1))
				l := worker.claim(t)
				time.Sleep(time.Minute)
				began := time.Now()
				if _, err := front.Cancel(t.Context(), j.Queue, j.ID, "me", "why"); err != nil {
					t.Fatal(err)
				}
				<-l.CancelRequested()
				if took := time.Since(began); took > 0 && !polled || took > 3*time.Second {
					t.Errorf("told after %v", took)
				}
			})
		})
	}
}

// A waiting worker is woken at once if the store notifies, otherwise within the polling interval, and when a delayed
// job is due.
func TestWokenInTime(t *testing.T) {
	for name, tt := range map[string]struct {
		polled bool
		most   time.Duration
	}{
		"told":   {false, time.Millisecond},
		"polled": {true, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: tt.polled})
				ctx, cancel := context.WithCancel(t.Context())
				wake, err := worker.Watch(ctx, queue.DefaultQueue)
				if err != nil {
					t.Fatal(err)
				}
				took := func(what string, since time.Time) {
					t.Helper()
					for {
						l, err := worker.Claim(ctx, worker.want())
						if err != nil {
							t.Fatal(err)
						}
						if l != nil {
							worker.finish(t, l)
							break
						}
						<-wake
					}
					if d := time.Since(since); d < 0 || d > tt.most {
						t.Errorf("%s: after %v, want at most %v", what, d, tt.most)
					}
				}
				time.Sleep(time.Minute) // by then it looks rarely
				front.enqueue(t, job(1))
				took("enqueued", time.Now())
				time.Sleep(time.Minute)
				at := time.Now().Add(10 * time.Second)
				front.enqueue(t, job(2, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(at) }))
				took("delayed", at)
				cancel()
				for range wake {
				}
			})
		})
	}
}

// An undecodable entry keeps no job waiting: a listing replaces it from its job, or removes it. If that fails, it is
// not tried again with each listing.
func TestMalformedEntries(t *testing.T) {
	spoil := func(t *testing.T, w *world, what, id string) {
		t.Helper()
		for _, sort := range w.sorts(t, what) {
			if !strings.HasSuffix(sort, id) {
				continue
			}
			r, err := w.store.Get(t.Context(), refstore.Key{Partition: "QUEUE/default/" + what, Sort: sort})
			if err != nil {
				t.Fatal(err)
			}
			r.Value = []byte("{")
			if _, err := w.store.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Fatalf("job %s has no entry in %s", id, what)
	}
	for name, tt := range map[string]struct {
		edit   func(w *world) func(*queue.Job)
		what   string
		orphan bool
	}{
		"ready":  {func(*world) func(*queue.Job) { return priority(0) }, "ready", false},
		"orphan": {func(*world) func(*queue.Job) { return priority(0) }, "ready", true},
		"delayed": {func(w *world) func(*queue.Job) {
			return func(j *queue.Job) { j.AvailableAt = queue.TimeOf(w.now().Add(time.Second)) }
		}, "delayed", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			front, worker := w.on("front"), w.on("back")
			j := front.enqueue(t, job(1, tt.edit(w)))
			if tt.orphan {
				gone := w.on("back")
				gone.claim(t)
				w.kill(gone)
				front.reap(t)
			}
			spoil(t, w, tt.what, j.ID)
			front.repair(t) // it sees that there is one
			w.pass(3 * time.Second)
			l := worker.claim(t)
			want(t, "task", l.Job().Task, "task-1")
			worker.finish(t, l)
			w.empty(t)
		})
	}
	t.Run("of no job", func(t *testing.T) {
		w := newWorld(t)
		front, worker := w.on("front"), w.on("back")
		j := front.enqueue(t, job(1))
		spoil(t, w, "ready", j.ID)
		r, err := w.store.Get(t.Context(), refstore.Key{Partition: "QUEUE/default/jobs", Sort: j.ID})
		if err == nil {
			err = w.store.Delete(t.Context(), r.Key, r.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
		worker.claimNone(t)
		w.empty(t)
	})
	for name, fails := range map[string]bool{"it cannot be replaced": true, "its job cannot be read either": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			front, worker := w.on("front"), w.on("back")
			j := front.enqueue(t, job(1))
			spoil(t, w, "ready", j.ID)
			front.enqueue(t, job(2))
			if fails {
				worker.wire.hook(func(_ int, after bool, op string) error {
					if op == "put ready" {
						return errFault
					}
					return nil
				})
				if _, err := worker.Claim(t.Context(), worker.want()); !errors.Is(err, errFault) {
					t.Errorf("got %v, want an error that the entry cannot be replaced", err)
				}
			} else {
				r, err := w.store.Get(t.Context(), refstore.Key{Partition: "QUEUE/default/jobs", Sort: j.ID})
				if err != nil {
					t.Fatal(err)
				}
				r.Value = []byte("{")
				if _, err := w.store.Put(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			l := worker.claim(t)
			want(t, "task", l.Job().Task, "task-2")
			worker.finish(t, l)
			worker.wire.counted()
			for range 10 {
				worker.claimNone(t)
			}
			if calls := worker.wire.counted(); calls["get jobs"] > 0 || calls["list ready"] < 5 {
				t.Errorf("got %v, want listings, and no other look at the job", calls)
			}
			if fails {
				worker.wire.hook(nil)
				w.pass(2 * time.Minute)
				want(t, "later", worker.claim(t).Job().Task, "task-1")
			}
		})
	}
}

// An unreadable record affects no other.
func TestMalformedRecords(t *testing.T) {
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	ids := make(map[int]string)
	for n := range 4 {
		ids[n] = front.enqueue(t, job(n, priority(int64(-n)))).ID
	}
	spoil := func(partition, id string) {
		t.Helper()
		r, err := w.store.Get(t.Context(), refstore.Key{Partition: "QUEUE/default/" + partition, Sort: id})
		if err != nil {
			t.Fatal(err)
		}
		r.Value = []byte(`{"id":"of the future","color":"green"}`)
		if _, err := w.store.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	spoil("jobs", ids[0]) // and its entry says that it can be claimed
	l := worker.claim(t)
	want(t, "first", l.Job().Task, "task-1")
	worker.finish(t, l)
	spoil("finished/"+run, ids[1])
	gone := w.on("back")
	lost := gone.claim(t)
	want(t, "second", lost.Job().Task, "task-2")
	w.kill(gone)
	if err := front.Reap(t.Context(), queue.DefaultQueue); !errors.Is(err, queue.ErrMalformed) {
		t.Errorf("reap: got %v, want ErrMalformed", err)
	}
	front.reap(t) // it is reported once
	if !orphaned(front.job(t, ids[2])) {
		t.Error("the job of a worker that was killed is no orphan")
	}
	if err := front.Repair(t.Context(), queue.DefaultQueue); !errors.Is(err, queue.ErrMalformed) {
		t.Errorf("repair: got %v, want ErrMalformed", err)
	}
	o, err := front.Overview(t.Context(), queue.DefaultQueue)
	if err != nil || len(o.Faults) != 1 || len(o.Running) != 1 {
		t.Errorf("overview: got %+v, %v, want one fault and one orphan", o, err)
	}
	w.pass(3 * time.Second)
	for _, task := range []string{"task-2", "task-3"} {
		l := worker.claim(t)
		want(t, "next", l.Job().Task, task)
		worker.finish(t, l)
	}
	worker.claimNone(t)
	if n, err := front.Clean(t.Context(), w.now().Add(time.Hour)); err != nil || n != 2 {
		t.Errorf("clean: got %d, %v, want 2", n, err)
	}
}
