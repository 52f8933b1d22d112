package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore/mem"
)

// wakes counts wake-ups for a time.
func wakes(wake <-chan struct{}, d time.Duration) (n int) {
	for end := time.After(d); ; n++ {
		select {
		case <-wake:
		case <-end:
			return n
		}
	}
}

// TestWokenOnce: a waiter that claims nothing although a job is due is woken for it only once: it may be full, or serve
// only one job.
func TestWokenOnce(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, front, worker *peer, wake <-chan struct{}){
		"delayed": func(t *testing.T, front, worker *peer, wake <-chan struct{}) {
			front.enqueue(t, job(1, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(time.Now().Add(5 * time.Second)) }))
			if l, err := worker.Claim(t.Context(), worker.want()); err != nil || l != nil {
				t.Fatalf("got %v, %v, want nothing yet", l, err)
			}
			time.Sleep(5 * time.Second)
		},
		"an orphan that was left to its host": func(t *testing.T, front, worker *peer, wake <-chan struct{}) {
			j := front.enqueue(t, job(1))
			gone := front.w.on("here")
			of := func(p *peer, host string) queue.Want {
				want := p.want()
				want.Host, want.Grace = host, 5*time.Second
				return want
			}
			gone.claimAs(t, of(gone, "here"))
			front.w.kill(gone)
			began := time.Now()
			for {
				l, err := worker.Only(t.Context(), j.Queue, j.ID, of(worker, "there"))
				if err != nil {
					t.Fatal(err)
				}
				if l != nil {
					break
				}
				<-wake
			}
			if took := time.Since(began); took > 5*time.Second+time.Millisecond {
				t.Errorf("taken after %v, want 5 s, when it was let go", took)
			}
		},
	} {
		for how, polled := range map[string]bool{"told": false, "polled": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := worldOn(t, mem.New())
					front, worker := w.on("front"), w.onStore("back", w.store, queue.Options{Polled: polled})
					ctx, cancel := context.WithCancel(t.Context())
					wake, err := worker.Watch(ctx, queue.DefaultQueue)
					if err != nil {
						t.Fatal(err)
					}
					wait(t, front, worker, wake)
					// Every 2 s, and the looks of eager's first 20 s: 10·ln(20 s/(10·5 ms)).
					if n := wakes(wake, time.Minute); n > 90 {
						t.Errorf("woken %d times in a minute, want at most some 80, as without it", n)
					}
					// The time of the next job is still known.
					at := time.Now().Add(10 * time.Second)
					front.enqueue(t, job(2, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(at) }))
					only := worker.want()
					only.Fits = func(j *queue.Job) bool { return j.Task == "task-2" }
					for {
						l, err := worker.Claim(t.Context(), only)
						if err != nil {
							t.Fatal(err)
						}
						if l != nil {
							break
						}
						<-wake
					}
					if late := time.Since(at); late < 0 || late > 3*time.Second || late > time.Millisecond && !polled {
						t.Errorf("the next was taken %v after its time", late)
					}
					cancel()
					for range wake {
					}
				})
			})
		}
	}
}

// TestDelayedBehindWhatDoesNotFit: many due delayed jobs that a worker cannot take do not hide the ones after them.
func TestDelayedBehindWhatDoesNotFit(t *testing.T) {
	for _, before := range []int{600, 3000} { // more than one listing, and more than one search reads
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			w := newWorld(t)
			front, worker := w.on("front"), w.on("back")
			at := w.now().Add(-time.Minute)
			for n := range before {
				front.enqueue(t, job(n, func(j *queue.Job) { j.Labels, j.AvailableAt = []string{"gpu"}, queue.TimeOf(at) }))
			}
			for n := range 2 {
				front.enqueue(t, job(before+n, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(at.Add(time.Second)) }))
			}
			plain := worker.want()
			plain.Fits = func(j *queue.Job) bool { return len(j.Labels) == 0 }
			for n := range 2 {
				var l *queue.Lease
				for range 20 {
					var err error
					if l, err = worker.Claim(t.Context(), plain); err != nil {
						t.Fatal(err)
					}
					if l != nil {
						break
					}
					w.pass(2 * time.Second)
				}
				if l == nil {
					t.Fatalf("%d of 2 jobs that fit and are due were claimed within 40 s", n)
				}
				worker.finish(t, l)
			}
			if l, err := worker.Claim(t.Context(), plain); err != nil || l != nil {
				t.Errorf("got %v, %v, want nothing more", l, err)
			}
			want(t, "what fits a worker that can take it", worker.claim(t).Job().Labels, []string{"gpu"})
		})
	}
}

// A worker on a folder that knows jobs is told of a more urgent one, and of one that was given back, without a listing.
func TestToldOfEntries(t *testing.T) {
	dir := t.TempDir()
	w := worldOn(t, openFolder(t, dir))
	w.moves, w.aliases = true, true
	front, worker := w.on("front"), w.onStore("back", openFolder(t, dir), queue.Options{})
	for n := range 3 {
		front.enqueue(t, job(n))
	}
	wake, err := worker.Watch(t.Context(), queue.DefaultQueue)
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, j *queue.Job) {
		t.Helper()
		for !worker.Knows(j) {
			select {
			case <-wake:
			case <-t.Context().Done():
				t.Fatal(what)
			}
		}
	}
	claim := func(want int) *queue.Lease {
		t.Helper()
		l := worker.claim(t)
		if got := l.Job().Task; got != job(want).Task {
			t.Errorf("claimed %s, want %s", got, job(want).Task)
		}
		return l
	}
	first := claim(0)
	worker.wire.counted()
	urgent := front.enqueue(t, job(3, priority(5)))
	until("an urgent job", &urgent)
	claim(3)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim(0)
	claim(1)
	claim(2)
	if lists := worker.wire.counted()["list ready"]; lists > 2 { // of which each two seconds one is due, on a busy machine
		t.Errorf("%d listings", lists)
	}
}
