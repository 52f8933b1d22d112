package queue_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore/mem"
)

// work lets a worker take and finish jobs, each after a time, until ctx ends.
func (p *peer) work(t *testing.T, ctx context.Context, takes time.Duration) {
	wake, err := p.Watch(ctx, queue.DefaultQueue)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		l, err := p.Claim(ctx, p.want())
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			t.Error(err)
			break
		}
		if l == nil {
			<-wake
			continue
		}
		time.Sleep(takes)
		if err := l.Finish(t.Context(), success(l)); err != nil {
			t.Error(err)
		}
	}
	for range wake {
	}
}

// TestChainOfPolledJobs: in a chain of jobs on a store that does not notify, both sides notice each step soon: after
// some milliseconds if steps are short, and after a tenth of a step if they are long. Both sides look only a few times.
func TestChainOfPolledJobs(t *testing.T) {
	const steps = 40
	for takes, bound := range map[time.Duration]struct {
		late  time.Duration // mean delay of a step
		looks int           // of both sides, for each step
	}{
		10 * time.Millisecond: {12 * time.Millisecond, 8},
		time.Second:           {110 * time.Millisecond, 60},
		time.Minute:           {2 * time.Second, 160},
	} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldOn(t, mem.New())
				o := queue.Options{Polled: true}
				front, worker := w.onStore("front", w.store, o), w.onStore("back", w.store, o)
				ctx, cancel := context.WithCancel(t.Context())
				var beside sync.WaitGroup
				beside.Go(func() { worker.work(t, ctx, takes) })
				in := front.Inbox(ctx, queue.DefaultQueue, run)
				began := time.Now()
				for n := range steps {
					in.Expect(front.enqueue(t, job(n)).ID)
					for done := false; !done; {
						jobs, err := in.Next(ctx)
						if err != nil {
							t.Fatal(err)
						}
						for i := range jobs {
							done = done || jobs[i].Status.Terminal()
						}
					}
				}
				if late := time.Since(began)/steps - takes; late > bound.late {
					t.Errorf("a step took %v longer than its job, want %v at most", late, bound.late)
				} else {
					t.Logf("a step took %v longer than its job", late)
				}
				cancel()
				beside.Wait()
				looks := worker.wire.counted()["list ready"] + front.wire.counted()["list jobs"]
				t.Logf("%d looks a step", looks/steps)
				if looks > bound.looks*steps {
					t.Errorf("both sides looked %d times in %d steps, want %d each at most", looks, steps, bound.looks)
				}
			})
		})
	}
}

// TestChainOfToldJobs: on a store that notifies and writes in batches, both sides notice each step at once, also if one of
// their looks takes long.
func TestChainOfToldJobs(t *testing.T) {
	const steps, takes, call, stall = 40, 10 * time.Millisecond, time.Millisecond, 40 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		w.batches = true
		front, worker := w.on("front"), w.on("back")
		var stalls atomic.Int64
		for _, p := range []*peer{front, worker} {
			p.wire.hook(func(n int, after bool, op string) error {
				if after {
					return nil
				}
				if n%50 == 0 {
					stalls.Add(1)
					time.Sleep(stall)
				}
				time.Sleep(call)
				return nil
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var beside sync.WaitGroup
		beside.Go(func() { worker.work(t, ctx, takes) })
		in := front.Inbox(ctx, queue.DefaultQueue, run)
		began := time.Now()
		for n := range steps {
			in.Expect(front.enqueue(t, job(n)).ID)
			for done := false; !done; {
				jobs, err := in.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for i := range jobs {
					done = done || jobs[i].Status.Terminal()
				}
			}
		}
		step := (time.Since(began) - time.Duration(stalls.Load())*stall) / steps
		t.Logf("a step took %v, and there were %d stalls", step, stalls.Load())
		if most := takes + 24*call; step > most { // most of them calls that follow each other
			t.Errorf("a step took %v, want %v at most", step, most)
		}
		cancel()
		beside.Wait()
	})
}

// TestIdleWorkerIsCheap counts the requests of a worker without work to a store that does not notify, whose monthly
// cost doc/cost.md states.
func TestIdleWorkerIsCheap(t *testing.T) {
	for name, tt := range map[string]struct {
		others int
		shards bool
	}{"alone": {}, "one of many": {others: 20}, "alone, in shards": {shards: true}, "one of many, in shards": {20, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				others := tt.others
				w := worldOn(t, mem.New())
				if tt.shards {
					w.store = spreading{mem.New()}
				}
				w.ttl = 15 * time.Second // the default
				o := queue.Options{Polled: true}
				front, worker := w.on("front"), w.onStore("back", w.store, o)
				for range others { // each has a job, and so is a holder
					front.enqueue(t, job(1+len(w.all(t))))
					w.on("elsewhere").claim(t)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var beside sync.WaitGroup
				beside.Go(func() { worker.work(t, ctx, 0) })
				beside.Go(func() { _ = worker.Tend(ctx, []string{queue.DefaultQueue}, func(err error) { t.Error(err) }) })
				time.Sleep(time.Minute) // a new worker expects work
				reads := 0
				var gets atomic.Int64 // by the goroutine that follows sessions, too
				worker.wire.counted()
				worker.wire.hook(func(n int, after bool, op string) error {
					if n == 0 && op == "get" {
						gets.Add(1)
					}
					return nil
				})
				const minutes = 10
				time.Sleep(minutes * time.Minute)
				for call, n := range worker.wire.counted() {
					t.Logf("%.1f × %s in a minute", float64(n)/minutes, call)
					if strings.HasPrefix(call, "list") || strings.HasPrefix(call, "get") {
						reads += n
					}
				}
				sessions := int(gets.Load())
				reads += sessions
				// At $0.125 for a million reads, and $0.625 for a million of the 12 renewals in a minute.
				price := 60 * 24 * 30 * (float64(reads)/minutes*0.125 + 12*0.625) / 1e6
				t.Logf("%d reads in a minute, %d of them of sessions: $%.2f a month", reads/minutes, sessions/minutes, price)
				if price > 1 {
					t.Errorf("an idle worker costs $%.2f a month, want $1 at most", price)
				}
				worker.wire.hook(nil)
				cancel()
				beside.Wait()
			})
		})
	}
}

// TestCrowdLooksSeldom: the more workers watch a queue, the less often each looks.
func TestCrowdLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: true})
		for n := range 100 {
			front.enqueue(t, job(n))
			w.on("elsewhere").claim(t)
		}
		worker.reap(t)
		ctx, cancel := context.WithCancel(t.Context())
		var beside sync.WaitGroup
		beside.Go(func() { worker.work(t, ctx, 0) })
		worker.wire.counted()
		time.Sleep(time.Second)
		if n := worker.wire.counted()["list ready"]; n > 7 {
			t.Errorf("one of 100 workers looked %d times in its first second, want some 5 times", n)
		}
		cancel()
		beside.Wait()
	})
}

// TestManyHoldersAreListedSeldom: a process lists many holders only now and then, and still finds a dead one.
func TestManyHoldersAreListedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holders = 200
		w := worldOn(t, mem.New())
		front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: true})
		var gone *peer
		for n := range holders {
			front.enqueue(t, job(n))
			gone = w.on("elsewhere")
			gone.claim(t)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var beside sync.WaitGroup
		beside.Go(func() { _ = worker.Tend(ctx, []string{queue.DefaultQueue}, func(err error) { t.Error(err) }) })
		time.Sleep(time.Minute)
		if n := worker.wire.counted()["list holders"]; n > 20 {
			t.Errorf("listed %d holders %d times in a minute, want some 12 to 15 times", holders, n)
		}
		// Each holder is watched by a few others, here only by one.
		for n := 0; len(w.orphans(t)) == 0; n++ {
			if n == 0 {
				for _, p := range w.peers {
					if p != front && p != worker {
						w.kill(p)
					}
				}
			}
			if n > 60 {
				t.Fatal("none of the dead workers was found in five minutes")
			}
			time.Sleep(5 * time.Second)
		}
		cancel()
		beside.Wait()
	})
}

// orphans returns the jobs without a worker.
func (w *world) orphans(t *testing.T) (ids []string) {
	for id, j := range w.all(t) {
		if j.Orphaned() {
			ids = append(ids, id)
		}
	}
	return ids
}
