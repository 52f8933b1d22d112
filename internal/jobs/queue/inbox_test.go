package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/mem"
)

// TestInboxFaults makes each call of a run's looks fail once, before and after it takes effect: the run still learns of
// each finished job.
func TestInboxFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		o    queue.Options
		late bool // all have finished before they are expected
	}{
		"told":         {queue.Options{}, false},
		"told, late":   {queue.Options{}, true},
		"polled":       {polled, false},
		"polled, late": {polled, true},
	} {
		t.Run(name+", mem", func(t *testing.T) {
			eachFault(t, func(t *testing.T, fault inboxFault) (met bool) {
				synctest.Test(t, func(t *testing.T) { met = fault.run(t, worldOn(t, mem.New()), tt.o, tt.late) })
				return met
			})
		})
		t.Run(name+", fs", func(t *testing.T) {
			eachFault(t, func(t *testing.T, fault inboxFault) bool {
				return fault.run(t, worldOn(t, openFolder(t, t.TempDir())), tt.o, tt.late)
			})
		})
	}
}

// inboxFault is a call that fails.
type inboxFault struct {
	n     int
	after bool // after it took effect
}

// eachFault runs a test for each call, until there are no more.
func eachFault(t *testing.T, run func(*testing.T, inboxFault) (met bool)) {
	for _, after := range []bool{false, true} {
		for n, met := 1, true; met; n++ {
			if !t.Run(fmt.Sprintf("call %d, after it: %v", n, after), func(t *testing.T) { met = run(t, inboxFault{n, after}) }) {
				return
			}
		}
	}
}

// run tells whether there was such a call.
func (f inboxFault) run(t *testing.T, w *world, o queue.Options, late bool) (met bool) {
	front, worker := w.onStore("front", w.store, o), w.on("back")
	ctx, cancel := context.WithTimeout(t.Context(), suite.Stuck)
	defer cancel()
	in := front.Inbox(ctx, queue.DefaultQueue, run)
	waits := make(map[string]bool)
	for n := range 6 {
		waits[front.enqueue(t, job(n)).ID] = true
	}
	if !late {
		for id := range waits {
			in.Expect(id)
		}
	}
	for n := range len(waits) {
		l := worker.claim(t)
		if n%2 == 0 { // its worker has no time to move it
			worker.wire.hook(func(_ int, _ bool, op string) error {
				if strings.Contains(op, "finished") {
					return errGone
				}
				return nil
			})
		}
		worker.finish(t, l)
		worker.wire.hook(nil)
	}
	if late {
		for id := range waits {
			in.Expect(id)
		}
	}
	what := ""
	front.wire.hook(func(n int, after bool, op string) error {
		if n == f.n && after == f.after {
			met, what = true, op
			return errFault
		}
		return nil
	})
	for len(waits) > 0 {
		jobs, err := in.Next(ctx)
		if err != nil && (!met || !errors.Is(err, errFault)) {
			t.Fatalf("%q failed: got %v, and still waits for %d jobs", what, err, len(waits))
		}
		for _, j := range jobs {
			if j.Status.Terminal() {
				delete(waits, j.ID)
			}
		}
		w.pass(2 * time.Second) // so that it looks again at once
	}
	front.wire.hook(nil)
	front.repair(t)
	w.sound(t)
	w.empty(t)
	return met
}

// A job that was expected before it was enqueued for the first time is not looked for: where the store notifies, its end
// is told.
func TestInboxExpectsFirst(t *testing.T) {
	for first, most := range map[bool]int{true: 0, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := worldOn(t, mem.New())
			front, worker := w.onStore("front", w.store, queue.Options{}), w.on("back")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in := front.Inbox(ctx, queue.DefaultQueue, run)
			told := make(chan queue.Job, 1)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					jobs, err := in.Next(ctx)
					if err != nil {
						return
					}
					for _, j := range jobs {
						if j.Status.Terminal() {
							told <- j
						}
					}
				}
			}()
			synctest.Wait() // it has begun, and looked at all
			j := job(1)
			j.ID = queue.Identity(j)
			var mu sync.Mutex
			looks := 0
			front.wire.hook(func(_ int, after bool, op string) error {
				mu.Lock()
				defer mu.Unlock()
				if !after && strings.Contains(op, "finished/"+run) && strings.Contains(op, j.ID) {
					looks++
				}
				return nil
			})
			if first {
				in.ExpectFirst(j.ID)
			}
			_, err := front.EnqueueFirst(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			in.Expect(j.ID)
			synctest.Wait()
			mu.Lock()
			if looks > most {
				t.Errorf("expected first: %v: it was looked for %d times among the finished ones, want at most %d", first, looks, most)
			}
			mu.Unlock()
			worker.finish(t, worker.claim(t))
			if ended := <-told; ended.ID != j.ID {
				t.Errorf("told is the end of %s, want %s", ended.ID, j.ID)
			}
			cancel()
			<-done
			front.wire.hook(nil)
		})
	}
}

// A job that has ended is reported even if it cannot be moved, because the record among the finished ones is
// unreadable.
func TestInboxCannotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldOn(t, mem.New())
		front, worker := w.onStore("front", w.store, polled), w.on("back")
		j := front.enqueue(t, job(1))
		l := worker.claim(t)
		spoilt := refstore.Record{Key: refstore.Key{Partition: "QUEUE/default/finished/" + run, Sort: j.ID}, Value: []byte("{")}
		if _, err := w.store.Put(t.Context(), spoilt); err != nil {
			t.Fatal(err)
		}
		worker.finish(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in := front.Inbox(ctx, queue.DefaultQueue, run)
		in.Expect(j.ID)
		for {
			jobs, err := in.Next(ctx)
			if err != nil && !errors.Is(err, queue.ErrMalformed) {
				t.Fatal(err)
			}
			if len(jobs) > 0 {
				want(t, "status", jobs[0].Status, queue.Succeeded)
				return
			}
		}
	})
}
