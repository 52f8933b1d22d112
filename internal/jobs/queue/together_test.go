package queue_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
)

// slow makes each call of these kinds take a second, by the clock of the bubble.
func (w *wire) slow(kinds ...string) {
	w.hook(func(_ int, after bool, op string) error {
		if slices.Contains(kinds, op) && !after {
			time.Sleep(time.Second)
		}
		return nil
	})
}

// TestClaimSome: what a worker has room for is claimed at the same time, in order, and no more than that. Jobs that others
// have taken meanwhile are told as missed, and the next ones are claimed.
func TestClaimSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.batches = true
		front, worker, other := w.on("front"), w.on("back"), w.on("back")
		var ids []string
		for n := range 10 {
			ids = append(ids, front.enqueue(t, job(n)).ID)
			time.Sleep(time.Millisecond)
		}
		w.flush()
		var chosen, missed []string
		want := worker.want()
		room := 4
		want.Chosen = func(j *queue.Job) bool { chosen = append(chosen, j.ID); room--; return room > 0 }
		want.Missed = func(j *queue.Job) { missed = append(missed, j.ID); room++ }
		claim := func() (got []string) {
			t.Helper()
			leases, err := worker.ClaimSome(t.Context(), want, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range leases {
				got = append(got, l.Job().ID)
			}
			return got
		}
		worker.wire.slow("put jobs")
		began := time.Now()
		if got := claim(); !slices.Equal(got, ids[:4]) || !slices.Equal(chosen, ids[:4]) || len(missed) > 0 {
			t.Errorf("claimed %v, chose %v, missed %v, want the first four of %v", got, chosen, missed, ids)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("four claims of a second each took %v, want one second", took)
		}
		worker.wire.hook(nil)

		taken := other.claim(t).Job().ID // the worker has listed it
		chosen, room = nil, 2
		got := claim()
		if taken != ids[4] || !slices.Contains(missed, taken) || slices.Contains(got, taken) || len(got) == 0 {
			t.Errorf("after %s was taken: claimed %v, missed %v", taken, got, missed)
		}
		if room+len(got) != 2 {
			t.Errorf("room for %d is left beside %d jobs, want 2 together", room, len(got))
		}
	})
}

// TestLostClaimsAreReadTogether: after a lost claim, a worker learns in one read which of the next jobs others have taken.
func TestLostClaimsAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.batches = true
		front, worker, other := w.on("front"), w.on("back"), w.on("back")
		for n := range 8 {
			front.enqueue(t, job(n))
		}
		w.flush()
		last := worker.claim(t).Job() // and lists the others
		for range 6 {
			other.claim(t)
		}
		worker.wire.counted()
		l, err := worker.Claim(t.Context(), worker.want())
		if err != nil || l == nil {
			t.Fatalf("got %v, %v, want the only job that is left", l, err)
		}
		calls := worker.wire.counted()
		if calls["put jobs"] != 2 || calls["read batch"] != 1 || calls["get jobs"] > 1 { // the lost one is compared with its entry
			t.Errorf("the claim after %s took %v, want one that fails, one read and one that succeeds", last.Task, calls)
		}
	})
}

// TestLateLooksShareRequests: jobs whose creation takes long are looked for among the finished ones together.
func TestLateLooksShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 50
		w := newWorld(t)
		w.batches = true
		front := w.on("front")
		front.enqueue(t, job(jobs)) // announces the queue and the run
		front.wire.slow("put jobs", "read batch")
		var beside sync.WaitGroup
		for n := range jobs {
			beside.Go(func() {
				if _, err := front.EnqueueFirst(t.Context(), job(n)); err != nil {
					t.Error(err)
				}
			})
		}
		beside.Wait()
		calls := front.wire.counted()
		if calls["read batch"] == 0 || calls["read batch"] > 2 || calls["get finished/"] > 0 {
			t.Errorf("%d slow creations took %v, want two reads at most", jobs, calls)
		}
	})
}

// TestUsedToGaps: processes that look at a store which does not notify become used to how soon more comes: they do not
// look earlier than three quarters of the shortest of the last gaps, and notice a short one within 0.1 s.
func TestUsedToGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := queue.NewNews()
		now := time.Now()
		for i, gap := range []time.Duration{80, 60, 90, 70} {
			if quiet := n.Quiet(now); quiet > 0 {
				t.Errorf("after %d gaps no look is worth while for %v", i, quiet)
			}
			now = now.Add(gap * time.Millisecond)
			n.Came(now)
		}
		if quiet := n.Quiet(now); quiet != 45*time.Millisecond {
			t.Errorf("after gaps of 60 to 90 ms no look is worth while for %v, want 45 ms", quiet)
		}
		for range 4 {
			now = now.Add(time.Hour)
			n.Came(now)
		}
		if quiet := n.Quiet(now); quiet != 100*time.Millisecond {
			t.Errorf("after gaps of an hour no look is worth while for %v, want 0.1 s", quiet)
		}
		now = now.Add(time.Millisecond)
		n.Came(now)
		if quiet := n.Quiet(now); quiet >= time.Millisecond {
			t.Errorf("after a gap of a millisecond no look is worth while for %v", quiet)
		}
	})
}
