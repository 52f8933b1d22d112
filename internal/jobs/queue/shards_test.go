package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/mem"
)

// inShards is a world whose queues are in shards.
func inShards(t testing.TB) *world { return worldOn(t, spreading{mem.New()}) }

// partitions counts the records of one of the default queue's partitions and its shards, by partition.
func (w *world) partitions(t testing.TB, what string) map[string]int {
	t.Helper()
	w.flush()
	n := make(map[string]int)
	for r := range w.records(t, what) {
		if !strings.HasPrefix(r.Key.Sort, "+") {
			n[r.Key.Partition]++
		}
	}
	return n
}

// TestShardsShareTheLoad: what many jobs enqueued at once write is spread over all shards, and claims go by priority all
// the same, orphans first.
func TestShardsShareTheLoad(t *testing.T) {
	for name, batches := range map[string]bool{"at once": false, "in batches": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs = 1200
				w := inShards(t)
				w.batches = batches
				front, worker, lost := w.on("front"), w.on("back"), w.on("lost")
				orphan := front.enqueue(t, job(jobs))
				lost.claim(t)
				var beside sync.WaitGroup
				for n := range jobs {
					beside.Go(func() {
						if _, err := front.EnqueueFirst(t.Context(), job(n, priority(int64(n%7)))); err != nil {
							t.Error(err)
						}
					})
				}
				beside.Wait()
				w.kill(lost)
				front.reap(t)
				for what, first := range map[string]int{"jobs": 0, "ready": jobs} { // the first partition of entries takes those before the flow was known
					got := w.partitions(t, what)
					if len(got) != 16 {
						t.Errorf("%s are in %d partitions, want 16: %v", what, len(got), got)
					}
					most := jobs / 8
					if first > 0 {
						// The first 400 entries go to 1, 2, 4 and 8 shards, as the flow becomes known. Shard 1 gets 125 of them on
						// average, with a deviation of 10: 200 is never reached, while 150 was once in some 150 runs.
						most = jobs / 6
					}
					for partition, n := range got {
						if n > most && (first == 0 || partition != "QUEUE/default/ready") {
							t.Errorf("%s has %d of %d records", partition, n, jobs)
						}
					}
				}
				want(t, "first", worker.claim(t).Job().ID, orphan.ID)
				last := int64(7)
				claims := jobs
				if testing.Short() && batches {
					claims = jobs / 4 // one way of writing to the end is enough
				}
				for n := range claims {
					l := worker.claim(t)
					if p := l.Job().Priority; p > last {
						t.Fatalf("claim %d has priority %d, after one of priority %d", n, p, last)
					} else {
						last = p
					}
					worker.finish(t, l)
				}
				if claims == jobs {
					worker.claimNone(t)
				}
				if got := w.partitions(t, "finished/"+run); len(got) != 16 {
					t.Errorf("finished jobs are in %d partitions, want 16", len(got))
				}
			})
		})
	}
}

// TestMarksGo: once the entries of shards are gone, a worker lists one partition again.
func TestMarksGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inShards(t)
		front, worker := w.on("front"), w.on("back")
		for n := range 300 {
			front.enqueue(t, job(n))
		}
		for range 300 {
			worker.finish(t, worker.claim(t))
		}
		w.pass(3 * time.Second)
		worker.claimNone(t)
		worker.wire.counted()
		w.pass(3 * time.Second)
		worker.claimNone(t)
		if n := worker.wire.counted()["list ready/"]; n < 2 {
			t.Errorf("%d listings of marked shards, want some", n)
		}
		for range 20 {
			w.pass(3 * time.Second)
			worker.claimNone(t)
		}
		worker.wire.counted()
		w.pass(3 * time.Second)
		worker.claimNone(t)
		if n := worker.wire.counted()["list ready/"]; n != 0 {
			t.Errorf("%d listings of shards that have been empty for a minute, want none", n)
		}
		front.enqueue(t, job(1000)) // alone: its entry is in the first
		w.pass(3 * time.Second)
		worker.claim(t)
		if n := worker.wire.counted()["list ready/"]; n != 0 {
			t.Errorf("%d listings of shards for one job, want none", n)
		}
	})
}

// TestMissingMark: the entry of a process that stood still until its mark was removed is found by a repair.
func TestMissingMark(t *testing.T) {
	w := inShards(t)
	w.hurried = true
	front, worker := w.on("front"), w.on("back")
	var j queue.Job
	for n := 0; j.Shard == 0; n++ {
		if j.ID != "" {
			worker.finish(t, worker.claim(t))
		}
		j = front.enqueue(t, job(n))
	}
	for _, mark := range "123456789abcdef" {
		key := refstore.Key{Partition: "QUEUE/default/ready", Sort: "+" + string(mark)}
		if r, err := w.store.Get(t.Context(), key); err == nil {
			if err := w.store.Delete(t.Context(), key, r.Version); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.pass(3 * time.Second)
	worker.claimNone(t)
	w.on("else").repair(t)
	w.pass(3 * time.Second)
	want(t, "after the repair", worker.claim(t).Job().ID, j.ID)
}

// TestMarkRemovedMeanwhile: a mark that a worker removes while it is put anew is there nevertheless.
func TestMarkRemovedMeanwhile(t *testing.T) {
	w := inShards(t)
	w.hurried = true
	front := w.on("front")
	marks := func(visit func(refstore.Record)) {
		for _, shard := range "123456789abcdef" {
			key := refstore.Key{Partition: "QUEUE/default/ready", Sort: "+" + string(shard)}
			if r, err := w.store.Get(t.Context(), key); err == nil {
				visit(r)
			}
		}
	}
	n := 0
	enqueued := func(enough func(queue.Job) bool) (j queue.Job) {
		for ; !enough(j); n++ {
			j = front.enqueue(t, job(n))
		}
		return j
	}
	enqueued(func(queue.Job) bool {
		all := 0
		marks(func(refstore.Record) { all++ })
		return all == 15
	})
	w.pass(6 * time.Second) // so long a process does not rely on its mark
	last, removed := "", 0
	front.wire.hook(func(_ int, after bool, op string) error {
		if after {
			return nil
		}
		if op == "put ready" && last == "get ready" && removed == 0 {
			marks(func(r refstore.Record) {
				removed++
				if err := w.store.Delete(t.Context(), r.Key, r.Version); err != nil {
					t.Error(err)
				}
			})
		}
		last = op
		return nil
	})
	j := enqueued(func(j queue.Job) bool { return removed > 0 && j.Shard > 0 })
	there := map[string]bool{}
	marks(func(r refstore.Record) { there[r.Key.Sort] = true })
	if want := fmt.Sprintf("+%x", j.Shard); !there[want] {
		t.Errorf("the marks are %v, want %s", there, want)
	}
}

// TestWaiterReadsTheShardsOfItsJobs: a waiter does not look where it has no jobs, nor at all shards at a time.
func TestWaiterReadsTheShardsOfItsJobs(t *testing.T) {
	for jobs, most := range map[int]int{1: 1, 2: 2, 300: 8} {
		t.Run(fmt.Sprint(jobs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := inShards(t)
				o := queue.Options{Polled: true}
				front, worker := w.onStore("front", w.store, o), w.on("back")
				in := front.Inbox(t.Context(), queue.DefaultQueue, run)
				for n := range jobs {
					in.Expect(front.enqueue(t, job(n)).ID)
				}
				for range jobs {
					worker.finish(t, worker.claim(t))
				}
				var looks atomic.Int64 // lists are read side by side
				took := 0
				front.wire.hook(func(_ int, after bool, op string) error {
					if op == "list jobs/" && !after {
						looks.Add(1)
					}
					return nil
				})
				for done := 0; done < jobs; {
					told, err := in.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if n := int(looks.Swap(0)); n > most {
						t.Fatalf("a look read %d shards, want %d at most", n, most)
					}
					done, took = done+len(told), took+1
				}
				if took > 16 {
					t.Errorf("%d looks until all was told", took)
				}
			})
		})
	}
}

// TestWorkersTellWhatHasEnded: a run with jobs in many shards learns from its workers which of them have ended, and
// seldom looks at the shards; what a run has read needs no other request for each job.
func TestWorkersTellWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 100
		w := inShards(t)
		w.batches = true
		front, worker := w.onStore("front", w.store, queue.Options{Polled: true}), w.onStore("back", w.store, queue.Options{Polled: true})
		ctx, cancel := context.WithCancel(t.Context())
		in := front.Inbox(ctx, queue.DefaultQueue, run)
		for n := range jobs {
			j, err := front.EnqueueFirst(t.Context(), job(n))
			if err != nil {
				t.Fatal(err)
			}
			in.Expect(j.ID)
		}
		front.wire.counted()
		var beside sync.WaitGroup
		beside.Go(func() { worker.work(t, ctx, 10*time.Millisecond) })
		began, done := time.Now(), 0
		for done < jobs {
			told, err := in.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for i := range told {
				if told[i].Status.Terminal() {
					done++
				}
			}
		}
		took := time.Since(began)
		cancel()
		beside.Wait()
		calls, all := front.wire.counted(), 0
		for call, n := range calls {
			t.Logf("%4d × %s", n, call)
			all += n
		}
		// A look at the jobs of 8 shards each second, and two calls each 20 ms at most.
		if most := 8*int(took/time.Second+2) + 2*int(took/(20*time.Millisecond)+1); all > most || calls["list told/"] == 0 {
			t.Errorf("%d jobs in %v took %d calls of the run, want %d at most, and some of them for what is told", jobs, took, all, most)
		}
		w.empty(t)
		w.sound(t)
	})
}
