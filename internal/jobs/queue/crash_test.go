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

// A crashing is an operation that is interrupted at each of its calls to the store.
type crashing struct {
	prepare func(t *testing.T, c *crash)
	do      func(ctx context.Context, c *crash) error // run by the process that crashes
	// before and after are the allowed states of the job after a repair.
	before, after string
}

// crash is a world in which a process is about to crash.
type crash struct {
	*situation
	dying *peer
}

func byWorker(t *testing.T, c *crash) { c.running(t, 3); c.dying = c.worker }

func byFront(t *testing.T, c *crash) { c.dying = c.w.on("else") }

var crashings = map[string]crashing{
	"enqueue": {
		prepare: byFront, before: "none", after: "queued",
		do: func(ctx context.Context, c *crash) error { _, err := c.dying.Enqueue(ctx, job(1)); return err },
	},
	"enqueue first": {
		prepare: byFront, before: "none", after: "queued",
		do: func(ctx context.Context, c *crash) error { _, err := c.dying.EnqueueFirst(ctx, job(1)); return err },
	},
	"claim": {
		prepare: func(t *testing.T, c *crash) { c.front.enqueue(t, job(1)); c.dying = c.worker }, before: "queued", after: "orphan",
		do: func(ctx context.Context, c *crash) error { _, err := c.dying.Claim(ctx, c.dying.want()); return err },
	},
	"claim what was delayed": {
		prepare: func(t *testing.T, c *crash) {
			c.front.enqueue(t, job(1, func(j *queue.Job) { j.AvailableAt = queue.TimeOf(c.w.now().Add(time.Second)) }))
			c.w.pass(2 * time.Second)
			c.dying = c.worker
		}, before: "queued", after: "orphan",
		do: func(ctx context.Context, c *crash) error { _, err := c.dying.Claim(ctx, c.dying.want()); return err },
	},
	"only": {
		prepare: func(t *testing.T, c *crash) { c.front.enqueue(t, job(1)); c.dying = c.worker }, before: "queued", after: "orphan",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Only(ctx, c.job.Queue, c.job.ID, c.dying.want())
			return err
		},
	},
	"start": {
		prepare: byWorker, before: "orphan", after: "orphan",
		do: func(ctx context.Context, c *crash) error { return c.lease.Started(ctx, time.Now()) },
	},
	"finish": {
		prepare: byWorker, before: "orphan", after: "succeeded",
		do: func(ctx context.Context, c *crash) error { return c.end(ctx, queue.Succeeded) },
	},
	"fail": {
		prepare: byWorker, before: "orphan", after: "failed",
		do: func(ctx context.Context, c *crash) error { return c.end(ctx, queue.Failed) },
	},
	"requeue": {
		prepare: byWorker, before: "orphan", after: "queued",
		do: func(ctx context.Context, c *crash) error { _, err := c.lease.Again(ctx, "lost", 0); return err },
	},
	"requeue for later": {
		prepare: byWorker, before: "orphan", after: "queued",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.lease.Again(ctx, "lost", time.Second)
			return err
		},
	},
	"give up": {
		prepare: func(t *testing.T, c *crash) { c.running(t, 1); c.dying = c.worker }, before: "orphan", after: "failed",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.lease.Again(ctx, "lost", time.Second)
			return err
		},
	},
	"release": {
		prepare: byWorker, before: "orphan", after: "queued",
		do: func(ctx context.Context, c *crash) error { return c.lease.Release(ctx) },
	},
	"expire": {
		prepare: func(t *testing.T, c *crash) { c.running(t, 3); c.w.kill(c.worker); byFront(t, c) }, before: "orphan", after: "orphan",
		do: func(ctx context.Context, c *crash) error { return c.dying.Reap(ctx, c.job.Queue) },
	},
	"adopt": {
		prepare: func(t *testing.T, c *crash) {
			c.running(t, 3)
			c.w.kill(c.worker)
			c.front.reap(t)
			byFront(t, c)
		}, before: "orphan", after: "orphan",
		do: func(ctx context.Context, c *crash) error { _, err := c.dying.Claim(ctx, c.dying.want()); return err },
	},
	"cancel what is queued": {
		prepare: func(t *testing.T, c *crash) { c.front.enqueue(t, job(1)); byFront(t, c) }, before: "queued", after: "cancelled",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Cancel(ctx, c.job.Queue, c.job.ID, "me", "")
			return err
		},
	},
	"cancel what runs": { // and whose worker then ends it
		prepare: func(t *testing.T, c *crash) { c.running(t, 3); byFront(t, c) }, before: "running", after: "running",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Cancel(ctx, c.job.Queue, c.job.ID, "me", "")
			return err
		},
	},
	"cancel an orphan": {
		prepare: func(t *testing.T, c *crash) { c.running(t, 3); c.w.kill(c.worker); c.front.reap(t); byFront(t, c) }, before: "orphan", after: "cancelled",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Cancel(ctx, c.job.Queue, c.job.ID, "me", "")
			return err
		},
	},
	"retry": {
		prepare: func(t *testing.T, c *crash) { c.finished(t, queue.Failed); byFront(t, c) }, before: "failed", after: "queued",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Retry(ctx, c.job.Queue, c.job.ID)
			return err
		},
	},
	"reprioritise": {
		prepare: func(t *testing.T, c *crash) { c.front.enqueue(t, job(1)); byFront(t, c) }, before: "queued", after: "queued",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Reprioritise(ctx, c.job.Queue, c.job.ID, 5)
			return err
		},
	},
	"repair": {
		prepare: func(t *testing.T, c *crash) { // something of each kind to be repaired
			c.front.enqueue(t, job(1))
			c.tear(t, c.w.putsEntry(), func(p *peer) error { _, err := p.Enqueue(t.Context(), job(2)); return err })
			byFront(t, c)
		}, before: "queued", after: "queued",
		do: func(ctx context.Context, c *crash) error { return c.dying.Repair(ctx, c.job.Queue) },
	},
	"clean": {
		prepare: func(t *testing.T, c *crash) { c.finished(t, queue.Failed); byFront(t, c) }, before: "failed", after: "none",
		do: func(ctx context.Context, c *crash) error {
			_, err := c.dying.Clean(ctx, c.w.now().Add(time.Hour))
			return err
		},
	},
}

// tear kills a process at a call.
func (s *situation) tear(t *testing.T, at string, do func(*peer) error) {
	p := s.w.on("torn")
	p.wire.hook(func(_ int, after bool, op string) error {
		if op == at && !after {
			s.w.kill(p)
			return errGone
		}
		return nil
	})
	if do(p) == nil {
		t.Fatalf("there was no %q", at)
	}
}

// TestCrashPoints kills the process of each operation at each of its calls to the store, before and after the call
// takes effect. The next process finds the job in its old or its new state, and completes it; no job is lost or
// executed twice.
func TestCrashPoints(t *testing.T) {
	eachCrash(t, func(t *testing.T, op *crashing, n int, after bool) bool { return op.crash(t, newWorld(t), n, after) })
}

// TestCrashPointsInMoves does so where a job ends in one call, and in the middle of that call.
func TestCrashPointsInMoves(t *testing.T) {
	eachCrash(t, func(t *testing.T, op *crashing, n int, after bool) bool {
		w := newWorld(t)
		w.moves = true
		return op.crash(t, w, n, after)
	})
}

// TestCrashPointsInAliases does so where entries are aliases of jobs, which end in one call.
func TestCrashPointsInAliases(t *testing.T) {
	eachCrash(t, func(t *testing.T, op *crashing, n int, after bool) bool {
		w := newWorld(t)
		w.moves, w.aliases = true, true
		return op.crash(t, w, n, after)
	})
}

// TestCrashPointsInBatches does the same with follow-up records that are written later, in batches.
func TestCrashPointsInBatches(t *testing.T) {
	eachCrash(t, func(t *testing.T, op *crashing, n int, after bool) (cut bool) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.batches = true
			cut = op.crash(t, w, n, after)
		})
		return cut
	})
}

// TestCrashPointsInShards does so in a queue in shards.
func TestCrashPointsInShards(t *testing.T) {
	eachCrash(t, func(t *testing.T, op *crashing, n int, after bool) bool {
		w := worldOn(t, spreading{mem.New()})
		w.hurried = true
		return op.crash(t, w, n, after)
	})
}

func eachCrash(t *testing.T, crash func(t *testing.T, op *crashing, n int, after bool) bool) {
	for name, op := range crashings {
		t.Run(name, func(t *testing.T) {
			points := 0
			for _, after := range []bool{false, true} {
				for n := 1; ; n++ {
					if !t.Run(fmt.Sprintf("call %d, after it: %v", n, after), func(t *testing.T) {
						if !crash(t, &op, n, after) {
							points = -n // there are no more calls
						}
					}) {
						return
					}
					if points < 0 {
						points = 0
						break
					}
				}
			}
		})
	}
}

// crash interrupts the operation at one call. It returns false if there is no such call.
func (op *crashing) crash(t *testing.T, w *world, n int, after bool) (cut bool) {
	c := &crash{situation: &situation{w: w, front: w.on("front"), worker: w.on("back")}}
	c.job = *job(1)
	c.job.Queue, c.job.ID = queue.DefaultQueue, queue.Identity(&c.job)
	op.prepare(t, c)
	w.flush()
	last := ""
	c.dying.wire.hook(func(call int, done bool, what string) error {
		if cut || call == n && done == after {
			if !cut {
				last = what
			}
			cut = true
			return errGone
		}
		return nil
	})
	err := op.do(t.Context(), c)
	w.flush()
	if !cut {
		if err != nil {
			t.Fatalf("without a crash: got %v", err)
		}
		return false
	}
	t.Logf("cut off at %s", last)
	w.kill(c.dying)
	next := w.on("next")
	w.pass(3 * time.Second)
	next.reap(t)
	next.repair(t)
	if _, err := next.Clean(t.Context(), w.start); err != nil { // removes only useless records
		t.Fatal(err)
	}
	w.sound(t)
	if got := c.state(t); got != op.before && got != op.after {
		t.Errorf("after the crash: got %s, want %s or %s", got, op.before, op.after)
	}
	if err == nil && c.state(t) != op.after {
		t.Errorf("after it had succeeded: got %s, want %s", c.state(t), op.after)
	}

	// A caller that got an error, or no answer, repeats the call.
	w.pass(3 * time.Second)
	if c.dying != c.worker && op.before != op.after {
		c.dying = next
		_ = op.do(t.Context(), c) // refused if it was done
	}
	if got, is := c.state(t), op.after; c.dying == next && got != is {
		t.Errorf("done again: got %s, want %s", got, is)
	}
	next.drain(t, c)
	return true
}

// drain executes all claimable jobs.
func (p *peer) drain(t *testing.T, c *crash) {
	t.Helper()
	p.w.pass(3 * time.Second)
	tokens := make(map[string]uint64)
	for range 100 {
		l, err := p.Claim(t.Context(), p.want())
		if err != nil {
			t.Fatal(err)
		}
		if l == nil {
			break
		}
		j := l.Job()
		if j.Token <= tokens[j.ID] {
			t.Errorf("claimed with token %d after %d", j.Token, tokens[j.ID])
		}
		tokens[j.ID] = j.Token
		p.finish(t, l)
	}
	if c.state(t) == "running" { // by the worker that is alive
		if err := c.end(t.Context(), queue.Succeeded); err != nil {
			t.Fatal(err)
		}
	}
	p.repair(t)
	p.w.sound(t)
	p.w.empty(t, "dead")
	for _, j := range p.w.all(t) {
		if !j.Status.Terminal() {
			t.Errorf("job %s is %s at the end", j.Task, j.Status)
		}
	}
}
