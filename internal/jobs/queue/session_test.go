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

// unanswered makes a process claim a job without learning it: the put of the job takes effect, but the response is lost
// and the read that would reveal the effect fails.
func (p *peer) unanswered(t *testing.T, claim func() error) {
	t.Helper()
	cut := false
	p.wire.hook(func(_ int, after bool, op string) error {
		if cut = cut || op == "put jobs" && after; cut && strings.HasSuffix(op, " jobs") {
			return errFault
		}
		return nil
	})
	if err := claim(); !errors.Is(err, errFault) {
		t.Fatalf("claim: got %v, want a fault", err)
	}
	p.wire.hook(nil)
}

// A worker finds a job that it has claimed without knowing it. The worker is alive, so no other process can tell that
// it does not work on the job.
func TestClaimWithoutAnswer(t *testing.T) {
	for name, find := range map[string]func(t *testing.T, p *peer, j queue.Job){
		"reap":   func(t *testing.T, p *peer, _ queue.Job) { p.reap(t) },
		"repair": func(t *testing.T, p *peer, _ queue.Job) { p.repair(t) },
		"only": func(t *testing.T, p *peer, j queue.Job) {
			l, err := p.Only(t.Context(), j.Queue, j.ID, p.want())
			if err != nil || l == nil {
				t.Fatalf("only: got %v, %v, want the job", l, err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"tend": func(t *testing.T, p *peer, _ queue.Job) {
			defer p.tend(t)()
			time.Sleep(2 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.on("front"), w.on("back")
				j := front.enqueue(t, job(1))
				worker.unanswered(t, func() error { _, err := worker.Claim(t.Context(), worker.want()); return err })
				front.reap(t)
				front.repair(t)
				if got := front.job(t, j.ID); got.Status != queue.Running || got.Orphaned() {
					t.Fatalf("to others it is %s, orphaned: %v", got.Status, got.Orphaned())
				}
				find(t, worker, j)
				if !orphaned(front.job(t, j.ID)) {
					t.Fatal("it is no orphan")
				}
				w.sound(t)
				l := worker.claim(t)
				want(t, "adopted", l.Adopted(), true)
				worker.reap(t)
				worker.repair(t)
				worker.finish(t, l)
				w.empty(t)
			})
		})
	}
}

// A claim in progress does not count as one without an answer.
func TestClaimUnderWay(t *testing.T) {
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	first, second := front.enqueue(t, job(1)), front.enqueue(t, job(2))
	worker.unanswered(t, func() error {
		_, err := worker.Only(t.Context(), first.Queue, first.ID, worker.want())
		return err
	})
	worker.wire.hook(func(_ int, after bool, op string) error {
		if op != "put jobs" || !after {
			return nil
		}
		worker.wire.hook(nil)
		worker.reap(t)
		worker.repair(t)
		return nil
	})
	l, err := worker.Only(t.Context(), second.Queue, second.ID, worker.want())
	if err != nil || l == nil {
		t.Fatalf("got %v, %v, want the job", l, err)
	}
	want(t, "is the other an orphan", orphaned(front.job(t, first.ID)), true)
	worker.finish(t, l)
	worker.finish(t, worker.claim(t))
	w.empty(t)
}

// A worker that ends without jobs leaves nothing for others to clean up.
func TestEndLeavesNothingToCleanUp(t *testing.T) {
	for name, look := range map[string]func(*peer) func(context.Context, []string, func(error)) error{
		"tend": func(p *peer) func(context.Context, []string, func(error)) error { return p.Tend },
		"follow cancels": func(p *peer) func(context.Context, []string, func(error)) error {
			return p.FollowCancels
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.on("front"), w.on("back")
				elsewhere := job(2, func(j *queue.Job) { j.Queue = "else" })
				both := worker.want()
				both.Queues = append(both.Queues, "else")
				begin := func() (stop func()) { return worker.tending(t, look(worker)) }
				holders := func(what string, expect int) {
					t.Helper()
					want(t, what, len(w.sorts(t, "holders")), expect)
				}
				stop := begin()
				front.enqueue(t, job(1))
				front.enqueue(t, elsewhere)
				a, b := worker.claimAs(t, both), worker.claimAs(t, both)
				worker.finish(t, a)
				worker.finish(t, b)
				holders("while it may claim", 1)
				stop()
				holders("when it has ended", 0)
				for range w.store.List(t.Context(), refstore.Query{Partition: "QUEUE/else/holders"}) {
					t.Error("it is a holder in a queue that it was led to")
				}
				front.wire.counted()
				front.reap(t)
				want(t, "reap", front.wire.counted(), map[string]int{"list holders": 1})

				// It may claim again. A process that ends with jobs is watched.
				stop = begin()
				j := front.enqueue(t, job(3))
				worker.claim(t)
				stop()
				holders("with a job", 1)
				w.kill(worker)
				front.reap(t)
				want(t, "is it an orphan", orphaned(front.job(t, j.ID)), true)
				holders("when it was cleaned up", 0)
			})
		})
	}
}

// A session that does not know whether it has a job leaves its record.
func TestUnknownJobsAreLookedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		front, worker := w.on("front"), w.on("back")
		j := front.enqueue(t, job(1))
		stop := worker.tending(t, worker.FollowCancels)
		worker.unanswered(t, func() error { _, err := worker.Claim(t.Context(), worker.want()); return err })
		stop()
		want(t, "holders", len(w.sorts(t, "holders")), 1)
		w.kill(worker)
		front.reap(t)
		want(t, "is it an orphan", orphaned(front.job(t, j.ID)), true)
	})
}

// A process that claims while its holder record is about to be removed is watched.
func TestClaimWhileLeaving(t *testing.T) {
	for name, at := range map[string]string{
		"a claim under way": "put jobs", "a claim that begins": "delete holders", "a claim that begins earlier": "get holders",
	} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				front, worker := w.on("front"), w.on("back")
				front.enqueue(t, job(1))
				worker.finish(t, worker.claim(t))
				j := front.enqueue(t, job(2))
				stop := worker.tending(t, worker.FollowCancels)
				claimed := make(chan error, 1)
				only := func() {
					l, err := worker.Only(t.Context(), j.Queue, j.ID, worker.want())
					if err == nil && l == nil {
						err = errNothing
					}
					claimed <- err
				}
				begun := make(chan struct{})
				met := false
				worker.wire.hook(func(_ int, after bool, op string) error {
					switch {
					case met || op != at || after != late:
						if met && op == "get jobs" && !after {
							close(begun)
						}
						return nil
					case at == "put jobs":
						met = true
						stop()
					default:
						met = true
						go only()
						<-begun
					}
					return nil
				})
				if at == "put jobs" {
					only()
				} else {
					stop()
				}
				if !met {
					t.Fatal("it does not leave")
				}
				if err := <-claimed; err != nil {
					t.Fatal(err)
				}
				worker.wire.hook(nil)
				want(t, "holders", len(w.sorts(t, "holders")), 1)
				w.kill(worker)
				front.reap(t)
				want(t, "is it an orphan", orphaned(front.job(t, j.ID)), true)
			})
		}
	}
}

// FollowCancels learns of cancellations in time, in any queue, and makes no other requests.
func TestFollowCancels(t *testing.T) {
	for name, tt := range map[string]struct {
		polled bool
		queue  string
		most   time.Duration
	}{
		"told":          {false, "", 0},
		"polled":        {true, "", 3 * time.Second},
		"another queue": {false, "else", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: tt.polled})
				stop := worker.tending(t, worker.FollowCancels)
				time.Sleep(time.Minute)
				want(t, "without a job", len(worker.wire.counted()), 0)
				j := front.enqueue(t, job(1, func(j *queue.Job) { j.Queue = tt.queue }))
				l, err := worker.Only(t.Context(), j.Queue, j.ID, worker.want())
				if err != nil || l == nil {
					t.Fatalf("got %v, %v, want the job", l, err)
				}
				worker.wire.counted()
				time.Sleep(time.Minute)
				calls := worker.wire.counted()
				if n := calls["get cancel"]; len(calls) != 1 || n < 20 || n > 45 {
					t.Errorf("in a minute: got %v, want some 30 times what would tell of its job's end", calls)
				}
				began := time.Now()
				if _, err := front.Cancel(t.Context(), j.Queue, j.ID, "me", "why"); err != nil {
					t.Fatal(err)
				}
				<-l.CancelRequested()
				if took := time.Since(began); took > tt.most {
					t.Errorf("notified after %v, want at most %v", took, tt.most)
				}
				worker.wire.counted()
				time.Sleep(time.Minute)
				want(t, "once it is notified", len(worker.wire.counted()), 0)
				worker.finish(t, l)
				stop()
				want(t, "cancel", len(w.sorts(t, "cancel")), 0)
			})
		})
	}
}

// Holders are listed by name only; a process reads only the sessions of those that it watches.
func TestHoldersAreListedByName(t *testing.T) {
	w := newWorld(t)
	front := w.on("front")
	for n := range 20 {
		front.enqueue(t, job(n))
		w.on("back").claim(t)
	}
	front.wire.counted()
	front.reap(t)
	want(t, "reap", front.wire.counted(), map[string]int{"list holders": 1})
	if q := front.wire.listed["holders"]; !q.KeysOnly {
		t.Errorf("holders are listed with what they say: %+v", q)
	}
}

// If the writer's clock is ahead, a job waits no longer than the intended delay, counted from its first sight.
func TestWritersClocks(t *testing.T) {
	const wait = 10 * time.Second
	for name, tt := range map[string]struct {
		ahead time.Duration
		first time.Duration // when the queue is first read
		due   time.Duration // since the job was put
	}{
		"right":               {0, 0, wait},
		"right, seen late":    {0, 8 * time.Second, wait},
		"a little ahead":      {5 * time.Second, 0, wait},
		"hours ahead":         {5 * time.Hour, 0, wait},
		"ahead, seen late":    {5 * time.Hour, 30 * time.Second, 30*time.Second + wait},
		"behind":              {-5 * time.Second, 0, wait - 5*time.Second},
		"hours behind":        {-5 * time.Hour, 0, 0},
		"little, seen before": {5 * time.Second, 3 * time.Second, 3*time.Second + wait},
		"little, seen late":   {5 * time.Second, 8 * time.Second, 5*time.Second + wait},
	} {
		for _, only := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := worldOn(t, mem.New())
					front, worker := w.on("front"), w.on("back")
					writer := queue.New(inStore(w.store), front.leases, queue.Options{Now: func() time.Time { return time.Now().Add(tt.ahead) }})
					j, err := writer.Enqueue(t.Context(), job(1, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(time.Now().Add(tt.ahead + wait)) }))
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					for time.Sleep(tt.first); ; time.Sleep(100 * time.Millisecond) {
						var l *queue.Lease
						if only {
							l, err = worker.Only(t.Context(), j.Queue, j.ID, worker.want())
						} else {
							l, err = worker.Claim(t.Context(), worker.want())
						}
						if err != nil {
							t.Fatal(err)
						}
						took := time.Since(began)
						if l == nil && took < tt.due+2*time.Second {
							continue
						}
						if l == nil || took < tt.due || took > tt.due+time.Second+100*time.Millisecond {
							t.Errorf("claimed: %v, after %v, want %v", l != nil, took, tt.due)
						}
						return
					}
				})
			})
		}
	}
}
