package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
)

// TestCalls counts the calls to the store that a job costs, which doc/cost.md states.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	front.enqueue(t, job(0))
	worker.finish(t, worker.claim(t))
	front.wire.counted()
	worker.wire.counted()
	calls := func(what string, p *peer, expect map[string]int) {
		t.Helper()
		want(t, what, p.wire.counted(), expect)
	}

	j := front.enqueue(t, job(1))
	calls("enqueue", front, map[string]int{"get finished/": 2, "put jobs": 1, "put ready": 1})
	front.enqueue(t, job(1))
	calls("enqueue again", front, map[string]int{"get finished/": 1, "put jobs": 1, "get jobs": 1, "get ready": 1})
	w.pass(3 * time.Second)
	l := worker.claim(t)
	calls("claim", worker, map[string]int{"list ready": 1, "list delayed": 1, "put jobs": 1, "delete ready": 1})
	if err := l.Started(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	calls("start", worker, map[string]int{"put jobs": 1})
	worker.finish(t, l)
	calls("finish", worker, map[string]int{"put jobs": 1, "put finished/": 1, "delete jobs": 1})
	front.enqueue(t, job(1))
	calls("enqueue what is finished", front, map[string]int{"get finished/": 1})

	front.enqueue(t, job(2))
	front.wire.counted()
	l = worker.claim(t)
	worker.wire.counted()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls("release", worker, map[string]int{"put jobs": 1, "put ready": 1})
	l = worker.claim(t)
	worker.wire.counted()
	if _, err := l.Again(t.Context(), "lost", time.Second); err != nil {
		t.Fatal(err)
	}
	calls("requeue", worker, map[string]int{"put jobs": 1, "put delayed": 1})
	if _, err := front.Working(t.Context(), j.Ref(), "execution"); err != nil {
		t.Fatal(err)
	}
	calls("is it working", front, map[string]int{"get jobs": 1})
	front.reap(t)
	calls("reap", front, map[string]int{"list holders": 1})
}

// TestCallsInMoves counts those of the end of a job where the store moves records: a folder writes one file for them.
func TestCallsInMoves(t *testing.T) {
	w := newWorld(t)
	w.moves = true
	front, worker := w.on("front"), w.on("back")
	front.enqueue(t, job(1))
	l := worker.claim(t)
	worker.wire.counted()
	worker.finish(t, l)
	want(t, "finish", worker.wire.counted(), map[string]int{"move jobs": 1})
}

// TestCallsInAliases counts those of a job where its entry is an alias: a folder makes one file for the job.
func TestCallsInAliases(t *testing.T) {
	w := newWorld(t)
	w.moves, w.aliases = true, true
	front, worker := w.on("front"), w.on("back")
	front.enqueue(t, job(0))
	worker.finish(t, worker.claim(t))
	front.wire.counted()
	worker.wire.counted()
	if _, err := front.EnqueueFirst(t.Context(), job(1)); err != nil {
		t.Fatal(err)
	}
	want(t, "enqueue", front.wire.counted(), map[string]int{"put jobs": 1, "alias ready": 1})
	w.pass(3 * time.Second)
	l := worker.claim(t)
	want(t, "claim", worker.wire.counted(), map[string]int{"list ready": 1, "list delayed": 1, "get ready": 1, "put unaliased jobs": 1})
	worker.finish(t, l)
	want(t, "finish", worker.wire.counted(), map[string]int{"move jobs": 1})
}

// TestCallsInBatches counts the calls for a run that enqueues each of its jobs once, with batches of follow-up records:
// four calls for each job, and one batch for all jobs that end at about the same time.
func TestCallsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 100
		w := newWorld(t)
		w.batches = true
		o := queue.Options{Polled: true}
		front, worker := w.onStore("front", w.store, o), w.onStore("back", w.store, o)
		ctx, cancel := context.WithCancel(t.Context())
		in := front.Inbox(ctx, queue.DefaultQueue, run)
		var beside sync.WaitGroup
		for n := range jobs {
			beside.Go(func() {
				j, err := front.EnqueueFirst(t.Context(), job(n))
				if err != nil {
					t.Error(err)
				}
				in.Expect(j.ID)
			})
		}
		beside.Wait()
		beside.Go(func() { worker.work(t, ctx, time.Millisecond) })
		for done := 0; done < jobs; {
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
		cancel()
		beside.Wait()
		w.empty(t)
		w.sound(t)
		calls, all := worker.wire.counted(), 0
		if names := front.wire.calls["put names"]; names != 1 {
			t.Errorf("the queue was made %d times", names)
		}
		for call, n := range front.wire.counted() {
			calls[call] += n
		}
		for call, n := range calls {
			t.Logf("%4d × %s", n, call)
			all += n
		}
		want(t, "puts of jobs", calls["put jobs"], 3*jobs)
		want(t, "gets of finished jobs", calls["get finished/"], 0)
		if batches := calls["write batch"]; batches > jobs/2 {
			t.Errorf("%d batches for %d jobs, want half as many at most", batches, jobs)
		}
		if all > 6*jobs {
			t.Errorf("%d jobs took %d calls with all looks, want 6 each at most", jobs, all)
		}
	})
}

// TestRepairLeavesWhatIsBeingMade repairs while the same process is enqueuing.
func TestRepairLeavesWhatIsBeingMade(t *testing.T) {
	w := newWorld(t)
	front := w.on("front")
	repairing := false
	front.wire.hook(func(_ int, after bool, op string) error {
		if op == "put ready" && !after && !repairing {
			repairing = true
			front.repair(t)
		}
		return nil
	})
	front.enqueue(t, job(1))
	got := front.wire.counted()
	if !repairing {
		t.Fatal("the entry of the job was not put")
	}
	for call, n := range map[string]int{"put ready": 1, "get finished/": 2, "get jobs": 0} {
		if got[call] != n {
			t.Errorf("enqueuing with a repair meanwhile takes %d × %q, want %d", got[call], call, n)
		}
	}
	w.sound(t)
}

// TestManyJobsAreListedSeldom: a worker that takes many jobs lists the queue once for many of them.
func TestManyJobsAreListedSeldom(t *testing.T) {
	suite.Thorough(t)
	const jobs = 2000
	w := worldOn(t, openFolder(t, t.TempDir()))
	front, worker := w.on("front"), w.on("back")
	for n := range jobs {
		front.enqueue(t, job(n))
	}
	for range jobs {
		worker.finish(t, worker.claim(t))
	}
	calls := worker.wire.counted()
	if n := calls["list ready"]; n > jobs/10 {
		t.Errorf("%d jobs took %d listings, want a tenth of that at most", jobs, n)
	}
	for _, call := range []string{"list jobs", "list holders", "get jobs", "get finished/"} {
		if calls[call] > 0 {
			t.Errorf("got %d × %q, want none", calls[call], call)
		}
	}
}

// TestManyWorkers: several workers that take jobs at once do not collide for long.
func TestManyWorkers(t *testing.T) {
	const jobs, workers = 400, 4
	dir := t.TempDir()
	w := worldOn(t, openFolder(t, dir))
	front := w.on("front")
	for n := range jobs {
		front.enqueue(t, job(n))
	}
	type done struct {
		tasks []string
		calls map[string]int
	}
	results := make(chan done, workers)
	for range workers {
		p := w.onStore("back", openFolder(t, dir), queue.Options{})
		go func() {
			var d done
			for w.now().Sub(w.start) < time.Minute {
				l, err := p.Claim(t.Context(), p.want())
				if err != nil {
					t.Error(err)
					break
				}
				if l == nil {
					if len(w.all(t)) == jobs && len(w.sorts(t, "jobs")) == 0 {
						break
					}
					w.pass(time.Millisecond)
					continue
				}
				d.tasks = append(d.tasks, l.Job().Task)
				if err := l.Finish(t.Context(), success(l)); err != nil {
					t.Error(err)
				}
			}
			d.calls = p.wire.counted()
			results <- d
		}()
	}
	got, puts := make(map[string]int), 0
	for range workers {
		d := <-results
		for _, task := range d.tasks {
			got[task]++
		}
		puts += d.calls["put jobs"]
	}
	if len(got) != jobs {
		t.Errorf("%d jobs were done, want %d", len(got), jobs)
	}
	for task, n := range got {
		if n != 1 {
			t.Errorf("%s was done %d times", task, n)
		}
	}
	if lost := puts - 2*jobs; lost > jobs/2 {
		t.Errorf("%d jobs took %d claims that were too late, want half as many at most", jobs, lost)
	}
	w.sound(t)
}

// TestNothingIsReadBehindUntil: while nothing after a job may be taken, a long queue after it is not read; afterwards
// it is, at once.
func TestNothingIsReadBehindUntil(t *testing.T) {
	const jobs = 600 // more than a page, and more than one search reads
	w := newWorld(t)
	front, worker := w.on("front"), w.on("back")
	waits := front.enqueue(t, job(0, priority(1)))
	for n := range jobs {
		front.enqueue(t, job(1+n))
	}
	asks := worker.want()
	asks.Fits = func(j *queue.Job) bool { return j.Task != "task-0" }
	asks.Until = &waits
	for _, when := range []string{"first", "when it is old"} {
		if l, err := worker.Claim(t.Context(), asks); l != nil || err != nil {
			t.Fatalf("%s: got %v, %v, want nothing, since all that fits comes later", when, l, err)
		}
		if n := worker.wire.counted()["list ready"]; n != 1 {
			t.Errorf("%s: it took %d listings, want 1", when, n)
		}
		w.pass(3 * time.Second)
	}
	urgent := front.enqueue(t, job(jobs+1, priority(2)))
	w.pass(3 * time.Second)
	want(t, "before it", worker.claimAs(t, asks).Job().Task, urgent.Task)

	asks.Until, asks.Fits = nil, func(j *queue.Job) bool { return j.Task == "task-500" }
	l, err := worker.Claim(t.Context(), asks)
	if l == nil || err != nil {
		t.Errorf("got %v, %v at the end of it, want a job far behind at once", l, err)
	}
}

// TestOrphansBehindUntilAreShown: a worker that waits for an orphan sees all others, however many there are, but takes
// none.
func TestOrphansBehindUntilAreShown(t *testing.T) {
	const jobs = 40 // more than a page
	w := newWorld(t)
	front, lost, worker := w.on("front"), w.on("lost"), w.on("back")
	for n := range jobs {
		front.enqueue(t, job(n))
	}
	for range jobs {
		lost.claim(t)
	}
	w.kill(lost)
	front.reap(t)
	orphans, err := front.Orphans(t.Context(), queue.DefaultQueue)
	if err != nil || len(orphans) != jobs {
		t.Fatalf("%d orphans, %v, want %d", len(orphans), err, jobs)
	}
	shown := make(map[string]bool)
	asks := worker.want()
	asks.Until = &orphans[0]
	asks.Fits = func(j *queue.Job) bool {
		shown[j.ID] = true
		return j.ID != orphans[0].ID
	}
	if l, err := worker.Claim(t.Context(), asks); l != nil || err != nil {
		t.Errorf("got %v, %v, want nothing", l, err)
	}
	if len(shown) != jobs {
		t.Errorf("%d orphans were shown, want all %d", len(shown), jobs)
	}
}
